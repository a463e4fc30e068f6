"""Garboard on this host as a check uses it: directories and a namespace of its own, so that checks, and whatever else
runs here, do not meet; and the frame in which checks are told and counted."""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import uuid

from terminal import Failure, Terminal, leftovers

CACHE = pathlib.Path(os.environ.get("GARBOARD_CACHE", "/var/cache/garboard-test"))
EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
HELLO, HELLO_PC = "registry.garboard.dev/hello:1", "registry.garboard.dev/hello-pc:1"
DEBIAN = "registry.garboard.dev/debian:12"
# From which the command makes the UID of a machine whose manifest has none (cli/src/subject.rs).
IDENTITY_NAMESPACE = uuid.UUID("67617262-6f61-7264-8000-000000000001")
# Generous: checks run beside compilers.
PATIENCE = 240


class Skipped(Exception):
    """Why something cannot be shown here."""


class Host:
    """The command, and everything that is its own while one scene plays."""

    def __init__(self, garboard, directory, scene, report):
        self.garboard, self.directory, self.report = garboard, pathlib.Path(directory), report
        # Different for checks that run at the same time.
        self.namespace = f"{scene}-{os.getpid()}"
        self.environment = os.environ | {"GARBOARD_RUNTIME_DIR": f"{directory}/run", "TERM": "dumb",
                                         "GARBOARD_STATE_DIR": f"{directory}/state"}
        self.started = set()
        self.before = leftovers(directory)

    def run(self, *arguments, code=0, seconds=PATIENCE, **environment):
        """What a command prints, standard output before standard error; it must end with `code`."""
        done = subprocess.run([self.garboard, *map(str, arguments)], env=self.environment | environment, text=True,
                              capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL)
        if done.returncode != code:
            raise Failure(f"`garboard {' '.join(map(str, arguments))}` ended with {done.returncode}, not {code}:\n"
                          f"{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def terminal(self, *arguments, **environment):
        """A command on a terminal."""
        return Terminal([self.garboard, *map(str, arguments)], self.environment | {"TERM": "xterm"} | environment)

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
        # An interpreted guest on a busy host finds its timer too slow and gives up.
        text = text.replace("cryptomgr.notests", "cryptomgr.notests no_timer_check")
        path.write_text(re.sub(r"(?m)^metadata:$", f"metadata:\n  namespace: {self.namespace}", text))
        for machine in re.findall(r"(?ms)^kind: VirtualMachine\w*$.*?^  name: (\S+)$", path.read_text()):
            self.started.add(machine)
        return path

    def id(self, machine):
        return f"{self.namespace}/{machine}"

    def shared(self, machine):
        return self.directory / "run" / self.namespace / machine / "shared"

    def serial(self, machine):
        log = self.shared(machine) / "serial0.log"
        return log.read_bytes() if log.exists() else b""

    def machines(self):
        return json.loads(self.run("ps", "-o", "json"))

    def status(self, machine):
        """What `ps` says of a machine, or None when it is not there."""
        return next((one.get("status") for one in self.machines() if one["name"] == machine), None)

    def wait(self, what, holds, seconds=PATIENCE):
        """Until `holds` answers something true, which is returned."""
        end = time.monotonic() + seconds
        while not (found := holds()):
            if time.monotonic() > end:
                raise Failure(f"{what}: not within {seconds} s; garboard ps: {self.run('ps')}")
            time.sleep(0.05)
        return found

    def wait_for_serial(self, machine, pattern, times=1):
        pattern = re.compile(pattern.encode())
        self.wait(f"{pattern.pattern.decode()!r} on the console of {machine}",
                  lambda: len(pattern.findall(self.serial(machine))) >= times)

    def ended(self, machine):
        """The end of the last run as its record has it."""
        self.wait(f"the end of {machine}", lambda: not self.shared(machine).parent.exists())
        runs = sorted((self.directory / "state/records" / self.namespace / machine).iterdir())
        return json.loads((runs[-1] / "journal.json").read_text())["ended"]

    def expect_clean(self, seconds=15):
        """Nothing may be left of this scene's machines; what other machines of this host have is theirs."""
        end = time.monotonic() + seconds
        while left := {thing for thing in leftovers(str(self.directory)) - self.before if self.is_ours(thing)}:
            if time.monotonic() > end:
                raise Failure("left behind:\n" + "\n".join(f"  {thing}" for thing in sorted(left)))
            time.sleep(0.1)

    def is_ours(self, thing):
        kind, _, name = thing.partition(" ")
        uids = {str(uuid.uuid5(IDENTITY_NAMESPACE, self.id(machine))) for machine in self.started}
        if kind == "link":
            return any(f"gb{fingerprint(uid) >> 12:013x}" in name for uid in uids)
        if kind == "nft":
            return any(uid in name for uid in uids)
        if kind == "cgroup":
            return self.namespace in name
        return str(self.directory) in name or kind == "process"

    def stop_everything(self):
        """After a failure: by force, whatever state things are in."""
        for machine in self.started:
            subprocess.run([self.garboard, "stop", "--force", self.id(machine)], env=self.environment, timeout=60,
                           capture_output=True)


class Report:
    """What was shown, one line each; `N passed, N failed, N skipped` at the end."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.began = time.monotonic()

    def ok(self, text):
        now = time.monotonic()
        print(f"  ok  {text} ({now - self.began:.1f} s)", flush=True)
        self.passed, self.began = self.passed + 1, now

    def skip(self, text):
        self.skipped += 1
        print(f"skipped: {text}", flush=True)

    def fail(self, scene, failure):
        self.failed += 1
        print(f"  FAILED  {scene}: {failure}", flush=True)


def play(scenes, usage):
    """Plays the scenes whose names contain a word of the command line (all without one), each in directories of its own,
    and looks what is left after each."""
    if len(sys.argv) < 2:
        sys.exit(usage)
    garboard, words, report = os.path.abspath(sys.argv[1]), sys.argv[2:] or [""], Report()
    for scene in [scene for scene in scenes if any(word in scene.__name__ for word in words)]:
        name = scene.__name__.replace("_", " ")
        # Short: a socket's path has at most 107 bytes.
        with tempfile.TemporaryDirectory(prefix="gb-") as directory:
            os.chmod(directory, 0o755)  # the machine's own user must get through
            host = Host(garboard, directory, scene.__name__.partition("_")[0].partition("-")[0], report)
            report.began = time.monotonic()
            try:
                scene(host)
                host.expect_clean()
            except Skipped as skipped:
                report.skip(f"{name}: {skipped}")
            except (Failure, OSError, LookupError, ValueError, EOFError, subprocess.SubprocessError) as failure:
                report.fail(name, f"{type(failure).__name__}: {failure}")
                host.stop_everything()
    print(f"{report.passed} passed, {report.failed} failed, {report.skipped} skipped")
    sys.exit(1 if report.failed else 0)


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


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def fingerprint(text):
    """FNV-1a of 64 bits, as net/src/names.rs has it."""
    result = 0xCBF29CE484222325
    for byte in text.encode():
        result = ((result ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return result
