"""A stream of subresources.kubevirt.io through the API server: a websocket of bytes, as KubeVirt's clients open it."""

import contextlib
import json

import websocket

from ..outcome import Failure
from ..patience import PATIENCE
from .api import Api
from .names import NAMESPACE

PROTOCOL = "plain.kubevirt.io"


class Refused(Exception):
    """The answer was no websocket."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


class Stream:
    """One that is open, to read exactly so many bytes of."""

    def __init__(self, api: Api, machine: str, subresource: str) -> None:
        base = f"/apis/subresources.kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachineinstances"
        url = f"wss://{api.address}{base}/{machine}/{subresource}"
        try:
            self.socket = websocket.create_connection(
                url,
                PATIENCE,
                sslopt={"context": api.context},
                subprotocols=[PROTOCOL],
                # Programs are no pages: they come from no origin.
                suppress_origin=True,
            )
        except websocket.WebSocketBadStatusException as error:
            raise Refused(error.status_code, message_of(error.resp_body or b"")) from error
        if self.socket.getsubprotocol() != PROTOCOL:
            raise Failure(f"the stream has the protocol {self.socket.getsubprotocol()}")
        self.received = b""

    def read(self, count: int) -> bytes:
        while len(self.received) < count:
            try:
                more = self.socket.recv()
            except (websocket.WebSocketException, OSError) as error:
                raise Failure(f"the stream broke: {error}") from error
            if not isinstance(more, bytes) or not more:
                raise Failure(f"the stream ended: {len(self.received)} of {count} bytes came")
            self.received += more
        content, self.received = self.received[:count], self.received[count:]
        return content

    def send(self, content: bytes) -> None:
        self.socket.send_binary(content)

    def close(self) -> None:
        self.socket.close()


def message_of(body: bytes) -> str:
    """Of a Status; of anything else all of it."""
    with contextlib.suppress(json.JSONDecodeError, AttributeError):
        return str(json.loads(body).get("message", ""))
    return body.decode(errors="replace")
