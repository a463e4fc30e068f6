"""A namespace of machines on this host: examples, what they print, and the scenes that are played with them."""

import os
import re
import sys

from garboard import CACHE, EXAMPLES, PATIENCE, PATIENT, QUIET, Garboard, Skipped
from report import Report, play as play_one, room
from terminal import Failure

HELLO, HELLO_PC = "registry.garboard.dev/hello:1", "registry.garboard.dev/hello-pc:1"
DEBIAN = "registry.garboard.dev/debian:12"


class Host(Garboard):
    """The command, and a namespace of machines while one scene plays. Here machines go by their names."""

    def __init__(self, garboard, directory, scene, report):
        super().__init__(garboard, directory)
        self.report = report
        # Different for checks that run at the same time.
        self.namespace = f"{scene}-{os.getpid()}"

    def example(self, name, *changes):
        """A copy of an example in this namespace, with texts replaced: pairs of what is there and what is wanted."""
        text = (EXAMPLES / f"{name}.yaml").read_text()
        for old, new in changes:
            if old not in text:
                raise Failure(f"{old!r} is not in examples/{name}.yaml any more")
            text = text.replace(old, new)
        return self.manifest(name, text)

    def manifest(self, name, text):
        """A file in which every object is in this namespace."""
        path = self.directory / f"{name}.yaml"
        text = text.replace(QUIET, PATIENT)
        path.write_text(re.sub(r"(?m)^metadata:$", f"metadata:\n  namespace: {self.namespace}", text))
        for machine in re.findall(r"(?ms)^kind: VirtualMachine\w*$.*?^  name: (\S+)$", path.read_text()):
            self.started.add(self.id(machine))
        return path

    def id(self, machine):
        return f"{self.namespace}/{machine}"

    def supervisor(self, machine):
        return self.home(self.id(machine)) / "supervisor"

    def status(self, machine):
        """What `ps` says of a machine, or None when it is not there."""
        return next((one.get("status") for one in self.machines() if one["name"] == machine), None)

    def wait_for_serial(self, machine, pattern, times=1):
        pattern = re.compile(pattern.encode())
        self.wait(f"{pattern.pattern.decode()!r} on the console of {machine}",
                  lambda: len(pattern.findall(self.console(self.id(machine)))) >= times)


def play(scenes, usage):
    """Plays the scenes whose names contain a word of the command line (all without one), each in a directory of its own."""
    if len(sys.argv) < 2:
        sys.exit(usage)
    garboard, words, report = sys.argv[1], sys.argv[2:] or [""], Report()
    for scene in [scene for scene in scenes if any(word in scene.__name__ for word in words)]:
        with room() as directory:
            host = Host(garboard, directory, scene.__name__.partition("_")[0].partition("-")[0], report)
            play_one(report, scene.__name__.replace("_", " "), host, scene)
    sys.exit(report.sums())


def image(reference, name):
    """The option that takes a cached guest for an image."""
    layout = CACHE / "images" / name
    if not layout.exists():
        raise Skipped(f"{layout} is missing: scripts/guest-{name.partition('-')[0]} makes it")
    return f"--image={reference}={layout}"


def shell(terminal, command, seconds=PATIENCE):
    """What a command prints in the guest's shell on this terminal; it must succeed there."""
    # In two pieces, so that what is typed is not taken for what is printed.
    terminal.type(f"{command}; echo 'ended'' with' $?\n".encode())
    found = terminal.expect(r"(?s)(?P<printed>.*?)ended with (?P<code>\d+)\r", seconds)
    if found["code"] != b"0":
        raise Failure(f"`{command}` ended with {found['code'].decode()} in the guest:\n{terminal.screen()}")
    # The guest's echo of what was typed comes first.
    return found["printed"].decode(errors="replace").replace("\r\n", "\n").rpartition("' $?\n")[2]
