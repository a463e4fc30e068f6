"""A namespace of machines on this host: examples, and what they print."""

import os
import pathlib
import re
from typing import Any

from .command import Garboard
from .outcome import Failure
from .places import EXAMPLES


class Namespace(Garboard):
    """The command, and a namespace of machines for one scene. Here machines go by their names."""

    def __init__(self, programs: pathlib.Path, directory: pathlib.Path, scene: str) -> None:
        super().__init__(programs, directory)
        # Different for tests that run at the same time.
        self.namespace = f"{scene}-{os.getpid()}"

    def example(self, name: str, *changes: tuple[str, str]) -> pathlib.Path:
        """A copy of an example in this namespace, with texts replaced: pairs of old and new text."""
        text = (EXAMPLES / f"{name}.yaml").read_text()
        for old, new in changes:
            if old not in text:
                raise Failure(f"{old!r} is not in examples/{name}.yaml any more")
            text = text.replace(old, new)
        return self.manifest(name, text)

    def manifest(self, name: str, text: str) -> pathlib.Path:
        """A file in which every object is in this namespace."""
        path = self.directory / f"{name}.yaml"
        path.write_text(re.sub(r"(?m)^metadata:$", f"metadata:\n  namespace: {self.namespace}", text))
        for machine in re.findall(r"(?ms)^kind: VirtualMachine\w*$.*?^  name: (\S+)$", path.read_text()):
            self.started.add(self.id(machine))
        return path

    def id(self, machine: str) -> str:
        return f"{self.namespace}/{machine}"

    def supervisor(self, machine: str) -> pathlib.Path:
        return self.home(self.id(machine)) / "supervisor"

    def status(self, machine: str) -> dict[str, Any] | None:
        """What `ps` prints of a machine, or None when it is not there."""
        return next((one.get("status") for one in self.machines() if one["name"] == machine), None)

    def resets(self, machine: str) -> int:
        """SeaBIOS answers a reset with one of its own, and on a busy host under TCG it runs on before QEMU has carried
        that out and resets again, a few times over: QEMU reports each."""
        count: int = (self.status(machine) or {})["resets"]
        return count

    def wait_for_serial(self, machine: str, pattern: str, times: int = 1) -> None:
        wanted = re.compile(pattern.encode())
        self.wait(
            f"{pattern!r} on the console of {machine}",
            lambda: len(wanted.findall(self.console(self.id(machine)))) >= times,
        )
