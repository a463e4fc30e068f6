"""A collector of spans: OTLP over HTTP with protobuf, as far as tests need it, and an installation that sends to it."""

import contextlib
import http.server
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .kube import Kube
from .late_watches import ADDRESS
from .names import AGENT, CONTROLLER, INSTALLED_IN, Object

PATH = "/v1/traces"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
# Who sends spans.
SENDERS = (f"deployment/{CONTROLLER}", f"daemonset/{AGENT}")

Value = str | bool | int | float | None


@dataclass(frozen=True)
class Span:
    """One span, with the resource and the scope that it came with."""

    trace: str
    span: str
    # Empty: it is the first of its trace.
    parent: str
    name: str
    # Seconds since 1970.
    began: float
    ended: float
    attributes: dict[str, Value] = field(default_factory=dict, hash=False)
    scope: str = ""
    resource: dict[str, Value] = field(default_factory=dict, hash=False)

    def has(self, name: str, **attributes: Value) -> bool:
        """Whether it has this name, and these among its attributes."""
        return self.name == name and attributes.items() <= self.attributes.items()


class Collector:
    """While it is entered it listens where pods of every node reach it, and keeps what comes."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.problems: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://{ADDRESS}:{self.server.server_port}"

    def __enter__(self) -> "Collector":
        self.server = Server((ADDRESS, 0), Handler)
        self.server.collector = self
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def of(self, trace: str) -> list[Span]:
        """The spans of a trace, in the order in which they began."""
        return sorted((each for each in list(self.spans) if each.trace == trace), key=lambda each: each.began)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    collector: Collector


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        kind = self.headers["Content-Type"]
        code = 200
        if self.path != PATH or kind != "application/x-protobuf":
            self.server.collector.problems.append(f"{self.path} with {kind}")
            code = 400
        else:
            try:
                self.server.collector.spans += spans_of(body)
            except (IndexError, KeyError, ValueError, struct.error) as problem:
                self.server.collector.problems.append(repr(problem))
                code = 400
        self.send_response(code)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextlib.contextmanager
def collected(kube: Kube) -> Iterator[Collector]:
    """An installation whose controllers and agents send their spans."""

    def settle(variable: str) -> None:
        for sender in SENDERS:
            kube.kubectl("set", "env", sender, variable, namespace=INSTALLED_IN)
        for sender in SENDERS:
            kube.kubectl("rollout", "status", sender, "--timeout=300s", namespace=INSTALLED_IN)
        # A controller that ends still answers for some seconds, on connections that the API server keeps.
        kube.ask_until("no controller that ends", lambda: not any(map(ends, kube.controllers())))
        kube.ask_until("nodes that take machines", kube.offers_devices)

    def ends(pod: Object) -> bool:
        return "deletionTimestamp" in pod["metadata"]

    with Collector() as collector:
        settle(f"{ENDPOINT}={collector.endpoint}")
        try:
            yield collector
        finally:
            settle(f"{ENDPOINT}-")


# ---- protobuf (https://protobuf.dev/programming-guides/encoding), with the numbers of OTLP's definitions
# (https://github.com/open-telemetry/opentelemetry-proto)


def spans_of(body: bytes) -> list[Span]:
    """The spans of an ExportTraceServiceRequest."""
    found = []
    for resource_spans in parts(body, 1):
        resource: dict[str, Value] = {}
        for each in parts(resource_spans, 1):
            resource |= attributes_of(each, 1)
        for scope_spans in parts(resource_spans, 2):
            [scope] = [text(each, 1) for each in parts(scope_spans, 1)] or [""]
            found += [span_of(span, scope, resource) for span in parts(scope_spans, 2)]
    return found


def span_of(message: bytes, scope: str, resource: dict[str, Value]) -> Span:
    known = dict(fields(message))
    trace, own, parent = (known.get(number, b"").hex() for number in (1, 2, 4))
    began, ended = (int.from_bytes(known[number], "little") / 1e9 for number in (7, 8))
    attributes = attributes_of(message, 9)
    return Span(trace, own, parent, text(message, 5), began, ended, attributes, scope, resource)


def attributes_of(message: bytes, number: int) -> dict[str, Value]:
    """The KeyValues that a message has in a field."""
    return {text(each, 1): value_of(next(parts(each, 2), b"")) for each in parts(message, number)}


def value_of(message: bytes) -> Value:
    """An AnyValue, but for lists and the like."""
    for number, content in fields(message):
        match number:
            case 1:
                return content.decode()
            case 2:
                return any(content)
            case 3:
                return int.from_bytes(content, "little", signed=True)
            case 4:
                number_of: float = struct.unpack("<d", content)[0]
                return number_of
    return None


def text(message: bytes, number: int) -> str:
    return next(parts(message, number), b"").decode()


def parts(message: bytes, number: int) -> Iterator[bytes]:
    """The contents of a field of a message."""
    return (content for found, content in fields(message) if found == number)


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message with their contents; numbers as little-endian bytes, of variable length as eight."""
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        number, kind = tag >> 3, tag & 7
        match kind:
            case 0:
                value, at = varint(message, at)
                yield number, value.to_bytes(8, "little")
                continue
            case 1 | 5:
                length = 8 if kind == 1 else 4
            case 2:
                length, at = varint(message, at)
            case _:
                raise ValueError(f"wire type {kind}")
        if at + length > len(message):
            raise ValueError("a field that is cut off")
        yield number, message[at : at + length]
        at += length


def varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value & (1 << 64) - 1, at
