"""The command on this host, as every check on a bare host uses it: directories of its own, so that checks, and whatever
else runs here, do not meet; and what its machines leave behind."""

import contextlib
import json
import os
import pathlib
import random
import socket
import stat
import subprocess
import time
import uuid

from terminal import Failure, Terminal, leftovers

CACHE = pathlib.Path(os.environ.get("GARBOARD_CACHE", "/var/cache/garboard-test"))
EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
# From which the command makes the UID of a machine whose manifest has none (cli/src/subject.rs).
IDENTITY_NAMESPACE = uuid.UUID("67617262-6f61-7264-8000-000000000001")
# User IDs of machines, where they are all mapped (cli/src/identity.rs); the group has the same number.
MACHINE_IDS = range(2_000_000_000, 2_000_065_536)
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
            return (self.home(machine) / "supervisor/serial0.log").read_bytes()
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

    def expect_private(self):
        """Nothing of machines and their records may be read by other users; directories may be passed through."""
        for top in (self.runtime, self.state):
            for path in (top, *top.rglob("*")):
                if fault := fault_of(path):
                    raise Failure(f"other users may look into {path}: {fault}")

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


def fault_of(path):
    """What others may do with a file or directory of ours that they should not."""
    try:
        found = path.lstat()
    except FileNotFoundError:  # it went meanwhile
        return None
    # A network namespace is the kernel's, under a name of ours, and says nothing to who may not enter it.
    if stat.S_ISLNK(found.st_mode) or path.name == "netns":
        return None
    # A machine's own group, which nobody else is in, may look at what it was started with.
    own_group = found.st_gid in MACHINE_IDS
    others = found.st_mode & (0o066 if stat.S_ISDIR(found.st_mode) else 0o077) & ~(0o070 if own_group else 0)
    return stat.filemode(found.st_mode) if others else None


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
    """A port that nothing else takes before it is used, and while its machine is between two runs: below those that the
    kernel gives to connections and to who does not care, and another one each time."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(first // 2, first - 3000), 1000):
        with contextlib.suppress(OSError), socket.socket() as sock:
            if port not in given_ports:
                sock.bind(("127.0.0.1", port))
                given_ports.add(port)
                return port
    raise Failure("no port is free")


given_ports = set()
