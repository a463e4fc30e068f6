"""A run whose pod is gone: `logs` and `why` read its record, on a cluster and from a file."""

import pathlib
from collections.abc import Iterator

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.person import Person

BRIEF = "brief"


@pytest.fixture(scope="module")
def over(kube: Kube, person: Person, hello_runs: None) -> Iterator[str]:
    """The name of a machine whose guest was up, and that has no pod any more."""
    person.apply(BRIEF, "Manual")
    person.plugin.run("start", BRIEF)
    person.await_phase(BRIEF)
    person.await_boot(BRIEF)
    person.plugin.run("stop", BRIEF)
    kube.ask_until("the record of the run", lambda: person.plugin.call("logs", BRIEF, "--last").returncode == 0)
    kube.ask_until("the end of its pod", lambda: not person.pods_of(BRIEF))
    yield BRIEF
    person.delete(BRIEF)


def test_logs_have_the_record_when_the_pod_is_gone(person: Person, over: str) -> None:
    person.plugin.prints("(StoppedGracefully|ForceStopped|GracePeriodExceeded): ", "logs", over, "--last")
    person.plugin.prints("machinerun/brief-", "logs", over)
    person.plugin.prints("qemu-system-x86_64", "logs", over, "--last", "--part", "argv")
    person.plugin.prints('"kind":"command"', "logs", over, "--last", "--part", "qmp")
    person.plugin.prints("garboard-hello: ", "logs", over, "--last", "--part", "serial")
    person.plugin.refuses(3, "no plan but its digest", "logs", over, "--last", "--part", "plan")
    person.plugin.refuses(3, "no record of a run", "logs", "hello-of-nobody", "--last")


def test_a_record_in_a_file_needs_no_cluster(person: Person, over: str, tmp_path: pathlib.Path) -> None:
    listed = person.kubectl.run("get", "machineruns", f"--field-selector=spec.machine={over}", "-o", "json")
    file = tmp_path / "runs.json"
    file.write_text(listed)
    offline = ["--server=https://127.0.0.1:1", "logs", "--record", str(file)]
    person.plugin.prints("machinerun/brief-", *offline)
    person.plugin.prints("garboard-hello: ", *offline, "--part", "serial")
    file.write_text("{}")
    person.plugin.refuses(2, "no MachineRun", *offline)


def test_why_says_how_the_last_run_ended(person: Person, over: str, tmp_path: pathlib.Path) -> None:
    person.why(over, "halted", "its last run, .* ago: ")
    facts = tmp_path / "facts.json"
    facts.write_text(person.plugin.run("why", over, "-o", "facts"))
    assert "garboard-hello" not in facts.read_text(), "what a guest printed is in the record itself"
    person.plugin.prints("its last run, .* ago: ", "why", "--facts", str(facts))


def test_who_may_only_look_at_machines_reads_no_record(person: Person, over: str, bob: str) -> None:
    viewer = person.plugin.of(bob)
    viewer.refuses(4, "you may not do this", "logs", over, "--last")
    viewer.prints("halted|not to run|nothing has started it", "why", over)
