"""Pods of a tenant at the ports of the controllers. Nothing keeps them from these here: this cluster's network follows
no NetworkPolicy."""

from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, Object
from garboard_e2e.hostile.account import Account
from garboard_e2e.hostile.agent import NodeAgent
from garboard_e2e.hostile.attackers import MEETING, Attackers, manifest

# So many that they need more handshakes than a controller makes at once (AT_ONCE, controller/src/nodes/handshakes.rs),
# with the 64 connections that each is given (PLACES in mod.rs there), and more connections than the subresource API has
# (PLACES, controller/src/subresources/limits.rs).
PODS, OF_AGENTS, OF_API_SERVERS = 5, 64, 860
CONNECTED = '"message":"connected to a controller"'


def addresses(kube: Kube) -> list[str]:
    return [str(pod["status"]["podIP"]) for pod in kube.controllers()]


def test_a_pod_that_says_it_is_an_agent_or_an_api_server_is_neither(
    kube: Kube, attackers: Attackers, alice: Account, answering: str, note: Callable[[str], None]
) -> None:
    def token(account: str, audience: str, *bound: str) -> str:
        return kube.kubectl("create", "token", account, f"--audience={audience}", *bound).strip()

    kube.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "garboard-node"}})
    bound = ("--bound-object-kind=Pod", "--bound-object-name=stranger")
    ours = "garboard-controller"
    tokens = [
        token("default", ours, *bound),
        token("garboard-node", ours),
        token("default", "https://kubernetes.default.svc", *bound),
    ]
    path = alice.path(answering, "pause")
    answered = [attackers.tries("stranger", "pretends", address, path, *tokens) for address in addresses(kube)]
    note(f"{answered} answers")
    logs = ["logs", "-l", "app.kubernetes.io/component=controller", "--tail=-1", "--prefix"]
    lines = kube.kubectl(*logs, namespace=INSTALLED_IN).splitlines()
    rejected = [line for line in lines if "a connection to the port of node agents was rejected" in line]
    for whose in ("system:serviceaccount:tenant:default", "system:serviceaccount:tenant:garboard-node"):
        assert any(whose in line for line in rejected), f"no controller says that it has rejected {whose}: {rejected}"
    assert not kube.condition("vmi", answering, "Paused"), "a header of a pod was believed"
    alice.types(answering)


class Holders:
    """Pods that hold connections to both ports of every controller, and open those again that are closed."""

    def __init__(self, attackers: Attackers) -> None:
        self.attackers, self.kube, self.meeting = attackers, attackers.kube, attackers.meet()
        self.names = [f"holder-{number}" for number in range(PODS)]

    def come(self) -> None:
        counts = [str(OF_AGENTS), str(OF_API_SERVERS), *addresses(self.kube)]
        self.kube.apply(*(self.pod(name, counts) for name in self.names))
        self.kube.ask_until("all of their connections", lambda: len(self.seen()) == PODS)

    @staticmethod
    def pod(name: str, counts: list[str]) -> Object:
        return manifest(name, None, attempt=["holds", MEETING, *counts])

    def seen(self) -> list[tuple[int, int]]:
        """Of each pod that is there: how many it holds at most, and how many were closed."""
        files = [each for each in self.meeting.glob("here.*") if not each.name.endswith(".new")]
        found = [file.read_text().split() for file in files]
        return [(int(most), int(closed)) for most, closed in found]

    def go(self) -> None:
        (self.meeting / "stop").touch()
        self.attackers.remove(*self.names)


@pytest.fixture(scope="module")
def holders(attackers: Attackers, alice: Account, answering: str) -> Iterator[Holders]:
    holders = Holders(attackers)
    try:
        holders.come()
        yield holders
    finally:
        # The tests after these are to have the controllers to themselves.
        holders.go()
    alice.types(answering)


def test_an_agent_connects_while_pods_hold_all_that_its_port_gives_them(
    agent: NodeAgent, holders: Holders, alice: Account, answering: str
) -> None:
    agent.renew()
    both = len(addresses(agent.kube))
    agent.kube.ask_until("its connections", lambda: agent.log().count(CONNECTED) >= both, seconds=30)
    alice.pauses(answering)
    alice.types(answering)


def test_an_api_server_opens_streams_while_pods_hold_all_places(
    holders: Holders, alice: Account, answering: str, note: Callable[[str], None]
) -> None:
    took = [alice.types(answering) for _ in range(6)]
    # Each is over after the ten seconds that a handshake may take, or as soon as its place is wanted.
    expected = PODS * OF_API_SERVERS // 2
    holders.kube.ask_until(
        "the end of what says nothing", lambda: sum(closed for _, closed in holders.seen()) > expected
    )
    most = sum(most for most, _ in holders.seen())
    note(f"{most} connections at most; keystrokes took {max(took):.2f} s at most")
    assert most > 2 * 4096, f"it was no flood: {most} connections"
