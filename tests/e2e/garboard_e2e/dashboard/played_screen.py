"""A screen that is played: RFB 3.8 (RFC 6143) without encryption, a picture of bars, and the keys that were pressed."""

import struct
from collections.abc import Callable

WIDTH, HEIGHT = 320, 200
BARS = [
    (255, 255, 255),
    (255, 255, 0),
    (0, 255, 255),
    (0, 255, 0),
    (255, 0, 255),
    (255, 0, 0),
    (0, 0, 255),
    (20, 20, 20),
]
# Kind of a client's message: bytes behind it.
FIXED = {0: 19, 3: 9, 4: 7, 5: 5, 150: 9}
PIXEL_FORMAT = struct.pack(">BBBBHHHBBB3x", 32, 24, 0, 1, 255, 255, 255, 0, 8, 16)


def picture() -> bytes:
    """Eight bars, in the pixel format that noVNC asks for."""
    line = b"".join(bytes([*BARS[x * len(BARS) // WIDTH], 0]) for x in range(WIDTH))
    return struct.pack(">BxH", 0, 1) + struct.pack(">HHHHi", 0, 0, WIDTH, HEIGHT, 0) + line * HEIGHT


def serve(read: Callable[[int], bytes], write: Callable[[bytes], None], pressed: list[int]) -> None:
    """Until `read` raises."""
    write(b"RFB 003.008\n")
    read(12)
    write(b"\x01\x01")
    read(1)
    write(struct.pack(">I", 0))
    read(1)
    name = b"played"
    write(struct.pack(">HH", WIDTH, HEIGHT) + PIXEL_FORMAT + struct.pack(">I", len(name)) + name)
    while True:
        kind = read(1)[0]
        if kind == 2:
            (count,) = struct.unpack(">xH", read(3))
            read(4 * count)
            continue
        if kind == 6:
            read(struct.unpack(">3xi", read(7))[0])
            continue
        body = read(FIXED[kind])
        if kind == 3 and not body[0]:
            write(picture())
        elif kind == 4 and body[0]:
            pressed.append(struct.unpack(">xxI", body[1:])[0])
