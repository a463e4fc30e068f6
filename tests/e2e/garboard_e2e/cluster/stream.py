"""Streams of the subresource API through the API server: websockets of bytes, as KubeVirt's clients open them."""

import secrets
import ssl
import struct
import time
from collections.abc import Mapping
from typing import cast

import websocket

from ..answer import Answer
from ..outcome import Failure
from ..patience import PATIENCE
from .api import Api
from .names import NAMESPACE

GROUP, OWN_GROUP = "/apis/subresources.kubevirt.io/v1", "/apis/subresources.garboard.dev/v1"
PROTOCOL = "plain.kubevirt.io"
BINARY, CLOSE = websocket.ABNF.OPCODE_BINARY, websocket.ABNF.OPCODE_CLOSE
# Of a stream that ends without a close frame, and of a close frame without a code (RFC 6455, 7.1.5).
ABNORMAL, NO_CODE = 1006, 1005


class Refused(Failure):
    """The answer was no websocket."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(str(answer))
        self.answer = answer


def path_of(instance: str, subresource: str, namespace: str = NAMESPACE, group: str = GROUP) -> str:
    return f"{group}/namespaces/{namespace}/virtualmachineinstances/{instance}/{subresource}"


def connect(
    address: str, context: ssl.SSLContext, path: str, headers: Mapping[str, str], seconds: float = PATIENCE
) -> websocket.WebSocket:
    """A stream that is let in. The API server is at `address`; each answer may take so many seconds."""
    try:
        return websocket.create_connection(
            f"wss://{address}{path}",
            timeout=seconds,
            header=dict(headers),
            subprotocols=[PROTOCOL],
            sslopt={"context": context},
            # Programs are no pages: they come from no origin.
            suppress_origin=True,
        )
    except websocket.WebSocketBadStatusException as error:
        raise Refused(Answer(error.status_code, (error.resp_body or b"").decode(errors="replace"))) from error


def closing(payload: bytes) -> tuple[int, str]:
    """Code and reason of a close frame."""
    return (int(struct.unpack(">H", payload[:2])[0]) if payload else NO_CODE), payload[2:].decode()


def multiplication() -> tuple[bytes, bytes]:
    """What has a guest's shell multiply when it is typed, and what it prints then; another product each time, since
    each that opens a console is shown what was printed before."""
    factor = secrets.randbelow(1 << 20)
    return f"\recho product-$((2*{factor}))-\r".encode(), f"product-{2 * factor}-".encode()


# ---- what is read when a test asks for it, and not before


def received(stream: websocket.WebSocket) -> bytes:
    """The next message."""
    try:
        kind, data = cast("tuple[int, bytes]", stream.recv_data())
    except (websocket.WebSocketException, OSError) as error:
        raise Failure(f"the stream broke: {error}") from error
    if kind == CLOSE:
        raise Failure(f"the stream has ended: {closing(data)}")
    if kind != BINARY:
        raise Failure(f"a message of the stream is not binary: {data!r}")
    return data


def shows(console: websocket.WebSocket, text: bytes) -> None:
    """Reads until the guest has printed this; what it printed before counts too."""
    end, shown = time.monotonic() + PATIENCE, b""
    while text not in shown:
        if time.monotonic() > end:
            raise Failure(f"the guest does not print {text!r}: {shown[-400:]!r}")
        shown += received(console)


def typed(console: websocket.WebSocket) -> float:
    """Has the guest's shell multiply; how many seconds the answer took."""
    command, answer = multiplication()
    began = time.monotonic()
    console.send_binary(command)
    shows(console, answer)
    return time.monotonic() - began


def ended(stream: websocket.WebSocket) -> tuple[int, str]:
    """How a stream is closed: code and reason. What comes before is not looked at."""
    try:
        while True:
            kind, data = cast("tuple[int, bytes]", stream.recv_data())
            if kind == CLOSE:
                return closing(data)
    except (websocket.WebSocketException, OSError):
        return ABNORMAL, ""


class ByteStream:
    """One of an instance, opened by the administrator, of which exactly so many bytes are read."""

    def __init__(self, api: Api, instance: str, subresource: str) -> None:
        self.socket = connect(api.address, api.context, path_of(instance, subresource), {})
        self.received = b""

    def read(self, count: int) -> bytes:
        while len(self.received) < count:
            self.received += received(self.socket)
        content, self.received = self.received[:count], self.received[count:]
        return content

    def send(self, content: bytes) -> None:
        self.socket.send_binary(content)

    def close(self) -> None:
        self.socket.close()
