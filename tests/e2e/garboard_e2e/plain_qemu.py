"""A test guest under plain QEMU, without Garboard: its serial port, and its monitor."""

import contextlib
import json
import pathlib
import re
import select
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from .outcome import Failure

FAST = "console=ttyS0 quiet cryptomgr.notests"


class PlainQemu:
    """One QEMU, its first serial port and its monitor."""

    def __init__(self, arguments: Sequence[str], accel: str = "tcg", within: Sequence[str] = ()) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="garboard-guest-")
        self.printed, self.read_to = b"", 0
        place = self.directory.name
        listening = {name: socket.socket(socket.AF_UNIX) for name in ("serial", "monitor")}
        for name, sock in listening.items():
            sock.bind(f"{place}/{name}")
            sock.listen(1)
        self.started = time.monotonic()
        command = [
            *within,
            *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none"),
            *("-machine", f"q35,accel={accel}", "-cpu", "qemu64" if accel == "kvm" else "max"),
            *("-chardev", f"socket,id=serial,path={place}/serial", "-serial", "chardev:serial"),
            *("-chardev", f"socket,id=monitor,path={place}/monitor", "-mon", "chardev=monitor,mode=control"),
            *arguments,
        ]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.serial, self.monitor = (self.accept(listening[name]) for name in ("serial", "monitor"))
        self.replies = self.monitor.makefile("r")
        self.replies.readline()
        self.execute("qmp_capabilities")

    def accept(self, sock: socket.socket) -> socket.socket:
        with sock:
            sock.settimeout(10)
            try:
                return sock.accept()[0]
            except TimeoutError:
                self.process.kill()
                raise Failure(f"QEMU did not start: {self.process.communicate()[1]}") from None

    def execute(self, command: str) -> dict[str, Any]:
        self.monitor.sendall(json.dumps({"execute": command}).encode())
        while True:
            reply: dict[str, Any] = json.loads(self.replies.readline())
            if "return" in reply or "error" in reply:
                return reply

    def seconds(self) -> float:
        return time.monotonic() - self.started

    def expect(self, pattern: str, seconds: float = 60) -> re.Match[bytes]:
        """The next match of `pattern` in what the guest prints."""
        end = time.monotonic() + seconds
        wanted = re.compile(pattern.encode())
        while not (found := wanted.search(self.printed, self.read_to)):
            ready, _, _ = select.select([self.serial], [], [], max(0, end - time.monotonic()))
            new = self.serial.recv(65536) if ready else b""
            if not new:
                tail, why = self.printed[-2000:].decode(errors="replace"), "closed" if ready else "timed out"
                raise Failure(f"{why} before {pattern!r}; the end was:\n{tail}")
            self.printed += new
        self.read_to = found.end()
        return found

    def type(self, keys: bytes) -> None:
        self.serial.sendall(keys)

    def run(self, command: str, seconds: float = 20) -> str:
        """What a shell command of the guest prints."""
        self.type(f"{command}; echo 'do''ne' $?\n".encode())
        start = self.read_to
        found = self.expect(r"done (\d+)", seconds)
        if found.group(1) != b"0":
            raise Failure(f"`{command}` ended with {found.group(1).decode()}")
        return self.printed[start : self.read_to].decode(errors="replace")

    def expect_end(self, seconds: float = 20) -> None:
        """QEMU ends well. Reads on until then: a serial port that is not read stops the guest."""
        end = time.monotonic() + seconds
        with contextlib.suppress(Failure):
            self.expect(r"(?!)", seconds)
        code = self.process.wait(max(0.1, end - time.monotonic()))
        if code != 0:
            raise Failure(f"QEMU ended with {code}")

    def __enter__(self) -> "PlainQemu":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):
            self.replies.close()
            self.serial.close()
            self.monitor.close()
        if self.process.stderr:
            self.process.stderr.close()
        self.directory.cleanup()


def unpacked(image: pathlib.Path, into: pathlib.Path) -> pathlib.Path:
    """The files of an image's only layer."""

    def blob(descriptor: dict[str, str]) -> pathlib.Path:
        return image / "blobs" / descriptor["digest"].replace(":", "/")

    manifest = json.loads(blob(json.loads((image / "index.json").read_text())["manifests"][0]).read_text())
    with tarfile.open(blob(manifest["layers"][0])) as layer:
        layer.extractall(into)
    return into


def kernel(files: pathlib.Path, more: str = "", memory: int = 256) -> list[str]:
    boot = ["-kernel", f"{files}/boot/vmlinuz", "-initrd", f"{files}/boot/initrd"]
    return ["-m", str(memory), *boot, "-append", f"{FAST} {more}"]


def user_network(card: str = "virtio-net-pci", options: str = "") -> list[str]:
    return ["-netdev", f"user,id=net0,ipv4=on,ipv6=on{options}", "-device", f"{card},netdev=net0,romfile="]


def disk(path: pathlib.Path, device: str = "virtio-blk-pci", options: str = "") -> list[str]:
    kind = "qcow2" if path.suffix == ".qcow2" else "raw"
    drive = f"if=none,id=disk0,format={kind},file={path},snapshot=on"
    return ["-drive", drive, "-device", f"{device},drive=disk0{options}"]
