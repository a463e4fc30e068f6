"""The command on this host, as every test on a bare host uses it: directories of its own, so that tests, and all
else that runs here, do not meet; and what its machines leave behind."""

import json
import os
import pathlib
import re
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar

from . import names
from .leftovers import fault_of, leftovers, link_of, within
from .outcome import Failure
from .patience import PATIENCE, wait_until
from .terminal import Terminal

# From which the command makes the UID of a machine whose manifest has none (cli/src/subject.rs).
IDENTITY_NAMESPACE = uuid.UUID("67617262-6f61-7264-8000-000000000001")

Found = TypeVar("Found")
Argument = str | os.PathLike[str]


class Garboard:
    """The command, and everything that is its own. Machines are named as the command takes them, NAMESPACE/NAME."""

    working_directory: str | None = None

    def __init__(self, programs: pathlib.Path, directory: pathlib.Path, machines: Iterable[str] = ()) -> None:
        self.programs, self.directory = programs.absolute(), directory
        self.garboard = str(self.programs / names.COMMAND)
        self.runtime, self.state = self.directory / "run", self.directory / "state"
        own = {"GARBOARD_RUNTIME_DIR": str(self.runtime), "GARBOARD_STATE_DIR": str(self.state), "TERM": "dumb"}
        self.environment: dict[str, str] = dict(os.environ) | own
        # Those that were or will be started here: what is left of others is theirs.
        self.started = set(machines)
        self.before = leftovers(str(directory))

    def argv(self, *arguments: Argument) -> list[str]:
        return [self.garboard, *map(str, arguments)]

    def call(
        self, *arguments: Argument, around: Sequence[str] = (), seconds: float = PATIENCE, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """The ended command; `around` are arguments in front of it, of a program that executes it."""
        return subprocess.run(
            [*around, *self.argv(*arguments)],
            env=self.environment | environment,
            text=True,
            capture_output=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            cwd=self.working_directory,
        )

    def run(self, *arguments: Argument, code: int = 0, **options: Any) -> str:
        """What a command prints, standard output before standard error; it must end with `code`."""
        done = self.call(*arguments, **options)
        if done.returncode != code:
            raise Failure(
                f"`garboard {' '.join(map(str, arguments))}` ended with {done.returncode}, not {code}:\n"
                f"{done.stdout}{done.stderr}"
            )
        return done.stdout + done.stderr

    def commands(self) -> list[str]:
        """Every command, as `--help` lists them."""
        listed = self.run("--help").partition("Commands:")[2].partition("Options:")[0]
        return [name for name in re.findall(r"^  ([a-z-]+) ", listed, re.M) if name != "help"]

    def begin(self, *arguments: Argument, stderr: int = subprocess.STDOUT) -> subprocess.Popen[str]:
        """A command that goes on beside the test; standard output has all that it prints, unless `stderr` differs."""
        return subprocess.Popen(
            self.argv(*arguments),
            env=self.environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=self.working_directory,
        )

    def terminal(self, *arguments: Argument, around: Sequence[str] = (), **environment: str) -> Terminal:
        """A command on a terminal."""
        return Terminal([*around, *self.argv(*arguments)], self.environment | {"TERM": "xterm"} | environment)

    def json(self, *arguments: Argument) -> Any:
        """What a command that prints JSON prints."""
        return json.loads(self.run(*arguments))

    def machines(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.json("ps", "-o", "json")
        return rows

    def wait(self, what: str, holds: Callable[[], Found | Literal[False] | None], seconds: float = PATIENCE) -> Found:
        """Until `holds` answers something true, which is returned."""
        return wait_until(what, holds, seconds, self.circumstances)

    def circumstances(self) -> str:
        """For a reader of a failure that does not come again."""
        return f"`garboard ps` prints {self.call('ps', '-o', 'json').stdout.strip()[-600:]}"

    def home(self, machine: str) -> pathlib.Path:
        """The directory of a machine that runs."""
        return self.runtime / machine

    def console(self, machine: str) -> bytes:
        """The output of its serial port."""
        try:
            return (self.home(machine) / "supervisor/serial0.log").read_bytes()
        except OSError:  # before a run, or between two
            return b""

    def recorded_runs(self, machine: str) -> list[pathlib.Path]:
        """Directories of its runs, the oldest first."""
        runs = self.state / "records" / machine
        return sorted(runs.iterdir()) if runs.exists() else []

    def ended(self, machine: str) -> dict[str, Any]:
        """The end of the last run as its record has it."""
        self.wait(f"the end of {machine}", lambda: not self.home(machine).exists())
        ended: dict[str, Any] = json.loads((self.recorded_runs(machine)[-1] / "journal.json").read_text())["ended"]
        return ended

    def expect_private(self) -> None:
        """Nothing of machines and their records may be read by other users; directories may be passed through."""
        for top in (self.runtime, self.state):
            for path in within(top):
                if fault := fault_of(path):
                    raise Failure(f"other users may look into {path}: {fault}")

    def expect_clean(self, seconds: float = 30) -> None:
        """Nothing may be left of these machines; what ends last ends shortly after the command that asked."""
        end = time.monotonic() + seconds
        while left := {thing for thing in leftovers(str(self.directory)) - self.before if self.is_ours(thing)}:
            if time.monotonic() > end:
                raise Failure("left behind:\n" + "\n".join(f"  {thing}" for thing in sorted(left)))
            time.sleep(0.1)

    def is_ours(self, thing: str) -> bool:
        kind, _, name = thing.partition(" ")
        uids = [str(uuid.uuid5(IDENTITY_NAMESPACE, machine)) for machine in self.started]
        if kind == "link":
            return any(link_of(uid) in name for uid in uids)
        if kind == "nft":
            return any(uid in name for uid in uids)
        if kind == "cgroup":
            return any(machine.replace("/", "_") in name for machine in self.started)
        return str(self.directory) in name or kind == "process"

    def stop_everything(self) -> None:
        """After a failure: by force, in every state."""
        for machine in self.started:
            self.call("stop", "--force", machine, seconds=60)
