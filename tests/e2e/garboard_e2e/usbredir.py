"""The protocol of usbredir (usbredirproto.h), as much as a client needs to play one USB device. The client has the
capabilities without which QEMU attaches nothing to an xHCI controller, and no other."""

import contextlib
import dataclasses
import enum
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Protocol

from .outcome import Failure
from .patience import PATIENCE

SUCCESS, STALL, FULL_SPEED = 0, 4, 1
# Of endpoints.
OF_CONTROL, INVALID = 0, 255
# Type, length of what follows, and a number that an answer has too: in a greeting, and after it.
FIRST_HEADER, HEADER = struct.Struct("<III"), struct.Struct("<IIQ")
# The sizes of packets of endpoints are sent, numbers have 64 bits, lengths of bulk transfers 32.
CAPABILITIES = struct.pack("<I", 1 << 4 | 1 << 5 | 1 << 6)
# Endpoint, request, type of the request, status, value, index, length.
REQUEST = struct.Struct("<BBBBHHH")
VERSION_BYTES, INTERFACES, ENDPOINTS = 64, 32, 32
# What a device is asked (USB 2.0, chapter 9).
GET_STATUS, GET_DESCRIPTOR = 0, 6
ENGLISH, VENDOR_SPECIFIC, MAX_PACKET = 0x0409, 0xFF, 64
# QEMU's side begins so (hw/usb/redirect.c).
QEMU = "qemu usb-redir guest "


class Kind(enum.IntEnum):
    """Of packets."""

    HELLO = 0
    DEVICE_CONNECT = 1
    INTERFACE_INFO = 4
    EP_INFO = 5
    SET_CONFIGURATION = 6
    GET_CONFIGURATION = 7
    CONFIGURATION_STATUS = 8
    CONTROL = 100


class Descriptor(enum.IntEnum):
    DEVICE = 1
    CONFIGURATION = 2
    STRING = 3


class Line(Protocol):
    """A connection that carries bytes."""

    def read(self, count: int) -> bytes:
        """Exactly so many."""

    def send(self, content: bytes) -> None: ...

    def close(self) -> None: ...


class Socket:
    """A line of a connected socket."""

    def __init__(self, connected: socket.socket) -> None:
        self.connected, self.stream = connected, connected.makefile("rb")
        connected.settimeout(PATIENCE)

    def read(self, count: int) -> bytes:
        if len(content := self.stream.read(count)) != count:
            raise Failure(f"the other side hung up: {len(content)} of {count} bytes came")
        return content

    def send(self, content: bytes) -> None:
        self.connected.sendall(content)

    def has_ended(self) -> bool:
        """Whether the other side hangs up, which is waited for, before it says anything more."""
        with contextlib.suppress(ConnectionError):
            return not self.stream.peek(1)
        return True

    def close(self) -> None:
        """Also for a thread that reads."""
        with contextlib.suppress(OSError):
            self.connected.shutdown(socket.SHUT_RDWR)
        self.connected.close()


@dataclasses.dataclass(frozen=True)
class Packet:
    kind: int
    number: int
    content: bytes

    @classmethod
    def read(cls, line: Line, header: struct.Struct = HEADER) -> "Packet":
        kind, length, number = header.unpack(line.read(header.size))
        return cls(kind, number, line.read(length))

    def send(self, line: Line, header: struct.Struct = HEADER) -> None:
        line.send(header.pack(self.kind, len(self.content), self.number) + self.content)


def greeted(line: Line) -> str:
    """The version of QEMU's side, which greets without being greeted."""
    packet = Packet.read(line, FIRST_HEADER)
    if (packet.kind, packet.number) != (Kind.HELLO, 0) or len(packet.content) < VERSION_BYTES + 4:
        raise Failure(f"this is no greeting: {packet}")
    version = packet.content[:VERSION_BYTES].rstrip(b"\0").decode()
    if not version.startswith(QEMU) or not any(packet.content[VERSION_BYTES:]):
        raise Failure(f"this is no greeting of QEMU: {packet}")
    return version


def greet(line: Line) -> None:
    """What a client says first: its version and capabilities."""
    Packet(Kind.HELLO, 0, b"garboard".ljust(VERSION_BYTES, b"\0") + CAPABILITIES).send(line, FIRST_HEADER)


@dataclasses.dataclass(frozen=True)
class Device:
    """A USB device of no class, with a name."""

    vendor: int
    product: int
    name: str
    # The files of a Linux guest that have the names of its devices, as a shell matches them.
    seen_in = "/sys/bus/usb/devices/*/product"

    def descriptor(self, kind: int, index: int) -> bytes | None:
        """One that it is asked for, if it has it."""
        match kind, index:
            case Descriptor.DEVICE, 0:
                ids = struct.pack("<HHH", self.vendor, self.product, 0x0100)
                head = struct.pack("<BBHBBBB", 18, Descriptor.DEVICE, 0x0110, 0, 0, 0, MAX_PACKET)
                return head + ids + bytes([0, 1, 0, 1])
            case Descriptor.CONFIGURATION, 0:
                interface = bytes([9, 4, 0, 0, 0, VENDOR_SPECIFIC, 0, 0, 0])
                return struct.pack("<BBHBBBBB", 9, Descriptor.CONFIGURATION, 18, 1, 1, 0, 0x80, 50) + interface
            case Descriptor.STRING, 0:
                return struct.pack("<BBH", 4, Descriptor.STRING, ENGLISH)
            case Descriptor.STRING, 1:
                text = self.name.encode("utf-16-le")
                return bytes([2 + len(text), Descriptor.STRING]) + text
        return None

    def connect(self, line: Line) -> None:
        """Plugs it in."""
        kinds = bytearray([INVALID] * ENDPOINTS)
        # The two directions of endpoint 0.
        kinds[0] = kinds[ENDPOINTS // 2] = OF_CONTROL
        sizes = struct.pack("<H", MAX_PACKET) + bytes(2 * (ENDPOINTS // 2 - 1))
        Packet(Kind.EP_INFO, 0, bytes(kinds) + bytes(2 * ENDPOINTS) + 2 * sizes).send(line)
        of_interfaces = bytes([VENDOR_SPECIFIC]).ljust(INTERFACES, b"\0")
        interfaces = struct.pack("<I", 1) + bytes(INTERFACES) + of_interfaces + bytes(2 * INTERFACES)
        Packet(Kind.INTERFACE_INFO, 0, interfaces).send(line)
        described = struct.pack("<BBBBHH", FULL_SPEED, 0, 0, 0, self.vendor, self.product)
        Packet(Kind.DEVICE_CONNECT, 0, described).send(line)

    def answer(self, packet: Packet) -> Packet | None:
        """What it says to a packet, if it has to say something."""
        match packet.kind:
            case Kind.SET_CONFIGURATION:
                return Packet(Kind.CONFIGURATION_STATUS, packet.number, bytes([SUCCESS, packet.content[0]]))
            case Kind.GET_CONFIGURATION:
                return Packet(Kind.CONFIGURATION_STATUS, packet.number, bytes([SUCCESS, 1]))
            case Kind.CONTROL:
                return Packet(Kind.CONTROL, packet.number, self.controlled(packet.content))
        return None

    def controlled(self, content: bytes) -> bytes:
        """The answer to a request at endpoint 0."""
        endpoint, request, kind, _, value, index, length = REQUEST.unpack(content[: REQUEST.size])
        found: bytes | None = None
        if request == GET_DESCRIPTOR:
            found = self.descriptor(value >> 8, value & 0xFF)
        elif request == GET_STATUS:
            found = bytes(2)
        status, data = (STALL, b"") if found is None else (SUCCESS, found[:length])
        return REQUEST.pack(endpoint, request, kind, status, value, index, len(data)) + data

    def serve(self, line: Line) -> None:
        """Until the line ends."""
        with contextlib.suppress(OSError, ValueError, Failure):
            while True:
                if answer := self.answer(Packet.read(line)):
                    answer.send(line)


@contextlib.contextmanager
def plugged(device: Device, line: Line) -> Iterator[None]:
    """While it is entered the device is plugged in, by a line on which nothing was sent yet."""
    greeted(line)
    greet(line)
    device.connect(line)
    serving = threading.Thread(target=device.serve, args=(line,), daemon=True)
    serving.start()
    try:
        yield
    finally:
        line.close()
        serving.join(PATIENCE)
