"""What the scripts use that act as a person at a terminal: a command on a pseudo-terminal, garboard's commands, and a
look at everything that a machine could leave behind on its host."""

import os
import pathlib
import pty
import re
import select
import subprocess
import time

DETACH = b"\x1d"


class Failure(Exception):
    """What a person would have complained about."""


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, command, environment):
        self.shown, self.read_to, self.began = b"", 0, time.monotonic()
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, environment)

    def expect(self, pattern, seconds):
        """The next match in what the terminal shows; the command's end is an error."""
        end, pattern = time.monotonic() + seconds, re.compile(pattern.encode())
        while not (found := pattern.search(self.shown, self.read_to)):
            if not self.read(end):
                raise Failure(f"{pattern.pattern.decode()!r} did not appear within {seconds} s; the screen:\n{self.screen()}")
        self.read_to = found.end()
        return found

    def read(self, end):
        """Takes in what is shown next; False when nothing more comes until `end`."""
        ready, _, _ = select.select([self.file], [], [], max(0, end - time.monotonic()))
        try:
            new = os.read(self.file, 65536) if ready else b""
        except OSError:  # the other end is closed: the command has ended
            new = b""
        self.shown += new
        return bool(new)

    def type(self, keys):
        os.write(self.file, keys)

    def end(self, seconds):
        """The exit code, within `seconds`."""
        end = time.monotonic() + seconds
        while self.read(end):
            pass
        while time.monotonic() < end + 1:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            select.select([], [], [], 0.02)
        raise Failure(f"the command is still there after {seconds} s; the screen:\n{self.screen()}")

    def screen(self):
        return self.shown[-3000:].decode(errors="replace")

    def seconds(self):
        return time.monotonic() - self.began


def leftovers(directory):
    """Everything on this host that a machine could leave behind, by name."""
    found = set()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            environment = (process / "environ").read_bytes()
        except OSError:
            continue
        if int(process.name) != os.getpid() and (directory in line or directory.encode() in environment):
            found.add(f"process {process.name}: {line[:150]}")
    for kind, command in {"network namespace": ["ip", "netns", "list"], "link": ["ip", "-o", "link", "show"],
                          "nft table": ["nft", "list", "tables"]}.items():
        for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines():
            found.add(f"{kind} {re.sub(r'^[0-9]+: | (state|mtu|qlen|qdisc|group|link/).*', '', line)}")
    for mount in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        found.add(f"mount {mount.split()[1]}")
    # os.walk passes over what goes while it looks.
    for group, _, _ in os.walk("/sys/fs/cgroup"):
        if "garboard" in group:
            found.add(f"cgroup {group}")
    for path, directories, files in os.walk(f"{directory}/run"):
        found.update(f"file {path}/{name}" for name in directories + files)
    return found


def wait_until_clean(directory, before, seconds=10):
    """Until nothing is there that was not there before; what ends last ends shortly after the command that asked."""
    end = time.monotonic() + seconds
    while left := leftovers(directory) - before:
        if time.monotonic() > end:
            raise Failure("left behind:\n" + "\n".join(f"  {thing}" for thing in sorted(left)))
        select.select([], [], [], 0.1)


def output(command, environment):
    """What a garboard command prints; it must succeed."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise Failure(f"`{' '.join(command[1:])}` ended with {done.returncode}:\n{done.stderr}")
    return done.stdout
