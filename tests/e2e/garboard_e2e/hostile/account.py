"""A tenant's account at the subresource API, through the API server: requests, and streams that end as they should."""

import contextlib
import http.client
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

import websocket

from ..answer import Answer
from ..cluster.kube import Kube
from ..cluster.names import NAMESPACE, Object
from ..cluster.stream import Refused, connect, path_of, typed
from ..outcome import Failure
from ..patience import PATIENCE


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
        self.namespace, self.headers = namespace, {"Authorization": f"Bearer {token}"}
        server = kube.kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}", namespace=None)
        self.host = urlsplit(server).netloc
        self.context = ssl.create_default_context(cafile=kube.state / "pki/ca.crt")

    def path(self, name: str, subresource: str) -> str:
        return path_of(name, subresource, self.namespace)

    def asks(self, method: str, path: str, headers: dict[str, str] | None = None, body: str = "") -> Answer:
        """A request, its path as it is given."""
        connection = http.client.HTTPSConnection(self.host, timeout=PATIENCE, context=self.context)
        with contextlib.closing(connection):
            own = self.headers | {"Content-Type": "application/json"}
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

    def open(self, name: str, subresource: str) -> websocket.WebSocket:
        """A stream that is let in."""
        return connect(self.host, self.context, self.path(name, subresource), self.headers)

    def refused(self, name: str, subresource: str) -> Answer:
        """The answer to a stream that is not let in."""
        try:
            self.open(name, subresource).close()
        except Refused as refused:
            return refused.answer
        raise Failure(f"{subresource} of {name} is opened")

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
