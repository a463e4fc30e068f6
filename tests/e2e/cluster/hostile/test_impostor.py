"""Who has taken over the node agent of node-2, or has its token, at the controllers."""

import contextlib
import functools
from collections.abc import Callable

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, NODE_2
from garboard_e2e.hostile.account import Account
from garboard_e2e.hostile.impostor import Impostor, Refused, token_of
from garboard_e2e.outcome import Failure

REASON = "\x1b[31m\r\nforged by the agent of another node"


def test_it_is_asked_for_machines_of_its_own_node_alone_and_forgotten_when_it_leaves(
    kube: Kube, alice: Account, bob: Account, answering: str, note: Callable[[str], None]
) -> None:
    token = token_of(kube, kube.agent_of(NODE_2))
    with contextlib.ExitStack() as connections:
        every = [
            connections.enter_context(Impostor(pod["status"]["podIP"], token, REASON)) for pod in kube.controllers()
        ]
        kube.ask_until("controllers that use the connection", lambda: all(each.is_used for each in every))
        # On node-1.
        alice.types(answering)
        alice.pauses(answering)
        assert [each.asked for each in every] == [0] * len(every), "it was asked for a machine of another node"
        # On its own node it can say what it likes, and no more than that.
        answer = bob.refused("beside", "console")
        assert answer.status == 409 and "\\u{1b}[31m\\r\\nforged" in answer.message, answer
        assert answer.message.isprintable() and sum(each.asked for each in every) == 1
    # The agent itself is still connected, and is asked again.
    note(f"{bob.types('beside'):.2f} s for a keystroke afterwards")


def is_refused(address: str, token: str) -> bool:
    """Whether a controller that is shown a token takes nobody for an agent."""
    try:
        with Impostor(address, token, REASON):
            return False
    except Refused as refused:
        answer = str(refused)
        assert "401" in answer and "the token is not valid for garboard-controller" in answer, answer
        return True


def answers(account: Account, machine: str) -> bool:
    with contextlib.suppress(Failure):
        account.types(machine)
        return True
    return False


def test_the_token_of_an_agents_pod_that_is_gone_is_good_for_nothing(
    kube: Kube, alice: Account, bob: Account, answering: str
) -> None:
    gone = kube.agent_of(NODE_2)
    token = token_of(kube, gone)
    kube.kubectl("delete", f"pod/{gone['metadata']['name']}", "--grace-period=1", namespace=INSTALLED_IN)
    for pod in kube.controllers():
        # API servers remember for ten seconds what they have found of a token.
        kube.ask_until("the refusal of its token", functools.partial(is_refused, pod["status"]["podIP"], token))
    kube.ask_until("the next agent", lambda: answers(bob, "beside"))
    alice.types(answering)
