"""Descriptors that are no network namespace of the caller's."""

import ctypes
import os
import socket

from .agent import AGENT, PATIENCE, Agent, plumb, sockets
from .answers import asked, expect, final_answer

NEW_USER, NEW_NET = 0x10000000, 0x40000000


def own_network() -> int:
    return os.open("/proc/self/ns/net", os.O_RDONLY)


def others() -> dict[str, int]:
    """Everything else that a descriptor may be of."""
    pipe, _ = os.pipe()
    return {
        "a file": os.open("/proc/self/status", os.O_RDONLY),
        "a directory": os.open("/", os.O_RDONLY),
        "a path": os.open("/proc/self/ns/net", os.O_PATH),
        "/dev/zero": os.open("/dev/zero", os.O_RDWR),
        "a pipe": pipe,
        "memory": os.memfd_create("net:[1]"),
        "a socket": socket.socket(socket.AF_INET).detach(),
        "the agent's own socket": Agent().socket.detach(),
        "a PID namespace": os.open("/proc/self/ns/pid", os.O_RDONLY),
        "a user namespace": os.open("/proc/self/ns/user", os.O_RDONLY),
    }


def descriptors(borrowed: str) -> None:
    """`borrowed` is where another pod lends its own network."""
    kinds = others()
    for what, descriptor in kinds.items():
        for request in (plumb(), sockets()):
            expect(f"{what}, {request['ask']}", asked(request, [descriptor]), "cannot be used", "could not")
    expect("253 of them", asked(plumb(), [kinds["a file"]] * 253, closed=True), "closed")
    expect("two", asked(plumb(), [own_network(), own_network()], closed=True), "closed")
    expect("the node's own network", asked(plumb(), [borrow(borrowed)[0]]), "not the caller's own")
    expect("a network of a tenant's own", nested(False), "made inside the pod")
    expect("the same, called from inside", nested(True), "made inside the pod")
    answered = final_answer(lambda: over_a_socket_of_the_node(*borrow(borrowed)))
    expect("the same, over a socket of the node's", answered, "not the caller's own")


def over_a_socket_of_the_node(network: int, socket_of_the_node: int) -> str:
    agent = Agent(socket.socket(fileno=socket_of_the_node))
    agent.socket.connect(AGENT)
    return agent.ask(plumb(), [network])


def nested(inside: bool) -> str:
    """A child in a user and network namespace of its own; it or its parent asks for that to be plumbed."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        in_namespaces_of_its_own(theirs, inside)
        os._exit(0)
    ours.settimeout(4 * PATIENCE)
    answer, received, _, _ = socket.recv_fds(ours, 4096, 1)
    os.waitpid(child, 0)
    if answer == b"not":
        return "made inside the pod and not the caller's own, as far as none can be made here"
    return answer.decode() if inside else asked(plumb(), received)


def in_namespaces_of_its_own(parent: socket.socket, inside: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_USER | NEW_NET) != 0:
        parent.send(b"not")
    elif inside:
        parent.send(asked(plumb(), [own_network()]).encode())
    else:
        socket.send_fds(parent, [b"descriptor"], [own_network()])


def borrow(path: str) -> list[int]:
    """The network namespace of another pod, and a socket made in it."""
    lender = socket.socket(socket.AF_UNIX)
    lender.connect(path)
    _, received, _, _ = socket.recv_fds(lender, 1, 2)
    return received


def lend(path: str) -> None:
    """Lends this pod's network namespace to every caller."""
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o666)
    listener.listen()
    while True:
        connection, _ = listener.accept()
        socket.send_fds(connection, [b"x"], [own_network(), socket.socket(socket.AF_UNIX).detach()])
