"""As much of a VNC viewer as a check needs: RFB 3.8 (RFC 6143) without encryption, one picture."""

import socket
import struct

from .outcome import Failure

RAW, NO_SECURITY = 0, 1
MAX_NAME = 4096


class Viewer:
    """A connected viewer; the socket is anything that is connected to the screen."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        sock.settimeout(seconds)
        self.sock, self.stream = sock, sock.makefile("rb")
        self.shake_hands()
        self.width, self.height = struct.unpack(">HH", self.read(4))
        self.pixel_format = self.read(16)
        self.name = self.read(min(struct.unpack(">I", self.read(4))[0], MAX_NAME)).decode(errors="replace")

    def read(self, count: int) -> bytes:
        if len(data := self.stream.read(count)) != count:
            raise Failure(f"the screen hung up: {len(data)} of {count} bytes came")
        return data

    def shake_hands(self) -> None:
        version = self.read(12)
        if not version.startswith(b"RFB 003.00"):
            raise Failure(f"this is no VNC server: {version!r}")
        self.sock.sendall(b"RFB 003.008\n")
        kinds = self.read(self.read(1)[0])
        if NO_SECURITY not in kinds:
            raise Failure(f"the screen requires a password: security types {list(kinds)}")
        self.sock.sendall(bytes([NO_SECURITY]))
        if refused := struct.unpack(">I", self.read(4))[0]:
            raise Failure(f"the screen refused the viewer: {refused}")
        # Shared: QEMU would otherwise disconnect the others.
        self.sock.sendall(b"\x01")

    def picture(self) -> int:
        """One whole picture: how many pixels came, in rectangles that must lie on the screen."""
        self.sock.sendall(struct.pack(">BxHi", 2, 1, RAW))
        self.sock.sendall(struct.pack(">BBHHHH", 3, 0, 0, 0, self.width, self.height))
        while (kind := self.read(1)[0]) != 0:
            self.skip(kind)
        _, rectangles = struct.unpack(">BH", self.read(3))
        pixels, bytes_per_pixel = 0, self.pixel_format[0] // 8
        for _ in range(rectangles):
            x, y, width, height, encoding = struct.unpack(">HHHHi", self.read(12))
            if encoding != RAW or x + width > self.width or y + height > self.height:
                raise Failure(f"a rectangle {width}x{height} at {x},{y} of encoding {encoding} was not asked for")
            self.read(width * height * bytes_per_pixel)
            pixels += width * height
        return pixels

    def skip(self, kind: int) -> None:
        """What a server may send unasked: a bell, a text on the clipboard."""
        if kind == 3:
            self.read(3)
            self.read(struct.unpack(">I", self.read(4))[0])
        elif kind != 2:
            raise Failure(f"the screen sent a message of unknown kind {kind}")

    def close(self) -> None:
        self.stream.close()
        self.sock.close()
