"""A way to the API server of a test cluster on which watches come late: what they bring is held back for as long as
`lag` is set to, everything else passes at once. HTTP/1.1 only, so that a watch has its connection for itself."""

import collections
import contextlib
import pathlib
import re
import select
import socket
import ssl
import threading
import time

# Where the API server listens, and this beside it: the certificate of the one is good for the other.
ADDRESS, PORT, BESIDE = "172.30.0.1", 6443, 6444
WATCH = re.compile(rb"^GET [^ ]*[?&]watch=(?:true|1)\b")
CHUNK = 64 * 1024


class LateWatches:
    """While it is entered it listens. `lag` in seconds may be changed at any time; `late` is how many pieces came
    late."""

    def __init__(self, state: pathlib.Path) -> None:
        """`state`: the directory of the cluster's certificates."""
        self.lag, self.late = 0.0, 0
        self.listening = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.listening.load_cert_chain(state / "pki/apiserver.crt", state / "pki/apiserver.key")
        self.listening.set_alpn_protocols(["http/1.1"])
        self.calling = ssl._create_unverified_context()
        self.connections: set[ssl.SSLSocket] = set()

    def __enter__(self) -> "LateWatches":
        self.socket = socket.create_server((ADDRESS, BESIDE))
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closed alone it would not wake the thread that accepts.
        for each in [self.socket, *self.connections]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.socket.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            client.settimeout(10)
            with (
                self.listening.wrap_socket(client, server_side=True) as near,
                socket.create_connection((ADDRESS, PORT)) as plain,
                self.calling.wrap_socket(plain) as far,
            ):
                pair = Pair(self, near, far)
                self.connections |= {near, far}
                try:
                    pair.run()
                finally:
                    self.connections -= {near, far}


class Pair:
    """One connection, and the one to the API server that it stands for. One thread does all: OpenSSL requires that."""

    def __init__(self, owner: LateWatches, near: ssl.SSLSocket, far: ssl.SSLSocket) -> None:
        self.owner, self.near, self.far = owner, near, far
        self.is_watch, self.head, self.over = False, b"", False
        self.held: collections.deque[tuple[float, bytes]] = collections.deque()

    def run(self) -> None:
        while True:
            self.hand_over()
            # A last answer may be held back although its connection has ended.
            if self.over and not self.held:
                return
            for each in self.readable():
                piece = receive(each)
                if piece is None:
                    continue
                if not piece:
                    self.over = True
                    if each is self.near:
                        return
                elif each is self.near:
                    self.ask(piece)
                else:
                    self.answer(piece, time.monotonic())

    def readable(self) -> list[ssl.SSLSocket]:
        wanted = [self.near] if self.over else [self.near, self.far]
        # What OpenSSL has decrypted already, no kernel reports. The lag may change while something is held.
        decrypted = [each for each in wanted if each.pending()]
        return decrypted or select.select(wanted, [], [], 0.1 if self.held else 60)[0]

    def ask(self, piece: bytes) -> None:
        """A request begins a piece: HTTP/1.1 waits for the answer before the next one."""
        self.is_watch = self.is_watch or bool(WATCH.match(piece))
        send(self.far, piece)

    def answer(self, piece: bytes, now: float) -> None:
        """The head of a watch's answer passes: only its events are late."""
        if not self.is_watch:
            send(self.near, piece)
            return
        if b"\r\n\r\n" not in self.head:
            before = len(self.head)
            self.head += piece
            end = self.head.find(b"\r\n\r\n") + 4
            passes = end - before if end > 3 else len(piece)
            send(self.near, piece[:passes])
            piece = piece[passes:]
        if piece:
            self.held.append((now, piece))

    def hand_over(self) -> None:
        """What has waited for long enough."""
        while self.held and time.monotonic() >= self.held[0][0] + self.owner.lag:
            self.owner.late += self.owner.lag > 0
            send(self.near, self.held.popleft()[1])


def receive(end: ssl.SSLSocket) -> bytes | None:
    """Empty at the end; nothing as long as no record is whole."""
    end.settimeout(0)
    try:
        return end.recv(CHUNK)
    except (ssl.SSLWantReadError, BlockingIOError):
        return None
    except OSError:
        return b""


def send(end: ssl.SSLSocket, piece: bytes) -> None:
    end.settimeout(30)
    end.sendall(piece)
