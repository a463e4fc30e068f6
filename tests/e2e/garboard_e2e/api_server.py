"""An API server alone, on loopback: etcd and kube-apiserver without a node, for tests of RBAC and admission policies.
Each request is made as any user, by impersonation."""

import dataclasses
import functools
import http.client
import json
import pathlib
import secrets
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any
from urllib.parse import quote

from .answer import Answer
from .outcome import Failure
from .patience import wait_until
from .places import REPOSITORY, SCRIPTS, hold
from .processes import free_port

Object = dict[str, Any]
NODE_CLAIM = f"Impersonate-Extra-{quote('authentication.kubernetes.io/node-name', safe='.')}"
ADMINISTRATOR = "administrator"


@dataclasses.dataclass(frozen=True)
class Caller:
    """Who asks: the owner of a token, in the place of a user if one is named."""

    user: str = ""
    groups: tuple[str, ...] = ()
    # The node that the token of a pod is bound to.
    node: str = ""
    token: str = ADMINISTRATOR

    def headers(self) -> Iterator[tuple[str, str]]:
        if self.user:
            yield "Impersonate-User", self.user
        for group in self.groups:
            yield "Impersonate-Group", group
        if self.node:
            yield NODE_CLAIM, self.node


@dataclasses.dataclass(frozen=True)
class Request:
    """One request; `patch` is the kind of a PATCH."""

    caller: Caller
    method: str
    path: str
    body: Object | None = None
    patch: str = ""

    @property
    def content_type(self) -> str:
        return f"application/{self.patch}-patch+json" if self.patch else "application/json"


class ApiServer:
    """etcd and kube-apiserver, with files below a directory of their own; `accounts` are the users that
    have a token, by its name."""

    def __init__(self, directory: pathlib.Path, accounts: Mapping[str, str]) -> None:
        self.directory, self.accounts = directory, accounts
        made = subprocess.run([SCRIPTS / "fetch-cluster"], stdout=subprocess.PIPE, text=True, check=True)
        self.programs = hold(pathlib.Path(made.stdout.strip()))
        self.port, self.etcd_port, self.peer_port = free_port(), free_port(), free_port()
        self.tokens = {name: secrets.token_hex() for name in (ADMINISTRATOR, *accounts)}
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        key = self.directory / "key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        lines = [f"{self.tokens[ADMINISTRATOR]},administrator,administrator,system:masters"]
        for name, user in self.accounts.items():
            lines.append(f'{self.tokens[name]},{user},{name},"system:serviceaccounts,system:authenticated"')
        tokens = self.directory / "tokens"
        tokens.touch(0o600)
        tokens.write_text("\n".join(lines) + "\n")
        self.run("etcd", *self.etcd_options())
        self.run("kube-apiserver", *self.api_server_options(key, tokens))
        wait_until("an API server that is ready", self.is_ready, circumstances=self.end_of_log)
        self.connection = self.connect()

    def etcd_options(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self.peer_port}"
        return [
            f"--data-dir={self.directory}/etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]

    def api_server_options(self, key: pathlib.Path, tokens: pathlib.Path) -> list[str]:
        return [
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            "--advertise-address=192.0.2.1",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--cert-dir={self.directory}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--allow-privileged",
            "--service-account-issuer=https://garboard.invalid",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--disable-admission-plugins=ServiceAccount",
        ]

    def run(self, program: str, *arguments: str) -> None:
        """A server that ends with this process, however that ends."""
        log: IO[bytes] = open(self.directory / f"{program}.log", "wb")
        with log:
            command = ["setpriv", "--pdeathsig", "KILL", str(self.programs / program), *arguments]
            self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def is_ready(self) -> bool:
        if any(process.poll() is not None for process in self.processes):
            raise Failure(f"a server has ended: {self.end_of_log()}")
        try:
            self.connection = self.connect()
            return self.ask(Request(Caller(), "GET", "/readyz")).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def end_of_log(self) -> str:
        return (self.directory / "kube-apiserver.log").read_text(errors="replace")[-1500:]

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait()

    def connect(self) -> http.client.HTTPSConnection:
        """Whose certificate it makes itself."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=60)

    def ask(self, request: Request) -> Answer:
        connection, body = self.connection, json.dumps(request.body) if request.body is not None else ""
        connection.putrequest(request.method, request.path)
        connection.putheader("Authorization", f"Bearer {self.tokens[request.caller.token]}")
        # A group each: a header may come more than once.
        for name, value in request.caller.headers():
            connection.putheader(name, value)
        connection.putheader("Content-Type", request.content_type)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body.encode())
        return Answer.read(connection)

    def kubectl(self, *arguments: str | pathlib.Path, text: str | None = None, codes: Sequence[int] = (0,)) -> str:
        """As the administrator; what it prints. It must end with one of these codes."""
        connection = [f"--server=https://127.0.0.1:{self.port}", "--insecure-skip-tls-verify", "--kubeconfig=/dev/null"]
        own = [f"--token={self.tokens[ADMINISTRATOR]}", f"--cache-dir={self.directory}/kubectl"]
        command = [self.programs / "kubectl", *connection, *own, *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        if done.returncode not in codes:
            raise Failure(
                f"`kubectl {' '.join(map(str, arguments))}` ended with {done.returncode}: {done.stderr[-1500:]}"
            )
        return done.stdout

    def apply(self, *objects: Object) -> None:
        self.kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def install(self) -> None:
        """What deploy/garboard.yaml has; nothing of it runs."""
        self.kubectl("apply", "-f", REPOSITORY / "deploy/garboard.yaml")

    @functools.cached_property
    def resources(self) -> set[str]:
        """Every kind of object there is, as PLURAL or PLURAL.GROUP."""
        # It fails where an aggregated API is known and does not run, and has printed all others.
        return set(self.kubectl("api-resources", "--no-headers", "-o", "name", codes=(0, 1)).split())
