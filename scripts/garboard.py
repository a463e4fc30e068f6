"""The command on this host, as every check on a bare host uses it: directories of its own, so that checks, and whatever
else runs here, do not meet; and what its machines leave behind."""

import json
import os
import pathlib
import socket
import subprocess
import time
import uuid

from terminal import Failure, Terminal, leftovers

CACHE = pathlib.Path(os.environ.get("GARBOARD_CACHE", "/var/cache/garboard-test"))
EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
# From which the command makes the UID of a machine whose manifest has none (cli/src/subject.rs).
IDENTITY_NAMESPACE = uuid.UUID("67617262-6f61-7264-8000-000000000001")
# Generous: checks run beside compilers, and guests are emulated.
PATIENCE = int(os.environ.get("GARBOARD_PATIENCE", "240"))
# What a kernel may be told in these guests: on a busy host the emulated timer is late, and it would give up on it.
QUIET, PATIENT = "cryptomgr.notests", "cryptomgr.notests no_timer_check"


class Skipped(Exception):
    """Why something cannot be shown here."""


class Garboard:
    """The command, and everything that is its own. Machines are named as the command takes them, NAMESPACE/NAME."""

    working_directory = None

    def __init__(self, program, directory, machines=()):
        self.garboard, self.directory = os.path.abspath(program), pathlib.Path(directory)
        self.runtime, self.state = self.directory / "run", self.directory / "state"
        self.environment = os.environ | {"GARBOARD_RUNTIME_DIR": str(self.runtime), "GARBOARD_STATE_DIR": str(self.state),
                                         "TERM": "dumb"}
        # Those that were or will be started here: what is left of others is theirs.
        self.started = set(machines)
        self.before = leftovers(str(directory))

    def argv(self, *arguments):
        return [self.garboard, *map(str, arguments)]

    def call(self, *arguments, around=(), seconds=PATIENCE, **environment):
        """The ended command; `around` are words in front of it."""
        return subprocess.run([*around, *self.argv(*arguments)], env=self.environment | environment, text=True,
                              capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL, cwd=self.working_directory)

    def run(self, *arguments, code=0, **options):
        """What a command prints, standard output before standard error; it must end with `code`."""
        done = self.call(*arguments, **options)
        if done.returncode != code:
            raise Failure(f"`garboard {' '.join(map(str, arguments))}` ended with {done.returncode}, not {code}:\n"
                          f"{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def terminal(self, *arguments, around=(), **environment):
        """A command on a terminal."""
        return Terminal([*around, *self.argv(*arguments)], self.environment | {"TERM": "xterm"} | environment)

    def machines(self):
        return json.loads(self.run("ps", "-o", "json"))

    def wait(self, what, holds, seconds=PATIENCE):
        """Until `holds` answers something true, which is returned."""
        end = time.monotonic() + seconds
        while not (found := holds()):
            if time.monotonic() > end:
                raise Failure(f"{what}: not within {seconds} s; {self.circumstances()}")
            time.sleep(0.05)
        return found

    def circumstances(self):
        """For whoever reads of a failure that does not come again."""
        return f"`garboard ps` says {self.call('ps', '-o', 'json').stdout.strip()[-600:]}"

    def home(self, machine):
        """The directory of a machine that runs."""
        return self.runtime / machine

    def console(self, machine):
        """What its serial port has said."""
        try:
            return (self.home(machine) / "shared/serial0.log").read_bytes()
        except OSError:  # before a run, or between two
            return b""

    def recorded_runs(self, machine):
        """Directories of its runs, the oldest first."""
        runs = self.state / "records" / machine
        return sorted(runs.iterdir()) if runs.exists() else []

    def ended(self, machine):
        """The end of the last run as its record has it."""
        self.wait(f"the end of {machine}", lambda: not self.home(machine).exists())
        return json.loads((self.recorded_runs(machine)[-1] / "journal.json").read_text())["ended"]

    def expect_clean(self, seconds=30):
        """Nothing may be left of these machines; what ends last ends shortly after the command that asked."""
        end = time.monotonic() + seconds
        while left := {thing for thing in leftovers(str(self.directory)) - self.before if self.is_ours(thing)}:
            if time.monotonic() > end:
                raise Failure("left behind:\n" + "\n".join(f"  {thing}" for thing in sorted(left)))
            time.sleep(0.1)

    def is_ours(self, thing):
        kind, _, name = thing.partition(" ")
        uids = [str(uuid.uuid5(IDENTITY_NAMESPACE, machine)) for machine in self.started]
        if kind == "link":
            return any(link_of(uid) in name for uid in uids)
        if kind == "nft":
            return any(uid in name for uid in uids)
        if kind == "cgroup":
            return any(machine.replace("/", "_") in name for machine in self.started)
        return str(self.directory) in name or kind == "process"

    def stop_everything(self):
        """After a failure: by force, whatever state things are in."""
        for machine in self.started:
            self.call("stop", "--force", machine, seconds=60)


def link_of(uid):
    """The host's link of a machine: FNV-1a of 64 bits, as net/src/names.rs has it."""
    fingerprint = 0xCBF29CE484222325
    for byte in uid.encode():
        fingerprint = ((fingerprint ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"gb{fingerprint >> 12:013x}"


def process_with(mark):
    """The process that was started with a word that begins with `mark`, or None."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(mark.encode()) for word in words):
            return int(process.name)
    return None


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
