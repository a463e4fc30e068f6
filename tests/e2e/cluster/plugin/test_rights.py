"""Who may do little gets that as an answer, and sees what may be seen."""

import pytest

from garboard_e2e.cluster.person import Person
from garboard_e2e.patience import PATIENCE
from garboard_e2e.terminal import DETACH

MAY_NOT = "you may not do this"


NEEDED = {
    "console": "virtualmachineinstances/console",
    "console --take-over": "virtualmachineinstances/console",
    "console --view": "virtualmachineinstances/console",
    "vnc --proxy-only": "virtualmachineinstances/vnc",
    "qmp": "pods/exec",
}


@pytest.mark.parametrize("arguments", NEEDED)
def test_a_viewer_gets_no_console_and_no_screen(person: Person, machine: str, bob: str, arguments: str) -> None:
    person.plugin.of(bob).refuses(4, f"{MAY_NOT}: .*{NEEDED[arguments]}", *arguments.split(), machine)


def test_an_editor_looks_into_a_guest_and_not_into_its_pod(person: Person, machine: str, ada: str) -> None:
    editor = person.plugin.of(ada)
    terminal = editor.terminal("console", machine)
    terminal.expect("hello", PATIENCE)
    looks_on = editor.terminal("console", machine, "--view")
    looks_on.expect("hello", PATIENCE)
    for each in (terminal, looks_on):
        each.type(DETACH)
        each.expect_end(PATIENCE)
    editor.refuses(4, f"{MAY_NOT}: .*pods", "qmp", machine, "query-status")


SEEN = {"why": "nodes: you may not see them", "logs": "the machine is prepared", "explain": "memory-backend"}


@pytest.mark.parametrize("verb", SEEN)
def test_who_may_only_look_sees_what_a_machine_is(person: Person, machine: str, bob: str, verb: str) -> None:
    person.plugin.of(bob).prints(SEEN[verb], verb, machine)


def test_a_stranger_sees_nothing(person: Person, machine: str) -> None:
    person.plugin.of("eve").refuses(4, MAY_NOT, "why", machine)
