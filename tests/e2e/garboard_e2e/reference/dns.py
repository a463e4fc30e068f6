"""A name server for pods of a test cluster, which has none: the addresses of Services, of pods that have a host
name and a subdomain, and of one name outside of the cluster. Follows RFC 1035; answers A, and nothing to other
types."""

import contextlib
import ipaddress
import socket
import struct
import threading

from ..cluster.kube import Kube
from ..outcome import Failure

# Where kubelets send pods (tests/cluster/src/config/kubelet.rs), and the only domain that is known.
ADDRESS, DOMAIN = "172.30.0.1", "svc.cluster.local"
# What stands for the rest of the world, which the cluster does not reach: the host, outside of all nodes and pods.
OUTSIDE = "outside.example"
A, INTERNET, NO_SUCH_NAME = 1, 1, 3
LIFETIME = 1


def question(packet: bytes) -> tuple[str, int, int]:
    """Name, type and length of the first question, header included."""
    labels, at = [], 12
    while (length := packet[at]) != 0:
        labels.append(packet[at + 1 : at + 1 + length].decode("ascii").lower())
        at += 1 + length
    kind, _ = struct.unpack_from("!HH", packet, at + 1)
    return ".".join(labels), kind, at + 5


def answer(packet: bytes, addresses: list[str] | None) -> bytes:
    """The reply to a query; without addresses the name is unknown."""
    _, kind, length = question(packet)
    records = b""
    if kind == A:
        for address in addresses or []:
            data = ipaddress.IPv4Address(address).packed
            records += struct.pack("!HHHIH", 0xC00C, A, INTERNET, LIFETIME, len(data)) + data
    # An authoritative response; the query's wish for recursion is repeated.
    recursion = struct.unpack_from("!H", packet, 2)[0] & 0x0100
    flags = 0x8400 | recursion | (NO_SUCH_NAME if addresses is None else 0)
    count = len(addresses or []) if kind == A else 0
    return packet[:2] + struct.pack("!HHHHH", flags, 1, count, 0, 0) + packet[12:length] + records


class NameServer:
    """On UDP, until it is left."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(0.5)
        self.is_over = False
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def __enter__(self) -> "NameServer":
        self.socket.bind((ADDRESS, 53))
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        self.thread.join()
        self.socket.close()

    def serve(self) -> None:
        while not self.is_over:
            with contextlib.suppress(TimeoutError, Failure, OSError, ValueError, IndexError, struct.error):
                packet, client = self.socket.recvfrom(512)
                self.socket.sendto(answer(packet, self.addresses(question(packet)[0])), client)

    def addresses(self, name: str) -> list[str] | None:
        """Of `SERVICE.NAMESPACE.svc.cluster.local`, or of a pod's `HOSTNAME.SUBDOMAIN.svc.cluster.local`, where a
        namespace may come before the domain; of `OUTSIDE`."""
        if name == OUTSIDE:
            return [ADDRESS]
        labels = name.removesuffix(f".{DOMAIN}").split(".")
        if not name.endswith(f".{DOMAIN}") or len(labels) not in (2, 3):
            return None
        first, second = labels[:2]
        if len(labels) == 2:
            for service in self.kube.items("services", "-A", namespace=None):
                if (service["metadata"]["name"], service["metadata"]["namespace"]) == (first, second):
                    address = service["spec"].get("clusterIP", "None")
                    return [] if address == "None" else [address]
        found = []
        for pod in self.kube.items("pods", "-A", namespace=None):
            spec = pod["spec"]
            is_it = (spec.get("hostname"), spec.get("subdomain")) == (first, second)
            if is_it and labels[2:] in ([], [pod["metadata"]["namespace"]]) and pod["status"].get("podIP"):
                found.append(pod["status"]["podIP"])
        return found or None
