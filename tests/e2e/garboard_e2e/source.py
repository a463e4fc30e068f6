"""A web server that stands for another host, for guests that load and compare."""

import ctypes
import hashlib
import http.server
import os
import random
import subprocess
import threading
from types import TracebackType
from typing import Any

# setns(2)
CLONE_NEWNET = 0x40000000


class Source:
    """Serves the guest data that it compares with its sum, from a network namespace that stands for another host: of
    its own host's services a guest reaches none."""

    server: http.server.ThreadingHTTPServer
    target: str

    def __init__(self) -> None:
        # Reserved for documentation (RFC 5737), so they are in use nowhere.
        first = os.getpid() % 100 * 2 + 20
        self.link, self.address, self.ours = f"flt{os.getpid()}", f"198.51.100.{first}", f"198.51.100.{first + 1}"
        self.served = 0
        self.handler = handler_of(self, random.randbytes(256 * 1024))

    def __enter__(self) -> "Source":
        for command in (
            f"netns add {self.link}",
            f"link add {self.link} type veth peer name eth0 netns {self.link}",
            f"address add {self.ours} peer {self.address} dev {self.link}",
            f"link set {self.link} up",
            f"-n {self.link} address add {self.address} peer {self.ours} dev eth0",
            f"-n {self.link} link set eth0 up",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        maker = threading.Thread(target=self.listen)
        maker.start()
        maker.join()
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.target = f"{self.address}:{self.server.server_port}"
        return self

    def listen(self) -> None:
        """In a thread of its own, which alone enters the namespace; the socket stays there."""
        with open(f"/run/netns/{self.link}", "rb") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        self.server = http.server.ThreadingHTTPServer((self.address, 0), self.handler)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.shutdown()
        self.server.server_close()
        subprocess.run(["ip", "netns", "delete", self.link], check=True)


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
