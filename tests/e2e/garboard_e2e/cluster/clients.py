"""Clients that are programs of their own, and print a line for each thing that they check."""

import dataclasses
import json
import pathlib
import subprocess
import sys
from collections.abc import Mapping

from ..outcome import Failure
from ..patience import PATIENCE
from ..places import REPOSITORY, SCRIPTS
from .names import NAMESPACE, Object


@dataclasses.dataclass(frozen=True)
class Client:
    """A program, with the arguments that it always begins with and those that say where it plays."""

    program: tuple[str, ...]
    place: tuple[str, ...]
    patience: tuple[str, ...]

    @classmethod
    def of_go(cls) -> "Client":
        """That of tests/client-go, built the first time."""
        made = subprocess.run([SCRIPTS / "fetch-client-go"], check=True, stdout=subprocess.PIPE, text=True)
        program = str(pathlib.Path(made.stdout.strip()) / "client-go")
        return cls((program,), (f"--namespace={NAMESPACE}",), (f"--patience={PATIENCE}",))

    @classmethod
    def of_python(cls) -> "Client":
        """garboard_e2e/python_client.py."""
        return cls((sys.executable, "-m", "garboard_e2e.python_client"), (NAMESPACE,), (str(PATIENCE),))

    def run(self, environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
        """Not in a directory of tests: one of them is called as a package of a client."""
        library = {"PYTHONPATH": str(REPOSITORY / "tests/e2e")}
        command = [*self.program, *arguments]
        return subprocess.run(command, env={**environment, **library}, cwd="/", capture_output=True, text=True)

    def checks(self, environment: Mapping[str, str]) -> list[str]:
        """The names of all that it checks."""
        listed = self.run(environment, "--list")
        if listed.returncode or not listed.stdout:
            raise Failure(f"`{' '.join(self.program)} --list` ended with {listed.returncode}: {listed.stderr[-1500:]}")
        return listed.stdout.splitlines()

    def play(self, machine: Object, directory: pathlib.Path, environment: Mapping[str, str]) -> str:
        """With a machine: it has to print `ok` for each check, and nothing else. How many there were."""
        manifest = directory / "machine.json"
        manifest.write_text(json.dumps(machine))
        names = self.checks(environment)
        done = self.run(environment, *self.place, str(manifest), *self.patience)
        printed = done.stdout.splitlines()
        if printed != [f"ok {name}" for name in names] or done.returncode:
            wrong = [line for line in printed if not line.startswith("ok ")]
            missing = [name for name in names if f"ok {name}" not in printed]
            end = f"{self.program[-1]} ended with {done.returncode}"
            raise Failure(f"{end}; it printed {wrong}, and no `ok` for {missing}: {done.stderr[-1500:]}")
        return f"{len(printed)} checks"
