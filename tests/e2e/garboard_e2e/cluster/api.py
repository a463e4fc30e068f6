"""The API server of a test cluster over connections of one's own: a request costs no process, and many may come at the
same moment."""

import base64
import concurrent.futures
import contextlib
import dataclasses
import http.client
import json
import pathlib
import ssl
import tempfile
import threading
import urllib.parse
from collections.abc import Sequence

from .names import Object
from .program import Cluster

# A failure of the API server itself takes longer than any answer.
PATIENCE = 120
# How many connections requests share that need not come at the same moment.
CONNECTIONS = 8


@dataclasses.dataclass(frozen=True)
class Answer:
    """The API server's answer to a request."""

    status: int
    text: str

    @property
    def is_taken(self) -> bool:
        return self.status < 300

    @property
    def message(self) -> str:
        """Of a refusal."""
        with contextlib.suppress(json.JSONDecodeError, KeyError):
            return str(json.loads(self.text)["message"])
        return self.text


@dataclasses.dataclass(frozen=True)
class Post:
    """An object to be made at a path."""

    path: str
    body: Object


class Api:
    """An API server, and a user of it, of a kubeconfig."""

    def __init__(self, kubeconfig: Object) -> None:
        user, cluster = kubeconfig["users"][0]["user"], kubeconfig["clusters"][0]["cluster"]
        self.address = urllib.parse.urlsplit(cluster["server"]).netloc
        with tempfile.TemporaryDirectory() as made:
            directory = pathlib.Path(made)
            authority = self._file(directory, cluster, "certificate-authority")
            self.context = ssl.create_default_context(cafile=authority)
            files = [self._file(directory, user, name) for name in ("client-certificate", "client-key")]
            self.context.load_cert_chain(*files)

    @classmethod
    def of(cls, cluster: Cluster) -> "Api":
        """That of a cluster, as its administrator."""
        return cls(json.loads(cluster.kubectl("config", "view", "--raw", "-o", "json", namespace=None)))

    @staticmethod
    def _file(directory: pathlib.Path, entry: Object, name: str) -> str:
        """What the kubeconfig names, or has in itself, as a file."""
        if name in entry:
            return str(entry[name])
        path = directory / name
        path.write_bytes(base64.b64decode(entry[f"{name}-data"]))
        return str(path)

    def connect(self) -> http.client.HTTPSConnection:
        connection = http.client.HTTPSConnection(self.address, context=self.context, timeout=PATIENCE)
        connection.connect()
        return connection

    def post_each(self, posts: Sequence[Post]) -> list[Answer]:
        """Sends all of them, a few at a time; the answers in their order."""
        answers: dict[int, Answer] = {}

        def share(first: int) -> None:
            with contextlib.closing(self.connect()) as connection:
                for number in range(first, len(posts), CONNECTIONS):
                    answers[number] = post(connection, posts[number])

        with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(share, range(CONNECTIONS)))
        return [answers[number] for number in range(len(posts))]

    def post_at_once(self, posts: Sequence[Post]) -> list[Answer]:
        """Sends each with a connection of its own when all are connected."""
        together = threading.Barrier(len(posts), timeout=PATIENCE)

        def send(each: Post) -> Answer:
            with contextlib.closing(self.connect()) as connection:
                together.wait()
                return post(connection, each)

        with concurrent.futures.ThreadPoolExecutor(len(posts)) as pool:
            return list(pool.map(send, posts))


def post(connection: http.client.HTTPSConnection, what: Post) -> Answer:
    connection.request("POST", what.path, json.dumps(what.body), {"Content-Type": "application/json"})
    return answered(connection)


def get(connection: http.client.HTTPSConnection, path: str) -> Answer:
    connection.request("GET", path)
    return answered(connection)


def answered(connection: http.client.HTTPSConnection) -> Answer:
    answer = connection.getresponse()
    return Answer(answer.status, answer.read().decode())
