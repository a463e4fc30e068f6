"""A registry on loopback that lies. The repository's name is what it does with a request."""

import hashlib
import http.server
import json
import threading
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def manifest(layer: bytes, size: int | None = None) -> bytes:
    configuration = b"{}"
    return json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest(configuration),
                "size": 2,
            },
            "layers": [{"mediaType": LAYER, "digest": digest(layer), "size": len(layer) if size is None else size}],
        }
    ).encode()


class Lies(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Server"

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, code: int, content: bytes = b"", kind: str = "application/json", **headers: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = self.path.strip("/").split("/")
        if parts == ["v2"]:
            self.answer(200, b"{}")
            return
        lie, what = parts[1], parts[2]
        getattr(self, f"{what}_{lie.replace('-', '_')}", getattr(self, what))(lie)

    def manifests(self, _: str) -> None:
        content = manifest(self.server.layer)
        self.answer(200, content, MANIFEST, Docker_Content_Digest=digest(content))

    def blobs(self, _: str) -> None:
        self.answer(200, self.server.layer, "application/octet-stream")

    # What is asked for is another thing than what comes.
    def blobs_wrong_layer(self, _: str) -> None:
        self.answer(200, bytes(len(self.server.layer)), "application/octet-stream")

    def blobs_longer_layer(self, _: str) -> None:
        self.answer(200, self.server.layer + bytes(4096), "application/octet-stream")

    def blobs_cut_layer(self, _: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.layer)))
        self.end_headers()
        self.wfile.write(self.server.layer[:100])
        self.close_connection = True

    def manifests_wrong_manifest(self, _: str) -> None:
        # Names one digest in its header, and sends another thing; a client that pinned the digest must notice.
        content = manifest(self.server.layer)
        self.answer(200, content, MANIFEST, Docker_Content_Digest=f"sha256:{'0' * 64}")

    def manifests_huge_layer(self, _: str) -> None:
        self.answer(200, manifest(self.server.layer, size=1 << 50), MANIFEST)

    def manifests_wrong_type(self, _: str) -> None:
        self.answer(200, json.dumps({"schemaVersion": 1, "name": "old", "fsLayers": []}).encode(), "text/html")

    def manifests_garbage(self, _: str) -> None:
        self.answer(200, b"<html>\x00\xff\x1b[31m what registry?</html>", MANIFEST)

    def manifests_not_http(self, _: str) -> None:
        self.wfile.write(b"\x16\x03\x01\x02\x00 this is not HTTP\r\n\r\n" * 10)
        self.close_connection = True

    # It refuses.
    def manifests_broken(self, _: str) -> None:
        self.answer(500, b'{"errors": [{"code": "UNKNOWN", "message": "disk on fire"}]}')

    def blobs_broken_layer(self, _: str) -> None:
        self.answer(500)

    def manifests_missing(self, _: str) -> None:
        self.answer(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}')

    def manifests_secret(self, _: str) -> None:
        self.answer(
            401, b'{"errors": [{"code": "UNAUTHORIZED", "message": "no"}]}', WWW_Authenticate='Basic realm="nobody"'
        )

    def manifests_busy(self, _: str) -> None:
        self.answer(429, b'{"errors": [{"code": "TOOMANYREQUESTS", "message": "slow down"}]}')

    def manifests_stalls(self, _: str) -> None:
        self.server.released.wait(120)
        self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    """Has the honest layer, and when stalled requests may go on."""

    daemon_threads = True

    def __init__(self, layer: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Lies)
        self.layer, self.released = layer, threading.Event()


class Registry:
    """Serves `HOST/LIE:1` until it is closed; the honest part of every lie has this layer."""

    def __init__(self, layer: bytes) -> None:
        self.server = Server(layer)
        self.host = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> "Registry":
        return self

    def __exit__(self, *_: object) -> None:
        self.server.released.set()
        self.server.shutdown()
        self.server.server_close()
