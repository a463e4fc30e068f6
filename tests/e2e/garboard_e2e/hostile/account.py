"""A tenant's account at the subresource API, through the API server: requests, and streams that end as they should."""

import contextlib
import http.client
import secrets
import ssl
import struct
import time
from collections.abc import Iterator
from typing import cast
from urllib.parse import urlsplit

import websocket

from ..answer import Answer
from ..cluster.kube import Kube
from ..cluster.names import NAMESPACE, Object
from ..outcome import Failure
from ..patience import PATIENCE

GROUP = "/apis/subresources.kubevirt.io/v1"
CLOSE = websocket.ABNF.OPCODE_CLOSE


def account(kube: Kube, name: str, namespace: str = NAMESPACE, role: str | None = "edit") -> "Account":
    """A service account with a ClusterRole in its namespace, made if it is not there."""
    place = {"name": name, "namespace": namespace}
    objects: list[Object] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": place}]
    if role:
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        reference = {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": place}
        objects.append(binding | {"roleRef": reference, "subjects": [subject]})
    kube.apply(*objects, namespace=namespace)
    return Account(kube, kube.kubectl("create", "token", name, namespace=namespace).strip(), namespace)


class Account:
    """By its token."""

    def __init__(self, kube: Kube, token: str, namespace: str) -> None:
        self.token, self.namespace = token, namespace
        server = kube.kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}", namespace=None)
        self.host = urlsplit(server).netloc
        self.authority = f"/run/garboard-cluster/{kube.name}/pki/ca.crt"

    def path(self, name: str, subresource: str, namespace: str | None = None) -> str:
        of = namespace or self.namespace
        return f"{GROUP}/namespaces/{of}/virtualmachineinstances/{name}/{subresource}"

    def asks(self, method: str, path: str, headers: dict[str, str] | None = None, body: str = "") -> Answer:
        """A request, its path as it is given."""
        context = ssl.create_default_context(cafile=self.authority)
        connection = http.client.HTTPSConnection(self.host, timeout=PATIENCE, context=context)
        with contextlib.closing(connection):
            own = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            connection.request(method, path, body, own | (headers or {}))
            return Answer.read(connection)

    def puts(self, name: str, subresource: str) -> Answer:
        return self.asks("PUT", self.path(name, subresource))

    def pauses(self, name: str) -> None:
        """Stops the guest's processors, and lets them run again."""
        stopped = self.puts(name, "pause")
        goes_on = self.puts(name, "unpause")
        if (stopped.status, goes_on.status) != (200, 200):
            raise Failure(f"{name} is stopped: {stopped}; and goes on: {goes_on}")

    # ---- streams

    def open(self, name: str, subresource: str, namespace: str | None = None) -> websocket.WebSocket:
        """A stream that is let in."""
        opened = self.tries(name, subresource, namespace)
        if isinstance(opened, Answer):
            raise Failure(f"{subresource} of {name} is answered {opened}")
        return opened

    def tries(self, name: str, subresource: str, namespace: str | None = None) -> "websocket.WebSocket | Answer":
        """A stream, or the answer instead of it."""
        try:
            return websocket.create_connection(
                f"wss://{self.host}{self.path(name, subresource, namespace)}",
                timeout=PATIENCE,
                header=[f"Authorization: Bearer {self.token}"],
                subprotocols=["plain.kubevirt.io"],
                sslopt={"ca_certs": self.authority},
                suppress_origin=True,
            )
        except websocket.WebSocketBadStatusException as refused:
            return Answer(refused.status_code, (refused.resp_body or b"").decode(errors="replace"))

    def refused(self, name: str, subresource: str) -> Answer:
        """The answer to a stream that is not let in."""
        opened = self.tries(name, subresource)
        if not isinstance(opened, Answer):
            opened.close()
            raise Failure(f"{subresource} of {name} is opened")
        return opened

    @contextlib.contextmanager
    def stream(self, name: str, subresource: str) -> Iterator[websocket.WebSocket]:
        """Left without a word."""
        with contextlib.ExitStack() as leaving:
            opened = self.open(name, subresource)
            leaving.callback(opened.shutdown)
            yield opened

    def types(self, name: str) -> float:
        """Has the guest's shell multiply, over a console of its own; how many seconds the answer took."""
        with self.stream(name, "console") as console:
            return typed(console)


def typed(console: websocket.WebSocket) -> float:
    """The same over a console that is open."""
    # What came of a product before is in the scroll-back.
    factor, began = secrets.randbelow(1 << 20), time.monotonic()
    console.send_binary(f"\recho product-$((2*{factor}))-\r".encode())
    shows(console, f"product-{2 * factor}-".encode())
    return time.monotonic() - began


def shows(console: websocket.WebSocket, text: bytes) -> None:
    """Reads until the guest has printed this; what it printed before counts too."""
    end, shown = time.monotonic() + PATIENCE, b""
    while text not in shown:
        if time.monotonic() > end:
            raise Failure(f"the guest does not print {text!r}: {shown[-400:]!r}")
        shown += received(console)


def received(stream: websocket.WebSocket) -> bytes:
    """The next message."""
    data = stream.recv()
    return data.encode() if isinstance(data, str) else data


def ended(stream: websocket.WebSocket) -> tuple[int, str]:
    """How a stream is closed: code and reason; 1006 where nothing says so. What comes before is not looked at."""
    with contextlib.suppress(websocket.WebSocketException, OSError):
        while True:
            kind, data = cast("tuple[int, bytes]", stream.recv_data(control_frame=True))
            if kind == CLOSE:
                (code,) = struct.unpack(">H", data[:2])
                return int(code), data[2:].decode()
    return 1006, ""
