"""The ports of the controllers, dialled from a pod of a tenant."""

import os
import resource
import socket
import ssl
import time

from .answers import expect
from .meeting import leave

# Where controllers take node agents and API servers (deploy/base/controller.yaml).
AGENTS, API_SERVERS = 8445, 8444
# Seconds.
PATIENCE = 10
# How a TLS client begins: the head of a record, and too little of what follows.
HALF_A_RECORD = b"\x16\x03\x01\x02\x00\x01"
HALF_A_REQUEST = b"GET /v1/node HTTP/1.1\r\nHost: x\r\nUpgr"
# How often those that the controller has closed are dialled again.
AGAIN = 0.5


def connected(address: str, port: int) -> socket.socket:
    return socket.create_connection((address, port), PATIENCE)


def shaken(connection: socket.socket) -> ssl.SSLSocket:
    """After the handshake of a client that trusts everyone and has no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connection)


def answer(connection: socket.socket, request: bytes) -> str:
    """All that comes; the error, where that is what comes."""
    connection.settimeout(PATIENCE)
    received = b""
    try:
        connection.sendall(request)
        while more := connection.recv(65536):
            received += more
            if received.startswith(b"HTTP/1.1 101"):
                break
    except TimeoutError:
        return f"{received.decode(errors='replace')} and then nothing"
    except OSError as error:
        return f"{received.decode(errors='replace')} and then {error}"
    finally:
        connection.close()
    return received.decode(errors="replace") or "closed"


def request(path: str, *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def upgrade(token: str | None = None, to: str = "garboard-tunnel/1") -> bytes:
    """What a node agent begins with; the connection is to be closed after a refusal."""
    bearer = [f"Authorization: Bearer {token}"] if token else ["Connection: close"]
    return request("/v1/node", "Connection: Upgrade", f"Upgrade: {to}", *bearer)


def pretends(address: str, path: str, own: str, namesake: str, of_another_audience: str) -> None:
    """A pod that is no node agent and no API server, and says that it is one. The tokens are of its own account, for
    the audience of controllers, of an account of its namespace with the name of the agents' one, and of its own for
    the API server; `path` is one that an API server would forward."""

    def as_agent(sent: bytes) -> str:
        return answer(shaken(connected(address, AGENTS)), sent)

    expect("an agent without TLS", answer(connected(address, AGENTS), upgrade(own)), "closed", "and then", "\x15\x03")
    expect("an agent without a token", as_agent(upgrade()), "401 Unauthorized")
    expect("an agent with a token of nobody", as_agent(upgrade("x")), "the token is not valid for garboard-controller")
    whose = "the token belongs to system:serviceaccount:tenant:"
    expect("an agent with the pod's own token", as_agent(upgrade(own)), f"{whose}default, not to the node agents'")
    expect("with that of a namesake", as_agent(upgrade(namesake)), f"{whose}garboard-node, not to the node agents'")
    expect("with one for the API server", as_agent(upgrade(of_another_audience)), "the token is not valid for")
    expect("an agent of another time", as_agent(upgrade(to="garboard-tunnel/9")), "426 Upgrade Required")
    expect("another path", as_agent(request("/v1/token", "Connection: close")), "404 Not Found")
    user = ["X-Remote-User: admin", "X-Remote-Group: system:masters", "Content-Length: 0"]
    sent = request(path, *user, method="PUT")
    expect("an API server without TLS", answer(connected(address, API_SERVERS), sent), "closed", "and then", "\x15\x03")
    answered = answer(shaken(connected(address, API_SERVERS)), sent)
    # An alert, or where that is overtaken what a socket says that was closed.
    none = ("certificate required", "Connection reset", "Broken pipe")
    expect("an API server without a certificate", answered, *none)


class Held:
    """Connections to one port that say nothing, or stop in the middle; those that are closed are dialled again."""

    def __init__(self, address: str, port: int, count: int) -> None:
        self.address, self.port = address, port
        self.open: list[socket.socket | None] = [None] * count
        self.closed = 0

    def dial(self, number: int) -> socket.socket | None:
        try:
            connection = connected(self.address, self.port)
            connection.settimeout(2)
            if number % 3 == 1:
                connection.sendall(HALF_A_RECORD)
            if number % 3 == 2 and self.port == AGENTS and number < 12:
                connection = shaken(connection)
                connection.sendall(HALF_A_REQUEST)
        except OSError:
            return None
        connection.setblocking(False)
        return connection

    def is_closed(self, connection: socket.socket) -> bool:
        try:
            return connection.recv(4096) == b""
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True

    def look(self) -> None:
        for number, connection in enumerate(self.open):
            if connection is None:
                self.open[number] = self.dial(number)
            elif self.is_closed(connection):
                self.closed += 1
                connection.close()
                self.open[number] = None

    @property
    def count(self) -> int:
        return sum(each is not None for each in self.open)


def holds(meeting: str, of_agents: str, of_api_servers: str, *addresses: str) -> None:
    """Holds so many connections to each port of each controller until `stop`. Leaves `here`: how many it has held at
    most, and how many were closed."""
    _, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    name, most = socket.gethostname(), 0
    counts = {AGENTS: int(of_agents), API_SERVERS: int(of_api_servers)}
    held = [Held(address, port, count) for address in addresses for port, count in counts.items()]
    while not os.path.exists(f"{meeting}/stop"):
        for each in held:
            each.look()
        most = max(most, sum(each.count for each in held))
        leave(f"{meeting}/here.{name}", f"{most} {sum(each.closed for each in held)}")
        time.sleep(AGAIN)
