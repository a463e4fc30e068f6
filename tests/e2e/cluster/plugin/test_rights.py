"""Who may do little gets that as an answer, and sees what may be seen."""

import pytest

from garboard_e2e.cluster.person import Person

MAY_NOT = "you may not do this"


@pytest.mark.parametrize(
    "arguments",
    ["console --view", "vnc --proxy-only"],
    ids=lambda arguments: arguments.split()[0],
)
def test_a_viewer_gets_no_console_and_no_screen(person: Person, machine: str, bob: str, arguments: str) -> None:
    person.plugin.of(bob).refuses(4, f"{MAY_NOT}: .*pods/exec", *arguments.split(), machine)


SEEN = {"why": "nodes: you may not see them", "logs": "the machine is prepared", "explain": "memory-backend"}


@pytest.mark.parametrize("verb", SEEN)
def test_who_may_only_look_sees_what_a_machine_is(person: Person, machine: str, bob: str, verb: str) -> None:
    person.plugin.of(bob).prints(SEEN[verb], verb, machine)


def test_a_stranger_sees_nothing(person: Person, machine: str) -> None:
    person.plugin.of("eve").refuses(4, MAY_NOT, "why", machine)
