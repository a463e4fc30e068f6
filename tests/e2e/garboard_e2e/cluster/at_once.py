"""Many requests to the API server at the same moment, each on a connection of its own."""

import base64
import concurrent.futures
import dataclasses
import http.client
import json
import pathlib
import ssl
import tempfile
import threading
import urllib.parse

from .names import Object

# A failure of the API server itself takes longer than any answer.
PATIENCE = 120


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the API server says to one of them."""

    status: int
    text: str


class Server:
    """An API server, and a user of it, of a kubeconfig."""

    def __init__(self, kubeconfig: Object, directory: pathlib.Path) -> None:
        user, cluster = kubeconfig["users"][0]["user"], kubeconfig["clusters"][0]["cluster"]
        self.address = urllib.parse.urlsplit(cluster["server"]).netloc
        files = [self._file(directory, user, name) for name in ("client-certificate", "client-key")]
        self.context = ssl.create_default_context(cafile=self._file(directory, cluster, "certificate-authority"))
        self.context.load_cert_chain(*files)

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


def post_at_once(kubeconfig: Object, path: str, bodies: list[Object]) -> list[Answer]:
    """Sends each body with a connection of its own when all are connected."""
    with tempfile.TemporaryDirectory() as directory:
        server = Server(kubeconfig, pathlib.Path(directory))
        together = threading.Barrier(len(bodies), timeout=PATIENCE)

        def post(body: Object) -> Answer:
            connection = server.connect()
            try:
                together.wait()
                connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
                answer = connection.getresponse()
                return Answer(answer.status, answer.read().decode())
            finally:
                connection.close()

        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            return list(pool.map(post, bodies))
