"""A person at a terminal: a command on a pseudo-terminal."""

import os
import pty
import re
import select
import time
from collections.abc import Mapping, Sequence

from .outcome import Failure

DETACH = b"\x1d"


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.shown, self.read_to, self.began = b"", 0, time.monotonic()
        self.code: int | None = None
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], list(command), environment)

    def expect(self, pattern: str, seconds: float) -> re.Match[bytes]:
        """The next match in what the terminal shows; the command's end is an error."""
        end, wanted = time.monotonic() + seconds, re.compile(pattern.encode())
        while not (found := wanted.search(self.shown, self.read_to)):
            if not self.read(end):
                raise Failure(f"{pattern!r} did not appear within {seconds} s; the screen:\n{self.screen()}")
        self.read_to = found.end()
        return found

    def read(self, end: float) -> bool:
        """Takes in what is shown next; False when nothing more comes until `end`."""
        ready, _, _ = select.select([self.file], [], [], max(0, end - time.monotonic()))
        try:
            new = os.read(self.file, 65536) if ready else b""
        except OSError:  # the other end is closed: the command has ended
            new = b""
        self.shown += new
        return bool(new)

    def type(self, keys: bytes) -> None:
        os.write(self.file, keys)

    def end(self, seconds: float) -> int:
        """The exit code, within `seconds`."""
        end = time.monotonic() + seconds
        while self.read(end):
            pass
        while time.monotonic() < end + 1:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
                return self.code
            select.select([], [], [], 0.02)
        raise Failure(f"the command is still there after {seconds} s; the screen:\n{self.screen()}")

    def expect_end(self, seconds: float) -> None:
        """The command ends well."""
        if code := self.end(seconds):
            raise Failure(f"the command ended with {code}; the screen:\n{self.screen()}")

    def detach(self, seconds: float) -> None:
        """Leaves a guest's console by Ctrl-]."""
        self.type(DETACH)
        self.expect_end(seconds)

    def screen(self) -> str:
        return self.shown[-3000:].decode(errors="replace")

    def seconds(self) -> float:
        return time.monotonic() - self.began


def shell(terminal: Terminal, command: str, seconds: float) -> str:
    """What a command prints in the guest's shell on this terminal; it must succeed there."""
    # In two pieces, so that what is typed is not taken for what is printed.
    terminal.type(f"{command}; echo 'ended'' with' $?\n".encode())
    found = terminal.expect(r"(?s)(?P<printed>.*?)ended with (?P<code>\d+)\r", seconds)
    if found["code"] != b"0":
        raise Failure(f"`{command}` ended with {found['code'].decode()} in the guest:\n{terminal.screen()}")
    # The guest's echo of what was typed comes first.
    return found["printed"].decode(errors="replace").replace("\r\n", "\n").rpartition("' $?\n")[2]
