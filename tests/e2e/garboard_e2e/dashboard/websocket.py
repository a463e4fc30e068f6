"""The server's side of a websocket (RFC 6455), as much as API servers use: no extensions, no fragments from clients."""

import base64
import contextlib
import hashlib
import struct
import threading
from typing import BinaryIO

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
NORMAL, AWAY, NO_CODE = 1000, 1001, 1005
LONGEST_MESSAGE = 1 << 20


def accept(key: str) -> str:
    return base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()


class Closed(Exception):
    """The client has closed it, or the connection ended."""


class Websocket:
    """One that is open."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self.reader, self.writer = reader, writer
        self.lock = threading.Lock()

    def frame(self, kind: int, payload: bytes) -> None:
        count = len(payload)
        if count < 126:
            head = struct.pack(">BB", 0x80 | kind, count)
        elif count < 1 << 16:
            head = struct.pack(">BBH", 0x80 | kind, 126, count)
        else:
            head = struct.pack(">BBQ", 0x80 | kind, 127, count)
        with self.lock:
            try:
                self.writer.write(head + payload)
                self.writer.flush()
            # A file that the thread of the connection has closed meanwhile raises the other one.
            except (OSError, ValueError) as error:
                raise Closed from error

    def send(self, payload: bytes | str) -> None:
        if isinstance(payload, str):
            self.frame(TEXT, payload.encode())
        else:
            self.frame(BINARY, payload)

    def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Its client may be quicker: then the connection is over before this has returned."""
        with contextlib.suppress(Closed):
            self.frame(CLOSE, struct.pack(">H", code) + reason.encode())

    def exactly(self, count: int) -> bytes:
        try:
            data = self.reader.read(count)
        except OSError as error:
            raise Closed from error
        if len(data) != count:
            raise Closed
        return data

    def receive(self) -> bytes:
        """The next message of the client."""
        while True:
            kind, length = struct.unpack(">BB", self.exactly(2))
            if not length & 0x80:
                raise Closed
            length &= 0x7F
            if length == 126:
                (length,) = struct.unpack(">H", self.exactly(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", self.exactly(8))
            if length > LONGEST_MESSAGE:
                raise Closed
            mask = self.exactly(4)
            payload = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.exactly(length)))
            match kind & 0x0F:
                case 1 | 2:
                    return payload
                case 8:
                    raise Closed
                case 9:
                    self.frame(PONG, payload)
