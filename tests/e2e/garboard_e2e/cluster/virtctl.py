"""KubeVirt's own client, unmodified, on a test cluster; and what it needs to reach a guest by ssh."""

import contextlib
import pathlib
import socket
import subprocess
from typing import Any

from ..patience import PATIENCE
from ..places import SCRIPTS
from .kube import Kube
from .names import NAMESPACE
from .person import Tool

# Of ssh and scp, which virtctl starts: they ask nothing, and remember nobody.
SSH_OPTIONS = (
    "-Fnone",
    "-oBatchMode=yes",
    "-oStrictHostKeyChecking=no",
    "-oUserKnownHostsFile=/dev/null",
    "-oLogLevel=ERROR",
)


def fetched() -> pathlib.Path:
    """The program, built from KubeVirt's Go module the first time."""
    made = subprocess.run([SCRIPTS / "fetch-reference", "virtctl"], check=True, stdout=subprocess.PIPE, text=True)
    return pathlib.Path(made.stdout.strip()) / "virtctl"


def virtctl(kube: Kube) -> Tool:
    """The program, in the namespace of machines."""
    return Tool(kube.environment, (str(fetched()), "--namespace", NAMESPACE))


def connected(port: int) -> socket.socket | None:
    """A connection to a port of this host, once something listens there."""
    with contextlib.suppress(OSError):
        return socket.create_connection(("127.0.0.1", port), PATIENCE)
    return None


def is_paused(kube: Kube, name: str) -> bool:
    conditions = kube.get("vmi", name).get("status", {}).get("conditions", [])
    return any(each["type"] == "Paused" and each["status"] == "True" for each in conditions)


def written(value: Any) -> Any:
    """A value without what is empty in it: virtctl writes objects with Go's types, where that comes and goes."""
    if isinstance(value, dict):
        parts = {key: written(part) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part not in (None, {}, [])}
    return [written(part) for part in value] if isinstance(value, list) else value


class SshKey:
    """A key, as virtctl takes it."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.file = directory / "key"
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(self.file)]
        subprocess.run(make, check=True)
        self.public_file = self.file.with_suffix(".pub")
        self.public = self.public_file.read_text().strip()

    def options(self) -> list[str]:
        """Of `virtctl ssh` and `virtctl scp`."""
        return ["--identity-file", str(self.file), *(f"--local-ssh-opts={option}" for option in SSH_OPTIONS)]
