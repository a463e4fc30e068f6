"""Who has taken over a node agent: it has the token of the agent's pod, connects to controllers as the agent does, and
answers what they ask. As much of HTTP/2 (RFC 9113) as that needs."""

import contextlib
import json
import socket
import ssl
import struct
import threading
from types import TracebackType

from ..cluster.kube import Kube
from ..cluster.names import Object
from ..outcome import Failure
from ..patience import PATIENCE

PORT = 8445
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING = 0, 1, 4, 6
ACKNOWLEDGED, END_OF_STREAM, END_OF_HEADERS = 1, 1, 4
# `:status: 200` of the static table (RFC 7541, appendix A).
GRANTED = b"\x88"


def token_of(kube: Kube, agent: Object) -> str:
    """What the kubelet has given to the pod of an agent, for controllers."""
    volumes = kube.root(agent["spec"]["nodeName"]) / f"var/lib/kubelet/pods/{agent['metadata']['uid']}/volumes"
    return (volumes / "kubernetes.io~projected/controller-token/token").read_text().strip()


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


class Refused(Failure):
    """A controller does not take it for an agent."""


class Impostor:
    """One connection to one controller. To each request it answers with a line."""

    def __init__(self, address: str, token: str, reason: str) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self.socket = context.wrap_socket(socket.create_connection((address, PORT), PATIENCE))
        self.reason = reason
        self.asked, self.is_used = 0, False
        self.waiting = b""
        self.upgrade(token)
        self.thread = threading.Thread(target=self.answer, daemon=True)
        self.thread.start()

    def upgrade(self, token: str) -> None:
        lines = ["GET /v1/node HTTP/1.1", "Host: x", "Connection: upgrade", "Upgrade: garboard-tunnel/1"]
        head = [*lines, f"Authorization: Bearer {token}", "", ""]
        self.socket.sendall("\r\n".join(head).encode())
        answered = b""
        while b"\r\n\r\n" not in answered:
            if not (more := self.socket.recv(4096)):
                break
            answered += more
        head_of_answer, _, self.waiting = answered.partition(b"\r\n\r\n")
        if not head_of_answer.startswith(b"HTTP/1.1 101"):
            with contextlib.suppress(OSError):
                self.waiting += self.socket.recv(4096)
            self.socket.close()
            raise Refused((head_of_answer + b" " + self.waiting).decode(errors="replace"))

    def exactly(self, count: int) -> bytes:
        while len(self.waiting) < count:
            if not (more := self.socket.recv(65536)):
                raise ConnectionError("the controller has ended the connection")
            self.waiting += more
        data, self.waiting = self.waiting[:count], self.waiting[count:]
        return data

    def answer(self) -> None:
        """Until it is closed."""
        with contextlib.suppress(OSError, ValueError):
            self.socket.settimeout(None)
            self.exactly(len(PREFACE))
            self.socket.sendall(frame(SETTINGS, 0, 0))
            while True:
                head = self.exactly(9)
                length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
                self.take(kind, flags, int.from_bytes(head[5:], "big"), self.exactly(length))

    def take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & ACKNOWLEDGED:
            self.is_used = True
            self.socket.sendall(frame(SETTINGS, ACKNOWLEDGED, 0))
        elif kind == PING and not flags & ACKNOWLEDGED:
            self.socket.sendall(frame(PING, ACKNOWLEDGED, 0, payload))
        elif kind == HEADERS:
            self.asked += 1
            line = json.dumps({"answer": "denied", "reason": self.reason}).encode() + b"\n"
            granted = frame(HEADERS, END_OF_HEADERS, stream, GRANTED)
            self.socket.sendall(granted + frame(DATA, END_OF_STREAM, stream, line))

    def __enter__(self) -> "Impostor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join(PATIENCE)
        self.socket.close()
