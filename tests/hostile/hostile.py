#!/usr/bin/env python3
"""What a tenant's pod that has the node agent's socket may try. Run inside such a pod by scripts/check-hostile.

  hostile.py ATTEMPT [ARGUMENT…]

Each attempt says what was answered, one line each, and ends with 1 when the agent let something through or kept it
waiting. The agent's socket is where the device plugin mounts it.
"""

import array
import ctypes
import json
import os
import socket
import struct
import sys
import threading
import time

AGENT = os.environ.get("GARBOARD_AGENT", "/run/garboard-agent/agent.sock")
NEW_USER, NEW_NET = 0x10000000, 0x40000000
ESCAPES = "\x1b[31m\r\n{\"level\":\"INFO\",\"message\":\"forged\"}\x00"
# An answer that takes longer was held up by somebody: what holds up here does so for longer.
PATIENCE = 30


class Agent:
    """A connection to the agent."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(AGENT)

    @classmethod
    def over(cls, connection):
        """A connection that somebody else made, or will make."""
        agent = cls.__new__(cls)
        agent.socket = connection
        agent.socket.settimeout(PATIENCE)
        return agent

    def send(self, data, descriptors=()):
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        sent = self.socket.sendmsg([data], ancillary)
        self.socket.sendall(data[sent:])

    def answer(self):
        """The next line; `closed` when the agent hung up."""
        line = b""
        try:
            while not line.endswith(b"\n"):
                data = self.socket.recv(65536)
                if not data:
                    return "closed"
                line += data
        except (ConnectionResetError, BrokenPipeError):
            return "closed"
        except TimeoutError:
            return "nothing"
        return reason(line)

    def ask(self, request, descriptors=()):
        try:
            self.send(json.dumps(request).encode() + b"\n", descriptors)
        except (BrokenPipeError, ConnectionResetError):
            return "closed"
        return self.answer()


def reason(line):
    """Why not, or the answer's word."""
    answered = json.loads(line)
    return answered.get("reason", answered["answer"])


MASQUERADE = {"binding": "masquerade", "ipv4": "10.0.2.0/24", "ipv6": "fd10:0:2::/120", "ports": []}
BRIDGE = {"binding": "bridge"}


def plumb(queues=1, mac="02:00:00:aa:bb:01", name="default", ask="Plumb", tap="tap0", binding=None):
    """What the honest machine's launcher asks for, or something else."""
    interface = {"name": name, "tap": tap, "mac": mac, "queues": queues, "binding": binding or MASQUERADE}
    return {"ask": ask.lower(), "interfaces": [interface]}


def report(uid, generation=1, **changes):
    status = {
        "generation": generation, "namespace": "default", "name": "x", "uid": uid, "phase": "Running",
        "phaseSinceMs": 0, "paused": None, "stopping": False, "softwareEmulation": True, "machine": "forged",
        "memoryBytes": 1, "vcpus": 1, "interfaces": [], "guest": None, "taints": [], "supervisorPid": 1, "resets": 0,
        "ended": None,
    }
    return {"ask": "report", "status": {**status, **changes}}


failed = []


def expect(what, answered, *words):
    fine = any(word in answered for word in words)
    print(("ok      " if fine else "FAILED  ") + f"{what}: {answered[:160]!r}", flush=True)
    if not fine:
        failed.append(what)


def told(ask, closed=False):
    """What is answered where there is room for a connection: the agent puts away those before it in its own time, and hangs
    up on who was refused often without a word for a while. Launchers ask again, too. With `closed` that is an answer."""
    end = time.monotonic() + 2 * PATIENCE
    while True:
        try:
            answered = ask()
        except (BlockingIOError, ConnectionError):
            answered = "closed"
        is_answer = closed if answered == "closed" else "connections already" not in answered
        if is_answer or time.monotonic() > end:
            return answered
        time.sleep(0.3)


def asked(request, descriptors=(), closed=False):
    """The same, over a connection of its own."""
    return told(lambda: Agent().ask(request, descriptors), closed)


def own_network():
    return os.open("/proc/self/ns/net", os.O_RDONLY)


# ---- attempts --------------------------------------------------------------------------------------------------------

def stranger():
    """A pod that is no launcher: one sentence, whatever it says."""
    for what, request in [("says nothing", None), ("plumbs", plumb()), ("reports", report("x"))]:
        agent = Agent()
        answered = agent.answer() if request is None else agent.ask(request, [own_network()])
        expect(what, answered, "no launcher pod", "closed")


def lies(uid):
    """A pod that looks like a launcher of the VMI `uid`, and says other things."""
    other = "99999999-2222-3333-4444-555555555555"
    expect("another's machine", asked(report(other)), "another VirtualMachineInstance")
    expect("another's, escaped", asked(report(other + ESCAPES)), "another VirtualMachineInstance")
    expect("a volume", asked({"ask": "volume", "name": "../../etc/shadow"}), "opens its volumes itself")
    expect("no namespace", asked(plumb()), "has to come with the request")
    expect("words", asked(plumb(mac=ESCAPES * 5000), [own_network()], closed=True), "no MAC address", "not a MAC", "closed")
    expect("queues", asked(plumb(queues=100000), [own_network()]), "not the number of queues")
    many = plumb()
    many["interfaces"] *= 1000
    expect("interfaces", asked(many, [own_network()]), "more than any machine has")
    expect("nonsense", asked({"ask": "everything"}, closed=True), "closed")
    expect("no JSON", asked(ESCAPES, closed=True), "closed")
    # Taken, and not believed: the caller of this program looks at the VMI.
    ended = {"cause": {"cause": "guestPanic"}, "sentence": "forged" + ESCAPES, "report": None, "atMs": 1}
    for phase, changes in [("Running", {}), ("Failed", {"ended": ended})]:
        asked(report(uid, 2**62, phase=phase, **changes), closed=True)


def unordered():
    """A pod that looks like a launcher, and for which the controller ordered nothing."""
    for binding in [MASQUERADE, BRIDGE]:
        for ask in ["Plumb", "Sockets"]:
            answered = asked(plumb(ask=ask, binding=binding), [own_network()])
            expect(f"{ask}, {binding['binding']}", answered, "this pod has no order")
    nothing_is_made()


def more():
    """A pod that looks like a launcher, and asks for more than its order says."""
    expect("raw frames of the pod's network", asked(plumb(binding=BRIDGE), [own_network()]), "another binding")
    expect("an interface of its own", asked(plumb(name="other"), [own_network()]), "no interface `other`")
    expect("256 queues", asked(plumb(queues=256), [own_network()]), "not the number of queues")
    twice = plumb()
    twice["interfaces"] *= 2
    expect("two of it", asked(twice, [own_network()]), "asked for twice")
    nothing_is_made()
    # As ordered it is made, whatever name is given; kept, it is not made again under another.
    kept = []
    expect("as ordered, under a name of its own", told(lambda: keeps(plumb(tap="mine"), kept)), "plumbed")
    expect("and the name is the order's", " ".join(sorted(links())), "k6t-eth0 lo tap0")
    for tap in ["tap0", "mine", "tap1"]:
        answered = asked(plumb(tap=tap), [own_network()])
        expect(f"again as {tap}, with the first one kept", answered, "held", "takes one", "exists already")
    expect("still one tap", " ".join(sorted(links())), "k6t-eth0 lo tap0")
    for descriptor in kept:
        os.close(descriptor)


def keeps(request, kept):
    """The answer; what came with it is in `kept`."""
    agent = Agent()
    agent.send(json.dumps(request).encode() + b"\n", [own_network()])
    said, descriptors, _, _ = socket.recv_fds(agent.socket, 65536, 16)
    kept += descriptors
    return reason(said) if said else "closed"


def links():
    """Links of this pod, but for the way out."""
    return set(os.listdir("/sys/class/net")) - {"eth0", "sit0", "tunl0", "ip6tnl0", "gre0", "gretap0", "erspan0", "dummy0"}


def nothing_is_made():
    expect("and nothing is made", " ".join(links() & {"k6t-eth0", "tap0", "mine"}) or "nothing", "nothing")


def impostor():
    """A process of the node that named its own control group like a pod's."""
    for what, request in [("reports", report("x")), ("plumbs", plumb())]:
        answered = asked(request, [own_network()] if what == "plumbs" else [])
        expect(what, answered, "not below the kubelet's own", "in no pod")


def another_user():
    """A process that is not of the user of launchers."""
    expect("reports", asked(report("x")), "launchers are user 107")


def descriptors(borrowed):
    """Descriptors that are no network namespace of ours. `borrowed` is where another pod lends its own."""
    pipe, _ = os.pipe()
    kinds = {
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
    for what, descriptor in kinds.items():
        for ask in ["Plumb", "Sockets"]:
            expect(f"{what}, {ask}", asked(plumb(ask=ask), [descriptor]), "cannot be used", "could not")
    expect("253 of them", asked(plumb(), [kinds["a file"]] * 253, closed=True), "closed")
    expect("two", asked(plumb(), [own_network(), own_network()], closed=True), "closed")
    expect("the node's own network", asked(plumb(), [borrow(borrowed)[0]]), "not the caller's own")
    expect("a network of a tenant's own", nested(False), "made inside the pod")
    expect("the same, called from inside", nested(True), "made inside the pod")
    answered = told(lambda: over_a_socket_of_the_node(*borrow(borrowed)))
    expect("the same, over a socket of the node's", answered, "not the caller's own")


def over_a_socket_of_the_node(network, socket_of_the_node):
    agent = Agent.over(socket.socket(fileno=socket_of_the_node))
    agent.socket.connect(AGENT)
    return agent.ask(plumb(), [network])


def nested(inside):
    """A child in a user and network namespace of its own; it or its parent asks for that to be plumbed."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        made = ctypes.CDLL(None, use_errno=True).unshare(NEW_USER | NEW_NET) == 0
        if not made:
            ours.send(b"not")
            os._exit(0)
        if inside:
            theirs.send(asked(plumb(), [own_network()]).encode())
        else:
            socket.send_fds(theirs, [b"descriptor"], [own_network()])
        os._exit(0)
    ours.settimeout(4 * PATIENCE)
    said, received, _, _ = socket.recv_fds(ours, 4096, 1)
    os.waitpid(child, 0)
    if said == b"not":
        return "made inside the pod and not the caller's own, as far as none can be made here"
    return said.decode() if inside else asked(plumb(), received)


def borrow(path):
    """The network namespace of another pod, and a socket made in it."""
    lender = socket.socket(socket.AF_UNIX)
    lender.connect(path)
    _, received, _, _ = socket.recv_fds(lender, 1, 2)
    return received


def lend(path):
    """Lends this pod's network namespace to whoever asks."""
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o666)
    listener.listen()
    while True:
        connection, _ = listener.accept()
        socket.send_fds(connection, [b"x"], [own_network(), socket.socket(socket.AF_UNIX).detach()])


def lingering():
    """TCP sockets that keep whoever closes them last for an hour: the agent is to close them, and to go on."""
    for step in ["taken", "left unread"]:
        for _ in range(24):
            agent = Agent()
            agent.socket.settimeout(2)
            try:
                if step == "taken":
                    agent.send(json.dumps(plumb()).encode() + b"\n", [stuck_socket()])
                else:
                    agent.send(b"x", [stuck_socket()])
                    agent.send(b"x" * 300_000)
            except (OSError, TimeoutError):
                pass
    # An answer that does not come within the patience is `nothing`.
    expect("is still answered", asked(report("x")), "another VirtualMachineInstance", "connections already", "no launcher")


peers = []


def stuck_socket():
    """A TCP socket whose close waits: it has data that its peer does not take."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    here = socket.socket()
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    here.connect(listener.getsockname())
    peers.append(listener.accept()[0])
    here.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    here.setblocking(False)
    try:
        while True:
            here.send(b"x" * 65536)
    except BlockingIOError:
        pass
    return here.detach()


def flood(stop):
    """Everything at once, until there is the file `stop`: connections, halves of messages, large ones, byte by byte,
    answers nobody reads."""
    def goes_on():
        return not os.path.exists(stop)

    counts = {}

    def again(what):
        def loop():
            while goes_on():
                counts[what.__name__] = counts.get(what.__name__, 0) + 1
                try:
                    what(goes_on)
                except OSError:
                    pass
        return loop

    attempts = [connections, halves, large, drops, unread, refused, reports, forks]
    threads = [threading.Thread(target=again(what)) for what in attempts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(counts), flush=True)


def connections(_goes_on):
    held = [Agent() for _ in range(200)]
    for agent in held:
        agent.socket.close()


def halves(_goes_on):
    agent = Agent()
    agent.send(b'{"ask": "plumb", "interfaces": [')
    agent.socket.settimeout(1)
    agent.answer()


def large(_goes_on):
    agent = Agent()
    for _ in range(64):
        agent.send(b"x" * 65536)


def drops(goes_on):
    agent = Agent()
    agent.send(b"x" * 200_000)
    while goes_on():
        agent.send(b"x")


def unread(goes_on):
    agent = Agent()
    agent.socket.settimeout(1)
    line = json.dumps({"ask": "volume", "name": "x" * 1000}).encode() + b"\n"
    while goes_on():
        agent.send(line)


def refused(_goes_on):
    agent = Agent()
    for _ in range(50):
        agent.ask(plumb(mac=ESCAPES * 100), [os.open("/dev/zero", os.O_RDWR)])


def reports(_goes_on):
    agent = Agent()
    for _ in range(50):
        agent.ask(report("x" * 1000))


def forks(_goes_on):
    child = os.fork()
    if child == 0:
        try:
            Agent()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def crowd(uid, meeting):
    """One of many pods that report at once, of the VMI `uid`, and each time something else. Says `here` when it has the
    connections that every pod gets; from `go` to `stop` takes all it can get and reports over each in turn; then counts those
    that are answered, and begins a request of nearly the longest size on each. More often than this would be a `flood`, which
    keeps the agent from writing."""
    name, held, turns, noted = socket.gethostname(), [], 0, 0

    def tells(agent):
        nonlocal turns, noted
        turns += 1
        answered = agent.ask(report(uid, time.monotonic_ns(), paused="PausedByUser" if turns % 2 else None))
        noted += answered == "noted"
        return answered

    def more():
        try:
            agent = Agent()
            if tells(agent) == "noted":
                held.append(agent)
        except OSError:
            pass
        time.sleep(0.1)

    while len(held) < 2:
        more()
    leave(f"{meeting}/here.{name}")
    wait_for(f"{meeting}/go")
    while not os.path.exists(f"{meeting}/stop"):
        more()
        for agent in list(held):
            if tells(agent) == "closed":
                held.remove(agent)
            time.sleep(0.1)
    answering = [agent for agent in held if tells(agent) == "noted"]
    for agent in answering:
        agent.send(b'{"ask": "' + b"x" * 262_000)
    leave(f"{meeting}/result.{name}", f"{len(answering)} {noted}\n")
    sleep()


def deaths():
    """A caller that dies at every step, and what others do with what it left."""
    steps = {
        "connected": lambda agent: None,
        "half a line": lambda agent: agent.send(b'{"ask": "plu'),
        "a descriptor without a line": lambda agent: agent.send(b"{", [own_network()]),
        "a request": lambda agent: agent.send(json.dumps(plumb(ask="Sockets")).encode() + b"\n", [own_network()]),
        "two requests": lambda agent: agent.send((json.dumps(report("x")) + "\n").encode() * 2),
    }
    for what, step in steps.items():
        for _ in range(20):
            child = os.fork()
            if child == 0:
                step(Agent())
                os._exit(0)
            os.waitpid(child, 0)
        expect(f"died after: {what}", asked(report("x")), "another VirtualMachineInstance", "connections already")
    # The connection outlives the process that made it: nothing is made for it any more.
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        agent = Agent()
        socket.send_fds(theirs, [b"x"], [agent.socket.fileno()])
        os._exit(0)
    ours.settimeout(PATIENCE)
    _, received, _, _ = socket.recv_fds(ours, 1, 1)
    os.waitpid(child, 0)
    heir = Agent.over(socket.socket(fileno=received[0]))
    expect("inherited a connection", heir.ask(plumb(), [own_network()]), "could not look at the network", "has ended", "closed")


def gone(go, result):
    """Called by a process that has ended when the agent gets to it: the agent is stopped until the file `go` is there."""
    child = os.fork()
    if child == 0:
        agent = Agent()
        agent.send(json.dumps(plumb()).encode() + b"\n", [own_network()])
        os._exit(0)
    os.waitpid(child, 0)
    with open(result, "w") as file:
        file.write("left")
    wait_for(go)


def late(uid, go, result):
    """Goes on talking after its pod was deleted. The agent hears of that as it hears of pods, and until then it may give."""
    agents = []

    def first():
        agents.append(Agent())
        return agents[-1].ask(report(uid))

    leave(result + ".first", told(first))
    agent = agents[-1]
    wait_for(go)
    end = time.monotonic() + PATIENCE
    while True:
        answered = agent.ask(plumb(), [own_network()])
        if any(word in answered for word in GONE) or time.monotonic() > end:
            break
        if answered == "closed":
            agent = Agent()
        time.sleep(0.2)
    leave(result, answered)


# Of a pod that is not there any more, on an older connection and on a new one.
GONE = ("not there any more", "no launcher pod")


def leave(path, text=""):
    """A file that is there with all of its text, or not at all."""
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.05)


def sleep():
    """Until it is told to go."""
    time.sleep(100_000)


if __name__ == "__main__":
    attempts = [stranger, lies, unordered, more, impostor, another_user, descriptors, lend, lingering, flood, crowd, deaths, gone, late, sleep]
    {attempt.__name__: attempt for attempt in attempts}[sys.argv[1]](*sys.argv[2:])
    sys.exit(1 if failed else 0)
