"""The program that is tested: `garboard-dashboard`, as its Deployment runs it, before an API server that is played."""

import base64
import http.client
import json
import pathlib
import signal
import ssl
import subprocess
from types import TracebackType
from typing import Self

from ..outcome import Failure
from ..patience import PATIENCE
from .played_api import PlayedApi, TlsServer

SERVES = "the dashboard serves"


def make_certificate(directory: pathlib.Path) -> pathlib.Path:
    """A certificate of its own authority, for the addresses of loopback: what both servers of a test show."""
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "1"]
    plain = ["-addext", "basicConstraints=critical,CA:FALSE"]
    files = ["-keyout", str(directory / "tls.key"), "-out", str(directory / "tls.crt")]
    subprocess.run([*request, *names, *plain, *files], check=True, capture_output=True)
    return directory


def token_until(second: float, user: str = "ada") -> str:
    """A token that says when it ends, as those of Kubernetes do."""

    def part(document: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'sub': user, 'exp': int(second)})}.c2lnbmF0dXJl"


class InCluster:
    """A dashboard that runs."""

    def __init__(self, program: pathlib.Path, api: PlayedApi, directory: pathlib.Path, *options: str) -> None:
        certificate = make_certificate(directory)
        played = TlsServer(api, certificate)
        self.process = subprocess.Popen(
            [str(program), "--listen=127.0.0.1:0", f"--certificate={certificate}", "--api-host=127.0.0.1",
             f"--api-port={played.port}", f"--api-authority={certificate / 'tls.crt'}", *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.port = self.await_port()
        self.origin = f"https://127.0.0.1:{self.port}"

    def await_port(self) -> int:
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        fields = json.loads(line)["fields"] if line.startswith("{") else {}
        if fields.get("message") != SERVES:
            raise Failure(f"it does not serve: {line!r} {self.process.communicate()}")
        return int(fields["address"].rpartition(":")[2])

    def connect(self) -> http.client.HTTPConnection:
        anything = ssl.create_default_context()
        anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=anything)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> int:
        """How it ends when it is asked to."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()
