"""Streams of running machines, as clients of the API server have them: how they end, and which controller serves
them."""

import contextlib
import dataclasses
import secrets
import select
import socket
import threading
import time
import uuid
from collections.abc import Iterator

import websocket

from ..outcome import Failure
from ..patience import PATIENCE, wait_until
from .api import Api
from .kube import Kube
from .names import INSTALLED_IN, Object
from .stream import ABNORMAL, CLOSE, Refused, closing, connect, multiplication, path_of

# The port at which the hello guest sends back what it gets (`nc-echo`).
CONSOLE, ECHO = "console", "portforward/7"
# How long a connection may take, and the answer to a close frame, in seconds.
CONNECTED, CLOSED = 20, 5
# How long the next message may take before others may use the connection, in seconds.
MOMENT = 0.05
# How often a stream is opened until the controller that is wanted serves it: API servers choose one each time.
ATTEMPTS = 30


@dataclasses.dataclass(frozen=True)
class End:
    """How a stream ended, and when (`time.monotonic`)."""

    code: int
    reason: str
    at: float


class Stream:
    """A websocket. It is read, and its pings are answered, until it ends."""

    def __init__(self, opened: websocket.WebSocket) -> None:
        if opened.sock is None:
            raise Failure("the websocket is closed already")
        self.websocket, self.socket = opened, opened.sock
        self.received = b""
        self.end: End | None = None
        self.lock = threading.Lock()
        self.socket.settimeout(MOMENT)
        self.reading = threading.Thread(target=self._read, daemon=True)
        self.reading.start()

    def _read(self) -> None:
        try:
            while self.end is None:
                ready, _, _ = select.select([self.socket], [], [], 1)
                if ready:
                    self._take_what_there_is()
        # The last one: the socket was closed meanwhile.
        except (websocket.WebSocketException, OSError, ValueError) as error:
            self.end = self.end or End(ABNORMAL, str(error), time.monotonic())

    def _take_what_there_is(self) -> None:
        """A part of a message is kept until the rest comes."""
        with self.lock, contextlib.suppress(websocket.WebSocketTimeoutException):
            while self.end is None:
                self._take(self.websocket.frame_buffer.recv_frame())

    def _take(self, frame: websocket.ABNF) -> None:
        data = frame.data if isinstance(frame.data, bytes) else frame.data.encode()
        if frame.opcode == CLOSE:
            self.end = End(*closing(data), time.monotonic())
            self.websocket.send_close()
        elif frame.opcode == websocket.ABNF.OPCODE_PING:
            self.websocket.pong(data)
        elif frame.opcode != websocket.ABNF.OPCODE_PONG:
            self.received += data

    def __str__(self) -> str:
        state = f"has ended ({self.end})" if self.end else "is open"
        return f"the stream {state}; it showed {self.received[-400:]!r}"

    # ---- what is asked of it

    def send(self, data: bytes) -> None:
        with self.lock:
            if self.end:
                raise Failure(str(self))
            self.websocket.send_binary(data)

    def shows(self, text: bytes) -> None:
        """Waits until this has come."""

        def is_shown() -> bool:
            if text not in self.received and self.end:
                raise Failure(f"no {text!r}: {self}")
            return text in self.received

        wait_until(f"{text!r}", is_shown, PATIENCE, self.__str__)

    def multiplies(self) -> None:
        """The guest's shell answers: a console."""
        command, answer = multiplication()
        self.send(command)
        self.shows(answer)

    def echoes(self) -> None:
        """The guest sends back what it gets: a port."""
        sent = secrets.token_hex().encode()
        self.send(sent)
        self.shows(sent)

    def ended(self, seconds: float) -> End:
        """Waits for its end."""
        return wait_until("the end of a stream", lambda: self.end, seconds, self.__str__)

    def close(self) -> None:
        with contextlib.suppress(websocket.WebSocketException, OSError), self.lock:
            if self.end is None:
                self.websocket.send_close()
        self.reading.join(CLOSED)
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


@dataclasses.dataclass(frozen=True)
class Pair:
    """The console of a machine, and a connection to a port of its guest."""

    console: Stream
    port: Stream

    def go_on(self) -> None:
        self.console.multiplies()
        self.port.echoes()

    def ended(self, seconds: float) -> list[End]:
        """Waits for the ends of both."""
        return [each.ended(seconds) for each in (self.console, self.port)]


class Streams:
    """Of machines of a cluster, opened by its administrator."""

    def __init__(self, kube: Kube) -> None:
        self.kube, self.api, self.refusal = kube, Api.of(kube), ""

    def try_to_open(self, name: str, subresource: str, audit_id: str) -> Stream | None:
        """Nothing where it is refused, or there is no API server."""
        path, headers = path_of(name, subresource), {"Audit-ID": audit_id}
        try:
            return Stream(connect(self.api.address, self.api.context, path, headers, CONNECTED))
        except (Refused, websocket.WebSocketException, OSError) as error:
            self.refusal = str(error)
            return None

    def open(self, name: str, subresource: str, audit_id: str | None = None) -> Stream:
        """Waits until it is let in."""
        audit_id = audit_id or str(uuid.uuid4())

        def opened() -> Stream | None:
            return self.try_to_open(name, subresource, audit_id)

        try:
            return self.kube.ask_until(f"{subresource} of {name}", opened)
        except Failure as failure:
            raise Failure(f"{failure}; {self.refusal}") from failure

    @contextlib.contextmanager
    def console_again(self, name: str) -> Iterator[Stream]:
        """A console that would end no other one: the session before has to be over."""
        console = self.open(name, f"{CONSOLE}?preserveSession=true")
        try:
            console.multiplies()
            yield console
        finally:
            console.close()

    @contextlib.contextmanager
    def of(self, name: str, by: Object | None = None) -> Iterator[Pair]:
        """Both streams of a machine, served by a controller, and in use."""
        self.kube.has_shell(name)
        with contextlib.ExitStack() as stack:
            console = self.open_by(name, CONSOLE, by)
            stack.callback(console.close)
            port = self.open_by(name, ECHO, by)
            stack.callback(port.close)
            pair = Pair(console, port)
            pair.go_on()
            yield pair

    def open_by(self, name: str, subresource: str, by: Object | None) -> Stream:
        """A stream that this pod of a controller serves, or any one does."""
        for _ in range(ATTEMPTS):
            audit_id = str(uuid.uuid4())
            stream = self.open(name, subresource, audit_id)
            if by is None or self.server(audit_id) == by["metadata"]["name"]:
                return stream
            stream.close()
        raise Failure(f"of {ATTEMPTS} streams {by and by['metadata']['name']} serves none")

    def server(self, audit_id: str) -> str:
        """The controller's pod that has the request in its log."""

        def found() -> str | None:
            pods = [str(pod["metadata"]["name"]) for pod in self.kube.controllers()]
            logs = {pod: self.kube.tried("logs", pod, "--tail=500", namespace=INSTALLED_IN) for pod in pods}
            return next((pod for pod, log in logs.items() if audit_id in log), None)

        return self.kube.ask_until(f"a controller that has {audit_id} in its log", found)
