"""What callers claim to be, and what they ask for."""

import os
import socket
from typing import Any

from .agent import BRIDGE, ESCAPES, MASQUERADE, Agent, Request, line_of, plumb, reason, report, sockets
from .answers import asked, expect, final_answer
from .descriptors import own_network

# Links that every network namespace has where the kernel has these drivers built in, and the pod's way out.
USUAL_LINKS = {"eth0", "sit0", "tunl0", "ip6tnl0", "gre0", "gretap0", "erspan0", "dummy0"}


def stranger() -> None:
    """A pod that is no launcher: the same refusal for every request."""
    requests: dict[str, Request | None] = {"sends nothing": None, "plumbs": plumb(), "reports": report("x")}
    for what, request in requests.items():
        agent = Agent()
        answered = agent.answer() if request is None else agent.ask(request, [own_network()])
        expect(what, answered, "no launcher pod", "closed")


def lies(uid: str) -> None:
    """A pod that looks like a launcher of the VMI `uid`, and claims other things."""
    other = "99999999-2222-3333-4444-555555555555"
    expect("another's machine", asked(report(other)), "another VirtualMachineInstance")
    expect("another's, escaped", asked(report(other + ESCAPES)), "another VirtualMachineInstance")
    expect("a volume", asked({"ask": "volume", "name": "../../etc/shadow"}), "opens its volumes itself")
    expect("no namespace", asked(plumb()), "has to come with the request")
    escaped = asked(plumb(mac=ESCAPES * 5000), [own_network()], closed=True)
    expect("a long text", escaped, "no MAC address", "not a MAC", "closed")
    expect("queues", asked(plumb(queues=100000), [own_network()]), "not the number of queues")
    many = plumb()
    many["interfaces"] *= 1000
    expect("interfaces", asked(many, [own_network()]), "more than any machine has")
    expect("nonsense", asked({"ask": "everything"}, closed=True), "closed")
    expect("no request", asked(ESCAPES, closed=True), "closed")
    # Taken, and not believed: the test looks at the VMI.
    ended = {"cause": {"cause": "guestPanic"}, "sentence": "forged" + ESCAPES, "report": None, "atMs": 1}
    statuses: list[tuple[str, dict[str, Any]]] = [("Running", {}), ("Failed", {"ended": ended})]
    for phase, changes in statuses:
        asked(report(uid, 2**62, phase=phase, **changes), closed=True)


def unordered() -> None:
    """A pod that looks like a launcher, and for which the controller ordered nothing."""
    bindings: list[dict[str, Any]] = [MASQUERADE, BRIDGE]
    for binding in bindings:
        for request in [plumb(binding=binding), sockets(binding=binding)]:
            answered = asked(request, [own_network()])
            expect(f"{request['ask']}, {binding['binding']}", answered, "this pod has no order")
    nothing_is_made()


def more() -> None:
    """A pod that looks like a launcher, and asks for more than its order has."""
    expect("raw frames of the pod's network", asked(plumb(binding=BRIDGE), [own_network()]), "another binding")
    expect("an interface of its own", asked(plumb(name="other"), [own_network()]), "no interface `other`")
    expect("256 queues", asked(plumb(queues=256), [own_network()]), "not the number of queues")
    twice = plumb()
    twice["interfaces"] *= 2
    expect("two of it", asked(twice, [own_network()]), "asked for twice")
    nothing_is_made()
    # As ordered it is made, whatever name is given; kept, it is not made again under another.
    kept: list[int] = []
    expect("as ordered, under a name of its own", final_answer(lambda: keeps(plumb(tap="mine"), kept)), "plumbed")
    expect("and the name is the order's", " ".join(sorted(links())), "k6t-eth0 lo tap0")
    for tap in ["tap0", "mine", "tap1"]:
        answered = asked(plumb(tap=tap), [own_network()])
        expect(f"again as {tap}, with the first one kept", answered, "held", "takes one", "exists already")
    expect("still one tap", " ".join(sorted(links())), "k6t-eth0 lo tap0")
    for descriptor in kept:
        os.close(descriptor)


def keeps(request: Request, kept: list[int]) -> str:
    """The answer; what came with it is in `kept`."""
    agent = Agent()
    agent.send(line_of(request), [own_network()])
    line, descriptors, _, _ = socket.recv_fds(agent.socket, 65536, 16)
    kept += descriptors
    return reason(line) if line else "closed"


def links() -> set[str]:
    """Links of this pod, but for the way out."""
    return set(os.listdir("/sys/class/net")) - USUAL_LINKS


def nothing_is_made() -> None:
    expect("and nothing is made", " ".join(links() & {"k6t-eth0", "tap0", "mine"}) or "nothing", "nothing")


def impostor() -> None:
    """A process of the node that named its own control group like a pod's."""
    for what, request in [("reports", report("x")), ("plumbs", plumb())]:
        answered = asked(request, [own_network()] if what == "plumbs" else [])
        expect(what, answered, "not below the kubelet's own", "in no pod")


def another_user() -> None:
    """A process that is not of the user of launchers."""
    expect("reports", asked(report("x")), "launchers have 107")
