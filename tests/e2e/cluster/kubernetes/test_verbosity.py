"""How much controllers, node agents and supervisors log: as the settings and a label say, without a restart."""

import contextlib
import functools
import json
from collections.abc import Iterator
from typing import NamedTuple

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, NAMESPACE, NODE_1, NODE_2, SIDECAR, Object

CHANGED = "log levels changed"
# The number without any setting (log/src/lib.rs).
USUAL = 2
# What is logged for debugging alone, by the container in which it is, when a guest is paused.
DEBUGGING = {
    "controller": "reconciled",
    "node": "the instance has the status of the report",
    SIDECAR: "event applied",
}


class Program(NamedTuple):
    """A program with a log of its own."""

    container: str
    pod: str
    namespace: str

    def lines(self, kube: Kube) -> list[Object]:
        text = kube.kubectl("logs", self.pod, "-c", self.container, namespace=self.namespace)
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def changes(self, kube: Kube) -> list[Object]:
        """What was logged of each change of its levels."""
        return [fields for line in self.lines(kube) if (fields := line["fields"]).get("message") == CHANGED]

    def has_number(self, kube: Kube, number: int) -> None:
        """Waits until its levels are those of a number."""

        def holds() -> bool:
            changes = self.changes(kube)
            return bool(changes) and changes[-1]["verbosity"] == number

        kube.ask_until(f"levels of {number} in {self.container} of {self.pod}", holds)

    def process(self, kube: Kube) -> tuple[object, ...]:
        """Another one after each restart."""
        status = kube.get(f"pod/{self.pod}", namespace=self.namespace)["status"]
        statuses = status.get("initContainerStatuses", []) + status["containerStatuses"]
        return next((one["containerID"], one["restartCount"]) for one in statuses if one["name"] == self.container)


def controllers(kube: Kube) -> list[Program]:
    there = [pod["metadata"] for pod in kube.controllers() if "deletionTimestamp" not in pod["metadata"]]
    return [Program("controller", metadata["name"], INSTALLED_IN) for metadata in there]


def agent(kube: Kube, node: str) -> Program:
    return Program("node", kube.agent_of(node)["metadata"]["name"], INSTALLED_IN)


def supervisor(kube: Kube, name: str) -> Program:
    return Program(SIDECAR, kube.pod_name(name), NAMESPACE)


@contextlib.contextmanager
def verbosity(kube: Kube, **numbers: object) -> Iterator[None]:
    """These numbers for a while."""

    def write(written: Object | None) -> None:
        configuration = {"developerConfiguration": {"logVerbosity": written}}
        kube.patch("kubevirt/kubevirt", {"spec": {"configuration": configuration}}, namespace=INSTALLED_IN)

    write(numbers)
    try:
        yield
    finally:
        write(None)


def is_taken(kube: Kube, name: str, request: str) -> bool:
    return bool(kube.answer(name, request).get("answer") == "queued")


def is_paused_and_goes_on(kube: Kube, name: str) -> None:
    """Something that every part has to do with."""
    for request, wanted in (("pause", "True"), ("unpause", None)):
        kube.ask_until(f"{request} taken", functools.partial(is_taken, kube, name, request))
        kube.becomes("vmi", name, "Paused", wanted)
        kube.becomes("vm", name, "Paused", wanted)


def logs_for_debugging(kube: Kube, programs: list[Program], message: str) -> bool:
    """Whether one of them does: one of the controllers leads."""
    lines = [line for program in programs for line in program.lines(kube)]
    levels = {line["level"] for line in lines if line["fields"].get("message") == message}
    assert levels <= {"DEBUG"}, f"{message!r} is logged as {levels}"
    return bool(levels)


def is_changed(kube: Kube, program: Program, times: int) -> None:
    """Waits until its levels have been changed so often."""
    kube.ask_until(f"change {times} in {program}", lambda: len(program.changes(kube)) >= times)


def test_what_is_for_debugging_is_logged_while_the_settings_say_so_and_nothing_is_restarted(
    kube: Kube, pair: dict[str, str]
) -> None:
    programs = [*controllers(kube), agent(kube, pair["left"]), supervisor(kube, "left")]
    processes = [program.process(kube) for program in programs]
    before = [len(program.changes(kube)) for program in programs]
    with verbosity(kube, virtController=4, virtHandler=4, virtLauncher=4):
        for program, times in zip(programs, before, strict=True):
            is_changed(kube, program, times + 1)
        is_paused_and_goes_on(kube, "left")
        for container, message in DEBUGGING.items():
            of_part = [program for program in programs if program.container == container]
            kube.ask_until(f"{message!r} of {container}", functools.partial(logs_for_debugging, kube, of_part, message))
    for program, times in zip(programs, before, strict=True):
        is_changed(kube, program, times + 2)
    is_paused_and_goes_on(kube, "left")
    for program in programs:
        lines = program.lines(kube)
        last = max(index for index, line in enumerate(lines) if line["fields"].get("message") == CHANGED)
        late = [line for line in lines[last:] if line["level"] not in ("INFO", "WARN", "ERROR")]
        assert not late, f"{program} still logs {late[:3]}"
    assert [program.process(kube) for program in programs] == processes, "one was restarted"


def test_a_node_and_an_instance_have_numbers_of_their_own(kube: Kube, pair: dict[str, str]) -> None:
    left, right = supervisor(kube, "left"), supervisor(kube, "right")
    one, other = agent(kube, NODE_1), agent(kube, NODE_2)
    kube.kubectl("label", "vmi/left", "logVerbosity=4")
    try:
        with verbosity(kube, virtHandler=4, virtLauncher=6, nodeVerbosity={NODE_1: 6}):
            for program, number in ((one, 6), (other, 4), (right, 6), (left, 4)):
                program.has_number(kube, number)
            kube.kubectl("label", "vmi/left", "logVerbosity-")
            left.has_number(kube, 6)
    finally:
        kube.tried("label", "vmi/left", "logVerbosity-")
    for program in (one, other, left, right):
        program.has_number(kube, USUAL)


def test_a_label_that_is_no_number_is_refused(kube: Kube, pair: dict[str, str]) -> None:
    refused = kube.kubectl("label", "vmi/left", "logVerbosity=high", code=1)
    assert "metadata.labels" in refused and "no whole number" in refused, refused
