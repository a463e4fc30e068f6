"""A web server on another host, for guests that load and compare."""

import hashlib
import http.server
import os
import random
import threading
from types import TracebackType
from typing import Any

from .other_host import OtherHost


class Source:
    """Serves the guest data that it compares with its sum."""

    server: http.server.ThreadingHTTPServer
    target: str

    def __init__(self) -> None:
        first = os.getpid() % 100 * 2 + 20
        self.host = OtherHost(f"flt{os.getpid()}", f"198.51.100.{first}", f"198.51.100.{first + 1}")
        self.served = 0
        self.handler = handler_of(self, random.randbytes(256 * 1024))

    def __enter__(self) -> "Source":
        self.host.__enter__()
        address = (self.host.address, 0)
        self.server = self.host.made(lambda: http.server.ThreadingHTTPServer(address, self.handler))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.target = f"{self.host.address}:{self.server.server_port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.host.__exit__(kind, error, trace)


def handler_of(source: Source, data: bytes) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = hashlib.md5(data).hexdigest().encode() if self.path == "/sum" else data
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            source.served += self.path != "/sum"

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
