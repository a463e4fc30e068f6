"""A person with `kubectl garboard` and `garboard cluster`, which work on a test cluster."""

import copy
import dataclasses
import json
import os
import pathlib
import re
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from ..outcome import Failure
from ..patience import PATIENCE
from ..places import EXAMPLES
from ..terminal import Terminal
from .kube import PROMPT, Kube
from .names import NAMESPACE, Object
from .objects import TCG

# For options that ask how long to wait.
SECONDS = str(PATIENCE)


@dataclasses.dataclass(frozen=True)
class Tool:
    """A command with the arguments that it always begins with."""

    environment: Mapping[str, str]
    prefix: tuple[str, ...]

    def of(self, user: str) -> "Tool":
        """The same, used by another user."""
        return Tool(self.environment, (*self.prefix, "--as", user))

    def argv(self, *arguments: str) -> list[str]:
        return [*self.prefix, *arguments]

    def call(self, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """The ended command, however it ends."""
        return subprocess.run(
            self.argv(*arguments),
            env=self.environment,
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE,
        )

    def begin(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """A command that goes on beside the test."""
        return subprocess.Popen(self.argv(*arguments), env=self.environment, text=True, **options)

    def terminal(self, *arguments: str) -> Terminal:
        return Terminal(self.argv(*arguments), self.environment)

    def run(self, *arguments: str) -> str:
        """What it prints; it must succeed."""
        done = self.call(*arguments)
        if done.returncode != 0:
            raise Failure(
                f"`{' '.join(self.argv(*arguments))}` ended with {done.returncode}: {done.stdout}{done.stderr}"
            )
        return done.stdout

    def prints(self, pattern: str, *arguments: str) -> str:
        """The command succeeds and prints the pattern."""
        output = self.run(*arguments)
        if not re.search(pattern, output):
            raise Failure(f"`{' '.join(self.argv(*arguments))}` did not print {pattern!r}: {output}")
        return output

    def refuses(self, code: int, pattern: str, *arguments: str) -> None:
        """The command ends with the code and an error that has the pattern."""
        expect_refusal(self.call(*arguments), code, pattern)


def expect_refusal(done: subprocess.CompletedProcess[str], code: int, pattern: str) -> None:
    output = done.stdout + done.stderr
    if done.returncode != code:
        raise Failure(f"ended with {done.returncode} instead of {code}: {output}")
    if not re.search(pattern, output):
        raise Failure(f"did not print {pattern!r}: {output}")


@dataclasses.dataclass(frozen=True)
class Before:
    """The output when nothing was installed."""

    status: subprocess.CompletedProcess[str]
    why: subprocess.CompletedProcess[str]


class Person:
    """The tools, as kubectl finds its plug-in: on PATH, by its name."""

    def __init__(self, kube: Kube, garboard: pathlib.Path, directory: pathlib.Path) -> None:
        self.kube, self.command, self.programs = kube, garboard.absolute(), directory / "bin"
        self.programs.mkdir()
        (self.programs / "garboard").symlink_to(self.command)
        (self.programs / "kubectl-garboard").symlink_to(self.command)
        (self.programs / "kubectl").symlink_to(kube.tool)
        environment = kube.environment | {"PATH": f"{self.programs}:{kube.environment['PATH']}", "TERM": "dumb"}
        self.cluster = Tool(environment, ("garboard", "cluster"))
        self.plugin = Tool(environment, ("kubectl", "garboard", "-n", NAMESPACE))
        self.kubectl = Tool(environment, ("kubectl", "-n", NAMESPACE))
        self._example: Object | None = None

    def install(self, *options: str) -> None:
        self.cluster.run("install", *options, "--timeout", SECONDS)

    # ---- machines

    def example(self, name: str, strategy: str, change: Callable[[Object], object] = lambda machine: None) -> Object:
        """examples/vm-hello.yaml with another name and strategy; `change` is given what its template specifies."""
        if self._example is None:
            hello = str(EXAMPLES / "vm-hello.yaml")
            self._example = json.loads(self.kubectl.run("create", "--dry-run=client", "-o", "json", "-f", hello))
        made = copy.deepcopy(self._example)
        made["metadata"] = {"name": name, "namespace": NAMESPACE}
        made["spec"]["runStrategy"] = strategy
        change(made["spec"]["template"]["spec"])
        return made

    def apply(self, name: str, strategy: str, change: Callable[[Object], object] = lambda machine: None) -> None:
        """A Linux guest under a KVM that interprets guest code takes hours to boot: it asks for TCG."""
        machine = self.example(name, strategy, change)
        machine["spec"]["template"]["metadata"] = {"annotations": dict(TCG)}
        self.kube.apply(machine)

    def delete(self, name: str) -> None:
        """A VirtualMachine, whose instance may go later."""
        self.kube.kubectl("delete", f"vm/{name}", "--ignore-not-found")

    def delete_whole(self, name: str) -> None:
        """A VirtualMachine, and waits for the end of its instance."""
        self.delete(name)
        self.kube.ask_until(f"the end of the instance {name}", lambda: not self.field(f"vmi/{name}", "metadata", "uid"))

    def field(self, what: str, *path: str) -> Any:
        """A field of an object in the namespace of machines; None where one of both is not there."""
        found = self.kube.tried("get", what, "-o", "json")
        value: Any = json.loads(found) if found else {}
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def await_phase(self, name: str, wanted: str = "Running") -> None:
        self.kube.ask_until(
            f"the phase {wanted} of {name}", lambda: self.field(f"vmi/{name}", "status", "phase") == wanted
        )

    def await_boot(self, name: str) -> None:
        """Until its guest has a shell, and reacts to its power button (Kube.has_shell)."""
        printed = ("logs", name, "--part", "serial")
        self.kube.ask_until(f"the shell of {name}", lambda: PROMPT in self.plugin.call(*printed).stdout)

    def await_field(self, what: str, wanted: str, *path: str) -> None:
        self.kube.ask_until(f"{wanted} of {what}", lambda: self.field(what, *path) == wanted)

    def node_of(self, name: str) -> str:
        return str(self.field(f"vmi/{name}", "status", "nodeName"))

    def pods_of(self, name: str) -> list[Object]:
        return self.kube.items("pods", "-l", f"vm.kubevirt.io/name={name}")

    # ---- why

    def why_is(self, name: str, verdict: str) -> bool:
        done = self.plugin.call("why", name, "-o", "json")
        return done.returncode == 0 and json.loads(done.stdout)["verdict"] == verdict

    def await_verdict(self, name: str, verdict: str) -> None:
        self.kube.ask_until(f"the verdict {verdict} of {name}", lambda: self.why_is(name, verdict))

    def why(self, name: str, verdict: str, pattern: str) -> None:
        """What `why` prints of a machine, once it has come to that."""
        self.await_verdict(name, verdict)
        self.plugin.prints(pattern, "why", name)
        self.record(name, verdict)

    def record(self, name: str, verdict: str) -> None:
        """Keeps what it came from in the directory GARBOARD_SITUATIONS, as tests/situations has it."""
        if place := os.environ.get("GARBOARD_SITUATIONS"):
            pathlib.Path(place, f"{verdict}.{name}.json").write_text(self.plugin.run("why", name, "-o", "facts"))
