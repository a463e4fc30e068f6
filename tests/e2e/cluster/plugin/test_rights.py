"""Who may do little gets that as an answer, and sees what may be seen."""

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.person import Person
from garboard_e2e.patience import PATIENCE
from garboard_e2e.terminal import DETACH

MAY_NOT = "you may not do this"


NEEDED = {
    "console": "virtualmachineinstances/console",
    "console --take-over": "virtualmachineinstances/console",
    "console --view": "virtualmachineinstances/console",
    "vnc --proxy-only": "virtualmachineinstances/vnc",
    "qmp": "virtualmachineinstances/qmp-read",
    "qmp --allow-write": "virtualmachineinstances/qmp-write",
    "qmp --allow-dangerous": "virtualmachineinstances/qmp-dangerous",
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
    editor.refuses(4, f"{MAY_NOT}: .*pods", "logs", machine)
    editor.refuses(4, f"{MAY_NOT}: .*virtualmachineinstances/logs", "logs", machine, "--part", "qmp")
    editor.refuses(4, f"{MAY_NOT}: .*virtualmachineinstances/qmp-read", "qmp", machine, "query-status")


def bind(kube: Kube, user: str, *roles: str) -> str:
    for role in roles:
        binding = f"{user}-{role.replace(':', '-')}"
        kube.kubectl("delete", "rolebinding", binding, "--ignore-not-found")
        kube.kubectl("create", "rolebinding", binding, f"--clusterrole={role}", f"--user={user}")
    return user


@pytest.fixture
def quentin(kube: Kube, installed: None) -> str:
    """A user who may look at machines and send queries, and has no right to any pod."""
    return bind(kube, "quentin", "kubevirt.io:view", "garboard-qmp-read")


@pytest.fixture
def iris(kube: Kube, installed: None) -> str:
    """A user who may edit machines and read their record, and has no right to any pod."""
    return bind(kube, "iris", "kubevirt.io:edit", "garboard-inspect")


def test_queries_need_no_right_to_a_pod_and_changes_need_their_own(
    kube: Kube, person: Person, machine: str, quentin: str
) -> None:
    reader = person.plugin.of(quentin)
    query = ("qmp", machine, "query-status")
    kube.ask_until("the right to queries", lambda: '"status": "running"' in reader.call(*query).stdout)
    reader.refuses(4, f"{MAY_NOT}: .*virtualmachineinstances/qmp-write", "qmp", machine, "--allow-write", "stop")
    reader.refuses(4, f"{MAY_NOT}: .*qmp-dangerous", "qmp", machine, "--allow-dangerous", "quit")
    reader.refuses(4, f"{MAY_NOT}: .*virtualmachineinstances/logs", "logs", machine, "--part", "qmp")
    reader.refuses(4, f"{MAY_NOT}: .*virtualmachineinstances/plan", "logs", machine, "--part", "argv")


PARTS = {
    "argv": "qemu-system-x86_64",
    "plan": '"argv":',
    "qmp": '"kind":"command"',
    "qemu": "",
    "serial": "garboard-hello: ",
}


def test_an_editor_without_pods_exec_explains_what_runs_and_reads_its_record(
    kube: Kube, person: Person, machine: str, iris: str
) -> None:
    for right in (("create", "pods/exec"), ("list", "pods")):
        kube.kubectl("auth", "can-i", *right, f"--as={iris}", code=1)
    editor = person.plugin.of(iris)
    kube.ask_until("the right to its plan", lambda: editor.call("logs", machine, "--part", "plan").returncode == 0)
    explained = editor.prints(f"# Planned for node {person.node_of(machine)}\n", "explain", machine)
    assert explained == person.plugin.run("explain", machine)
    editor.prints("the guest finds the machine that it had", "explain", "--against-running", machine)
    editor.prints("<domain type=", "explain", "--format", "domain-xml", machine)
    for part, pattern in PARTS.items():
        editor.prints(pattern, "logs", machine, "--part", part)
    editor.refuses(3, r"no exit\.json yet", "logs", machine, "--part", "exit")
    # What has no subresource.
    editor.refuses(4, f"{MAY_NOT}: .*pods", "logs", machine)


def test_who_may_not_read_a_plan_learns_that_another_one_is_shown(person: Person, machine: str, bob: str) -> None:
    viewer = person.plugin.of(bob)
    plain = "# Planned for a plain node, because the plan that runs on node .*: "
    viewer.prints(f"{plain}{MAY_NOT}: .*virtualmachineinstances/plan", "explain", machine)
    shown = viewer.call("explain", machine, "-o", "json")
    assert shown.returncode == 0 and "garboard: planned for a plain node, because" in shown.stderr, shown
    viewer.refuses(4, f"{MAY_NOT}: .*virtualmachineinstances/plan", "explain", "--against-running", machine)
    viewer.refuses(4, f"{MAY_NOT}: .*virtualmachineinstances/logs", "logs", machine, "--part", "serial")


SEEN = {"why": "nodes: you may not see them", "logs": "the machine is prepared", "explain": "memory-backend"}


@pytest.mark.parametrize("verb", SEEN)
def test_who_may_only_look_sees_what_a_machine_is(person: Person, machine: str, bob: str, verb: str) -> None:
    person.plugin.of(bob).prints(SEEN[verb], verb, machine)


def test_a_stranger_sees_nothing(person: Person, machine: str) -> None:
    person.plugin.of("eve").refuses(4, MAY_NOT, "why", machine)
