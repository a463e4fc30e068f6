"""An API server that is played: machines, instances and events from the recorded situations, watches, and subresources
that tests can have refused. It listens where kubectl's proxy would; `played_kubectl.py` leads there."""

import copy
import email.message
import http.server
import json
import pathlib
import queue
import socket
import socketserver
import ssl
import threading
import urllib.parse
from typing import Any, BinaryIO, cast

from ..places import REPOSITORY
from . import played_screen
from .websocket import Closed, Websocket, accept

Object = dict[str, Any]
SITUATIONS = REPOSITORY / "tests/situations"
SHOWN = ("running", "halted", "noRoom", "backOff", "imagePull", "quotaExceeded", "qemuKilled", "claimMissing")
KINDS = {"virtualmachines": "VirtualMachine", "virtualmachineinstances": "VirtualMachineInstance", "events": "Event"}
GREETING = "Welcome to the played guest\r\nhello login: "


def key(item: Object) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def status(code: int, reason: str, message: str) -> Object:
    """As API servers refuse."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


class Collection:
    """Objects of one kind, and who watches them."""

    def __init__(self, kind: str) -> None:
        self.kind, self.version = kind, 1
        self.objects: dict[str, Object] = {}
        self.watchers: list[queue.Queue[Object | None]] = []
        self.lock = threading.Lock()

    def put(self, item: Object) -> None:
        with self.lock:
            self.version += 1
            item = copy.deepcopy(item)
            item["metadata"]["resourceVersion"] = str(self.version)
            event = "MODIFIED" if key(item) in self.objects else "ADDED"
            self.objects[key(item)] = item
            self.publish({"type": event, "object": item})

    def delete(self, name: str) -> None:
        with self.lock:
            self.version += 1
            item = self.objects.pop(name)
            item["metadata"]["resourceVersion"] = str(self.version)
            self.publish({"type": "DELETED", "object": item})

    def publish(self, event: Object | None) -> None:
        for each in self.watchers:
            each.put(event)

    def end_watches(self) -> None:
        with self.lock:
            self.publish(None)

    def listed(self, namespace: str | None) -> list[Object]:
        with self.lock:
            return [each for each in self.objects.values() if namespace in (None, each["metadata"]["namespace"])]


class PlayedApi:
    """What it has, what it was asked, and how it behaves."""

    def __init__(self, socket: pathlib.Path) -> None:
        self.socket = socket
        self.collections = {kind: Collection(KINDS[kind]) for kind in KINDS}
        self.facts = {name: json.loads((SITUATIONS / f"{name}.json").read_text()) for name in SHOWN}
        self.pods: list[Object] = []
        for facts in self.facts.values():
            self.add(facts)
        # METHOD and path: what is answered instead.
        self.refusals: dict[str, Object] = {}
        self.forbidden_everywhere = False
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.typed, self.pressed = bytearray(), list[int]()
        self.consoles: list[Websocket] = []
        # Where tokens are asked for: who has each that is good.
        self.tokens: dict[str, str] = {}
        # As controllers of a version before do not.
        self.knows_places = True
        self.server = Server(self)

    def add(self, facts: Object) -> None:
        for kind, item in (("virtualmachines", facts.get("vm")), ("virtualmachineinstances", facts.get("vmi"))):
            if item:
                self.collections[kind].put(item)
        for event in facts.get("events", []):
            self.collections["events"].put(event)
        for pod in facts.get("pods", []):
            # A field that earlier recordings do not have.
            owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": facts["name"]}
            uid = pod["metadata"]["labels"]["kubevirt.io/created-by"]
            pod["metadata"].setdefault("ownerReferences", [{**owner, "uid": uid, "controller": True}])
            self.pods.append(pod)

    def machine(self, name: str) -> Object:
        return copy.deepcopy(self.collections["virtualmachines"].objects[f"tenant/{name}"])

    def changes(self) -> list[str]:
        return [path for method, path, _, _ in self.asked if method == "PUT"]

    def sent(self, part: str) -> list[dict[str, str]]:
        """The headers, by their names in small letters, of each request with this part in its path."""
        found = (sent for _, path, sent, _ in self.asked if part in path)
        return [{name.lower(): value for name, value in sent.items()} for sent in found]

    def user(self, headers: email.message.Message) -> str | None:
        """Who asks, by the token."""
        return self.tokens.get((headers["Authorization"] or "").removeprefix("Bearer "))

    def answered(self, parts: list[str], query: dict[str, str]) -> Object | None:
        """What `why` asks for that is neither watched nor listed by the page: an object, a list, or nothing."""
        namespace = parts[parts.index("namespaces") + 1] if "namespaces" in parts else ""
        match parts:
            case ["apis", "kubevirt.io", "v1", "namespaces", _, kind, name] if kind in KINDS:
                return self.collections[kind].objects.get(f"{namespace}/{name}")
            case ["api", "v1", "namespaces", _, "persistentvolumeclaims", name]:
                return next(iter(self.kubectl_get(["pvc", name], namespace)), None)
            case ["apis", "apps", "v1", "namespaces", "garboard", "deployments", _]:
                return self.kubectl_get(["deployment"], namespace)[0]
            case ["api", "v1", "namespaces", _, "pods"]:
                selector = query["labelSelector"]
                return {"kind": "PodList", "items": self.kubectl_get(["pods", "-l", selector], namespace)}
            case ["api", "v1", "nodes"]:
                return {"kind": "NodeList", "items": self.kubectl_get(["nodes"], "")}
            case ["apis", "kubevirt.io", "v1", "kubevirts"]:
                return {"kind": "KubeVirtList", "items": self.kubectl_get(["kubevirts.kubevirt.io"], "")}
        return None

    def kubectl_get(self, arguments: list[str], namespace: str) -> list[Object]:
        """What `kubectl get ARGUMENTS` has, of what `why` asks for."""
        names = [each for each in arguments[1:] if not each.startswith("-")]
        match arguments[0]:
            case what if "/" in what:
                asked = [each.split("/") for each in arguments if "/" in each]
                found = (
                    self.collections[kind.split(".")[0]].objects.get(f"{namespace}/{name}") for kind, name in asked
                )
                return [each for each in found if each]
            case "pods" if "kubevirt.io=virt-launcher" in arguments:
                return [each for each in self.pods if each["metadata"]["namespace"] == namespace]
            case "pods":
                return cast(list[Object], self.facts["running"]["parts"]["agents"])
            case "deployment":
                return [self.facts["running"]["parts"]["controller"]]
            case "nodes" | "kubevirts.kubevirt.io" as what:
                return cast(list[Object], self.facts["running"]["nodes" if what == "nodes" else "kubevirts"])
            case "pvc":
                claims = (each for facts in self.facts.values() for each in facts["claims"])
                return [each for each in claims if each["metadata"]["name"] in names]
            case "events":
                wanted = arguments[1].rpartition("=")[2]
                events = self.collections["events"].listed(namespace)
                return [each for each in events if each["involvedObject"]["name"] == wanted]
            case _:
                return []


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """On a unix socket, in threads."""

    daemon_threads = True

    def __init__(self, api: PlayedApi) -> None:
        self.api = api
        super().__init__(str(api.socket), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class TlsServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """The same by TLS, for who has a token: at a port of loopback."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, api: PlayedApi, certificate: pathlib.Path) -> None:
        self.api = api
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
        super().__init__(("127.0.0.1", 0), TokenHandler)
        self.port = int(self.server_address[1])
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        # The thread of the connection has its handshake.
        return self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, *arguments: object) -> None:
        """A dashboard that ends leaves connections behind."""


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    @property
    def api(self) -> PlayedApi:
        return cast(Server | TlsServer, self.server).api

    def address_string(self) -> str:
        return "dashboard"

    def log_message(self, *arguments: object) -> None:
        """Tests look at `asked`."""

    def reply(self, document: Object, code: int = 200) -> None:
        body = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.answer(b"")

    def do_PUT(self) -> None:
        self.answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

    def answer(self, body: bytes) -> None:
        self.close_connection = True
        target = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(target.query))
        if target.path == "/played-kubectl":
            self.reply({"items": self.api.kubectl_get(json.loads(query["arguments"]), query["namespace"])})
            return
        self.api.asked.append((self.command, self.path, dict(self.headers.items()), body))
        parts = target.path.strip("/").split("/")
        if refusal := self.api.refusals.get(f"{self.command} {target.path}"):
            self.reply(refusal, refusal["code"])
        elif parts[0:2] == ["apis", "subresources.kubevirt.io"] and self.command == "PUT":
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif parts[-1] in ("console", "vnc"):
            self.stream(parts[-1], query)
        elif collection := self.api.collections.get(parts[-1]):
            self.collection(collection, parts, query)
        else:
            self.reply(status(404, "NotFound", "the server could not find the requested resource"), 404)

    def collection(self, collection: Collection, parts: list[str], query: dict[str, str]) -> None:
        namespace = parts[parts.index("namespaces") + 1] if "namespaces" in parts else None
        if namespace is None and self.api.forbidden_everywhere:
            what = f'cannot list resource "{parts[-1]}" at the cluster scope'
            message = f'{parts[-1]}.kubevirt.io is forbidden: User "bob" {what}'
            self.reply(status(403, "Forbidden", message), 403)
        elif query.get("watch") == "true":
            self.watch(collection, namespace, int(query["resourceVersion"]))
        else:
            items = collection.listed(namespace)
            if name := query.get("fieldSelector", "").removeprefix("involvedObject.name="):
                items = [each for each in items if each["involvedObject"]["name"] == name]
            first, limit = int(query.get("continue", "0")), int(query.get("limit", "0")) or len(items)
            metadata = {"resourceVersion": str(collection.version)}
            if first + limit < len(items):
                metadata["continue"] = str(first + limit)
            self.reply({"kind": f"{collection.kind}List", "metadata": metadata, "items": items[first : first + limit]})

    def upgraded(self, protocol: str | None) -> Websocket:
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept(self.headers["Sec-WebSocket-Key"]))
        if protocol:
            self.send_header("Sec-WebSocket-Protocol", protocol)
        self.end_headers()
        return Websocket(cast(BinaryIO, self.rfile), cast(BinaryIO, self.wfile))

    def watch(self, collection: Collection, namespace: str | None, version: int) -> None:
        # As the library of API servers: it wants an Origin, and takes no protocols for a watch.
        if "Origin" not in self.headers or "Sec-WebSocket-Protocol" in self.headers:
            self.reply(status(403, "Forbidden", "null origin, or a protocol"), 403)
            return
        websocket = self.upgraded(None)
        events: queue.Queue[Object | None] = queue.Queue()
        with collection.lock:
            missed = [
                each for each in collection.objects.values() if int(each["metadata"]["resourceVersion"]) > version
            ]
            collection.watchers.append(events)
        try:
            for each in missed:
                websocket.send(json.dumps({"type": "MODIFIED", "object": each}))
            while event := events.get():
                if namespace in (None, event["object"]["metadata"].get("namespace", namespace)):
                    websocket.send(json.dumps(event))
            websocket.close()
        except Closed:
            pass
        finally:
            collection.watchers.remove(events)

    def stream(self, verb: str, query: dict[str, str]) -> None:
        if self.headers.get("Sec-WebSocket-Protocol") != "plain.kubevirt.io":
            self.reply(status(400, "BadRequest", "no protocol that is known"), 400)
            return
        websocket = self.upgraded("plain.kubevirt.io")
        try:
            if verb == "vnc":
                self.screen(websocket)
            else:
                self.console(websocket, query.get("position"))
        except Closed:
            pass

    def console(self, websocket: Websocket, position: str | None) -> None:
        """It echoes, as a terminal of Linux does. A client that names a place has seen the greeting."""
        self.api.consoles.append(websocket)
        resumed = position not in (None, "new") and self.api.knows_places
        if position and self.api.knows_places:
            begun = {"position": position if resumed else "5e1f.0", "resumed": resumed, "missed": 0}
            websocket.send(json.dumps(begun))
        if not resumed:
            websocket.send(GREETING.encode())
        while True:
            typed = websocket.receive()
            self.api.typed += typed
            websocket.send(typed.replace(b"\r", b"\r\n"))

    def screen(self, websocket: Websocket) -> None:
        begun = bytearray()

        def read(count: int) -> bytes:
            while len(begun) < count:
                begun.extend(websocket.receive())
            taken = bytes(begun[:count])
            del begun[:count]
            return taken

        played_screen.serve(read, websocket.send, self.api.pressed)


class TokenHandler(Handler):
    """One request by TLS: without a token that is known it is refused, as by an API server."""

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

    def answer(self, body: bytes) -> None:
        target = urllib.parse.urlsplit(self.path)
        parts, query = target.path.strip("/").split("/"), dict(urllib.parse.parse_qsl(target.query))
        user = self.api.user(self.headers)
        if user is None:
            self.say(status(401, "Unauthorized", "Unauthorized"))
        elif parts[-1] == "selfsubjectreviews":
            self.say({"kind": "SelfSubjectReview", "status": {"userInfo": {"username": user}}}, 201)
        elif f"{self.command} {target.path}" in self.api.refusals or self.command != "GET":
            super().answer(body)
        elif found := self.api.answered(parts, query):
            self.say(found, 200)
        else:
            super().answer(body)

    def say(self, document: Object, code: int | None = None) -> None:
        """An answer, with a note of what was asked."""
        self.close_connection = True
        self.api.asked.append((self.command, self.path, dict(self.headers.items()), b""))
        self.reply(document, code or document["code"])
