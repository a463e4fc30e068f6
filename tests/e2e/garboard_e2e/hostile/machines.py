"""Honest machines beside the attackers."""

import pathlib
import re
import subprocess

from .. import names
from ..cluster.kube import Kube
from ..cluster.names import NAMESPACE, NODE_1, NODE_2
from ..guests import PATIENT
from ..outcome import Failure
from ..places import EXAMPLES
from ..processes import command_lines

# A Linux guest under a KVM that interprets guest code takes hours to boot: it asks for TCG.
TCG = "annotations: { garboard.dev/accelerator: tcg }"


def manifest(name: str, node: str) -> str:
    """The hello machine under another name, on one node, with a page on port 80."""
    text = (EXAMPLES / "vm-hello.yaml").read_text()
    placed = f"    metadata: {{ {TCG} }}\n    spec:\n      nodeSelector: {{ kubernetes.io/hostname: {node} }}\n"
    changes = {
        "  name: hello\n": f"  name: {name}\n",
        PATIENT: f"{PATIENT} garboard.test=httpd",
        "    spec:\n": placed,
    }
    for old, new in changes.items():
        if old not in text:
            raise Failure(f"{old!r} is not in examples/vm-hello.yaml any more")
        text = text.replace(old, new, 1)
    return text


class Machines:
    """Machines of the namespace that serve a page."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube

    def make(self, name: str, node: str = NODE_1) -> None:
        self.kube.kubectl("apply", "-f", "-", text=manifest(name, node))

    def serves(self, name: str) -> None:
        """Waits until it runs, is Ready, and the other node gets its page."""
        self.kube.wait(f"machine {name}", lambda: self.is_ready(name))
        self.kube.page(self.kube.address(name), NODE_2)

    def is_ready(self, name: str) -> bool:
        is_ready = self.kube.condition("vmi", name, "Ready").get("status") == "True"
        return self.kube.phase(name) == "Running" and is_ready

    def remove(self, name: str) -> None:
        self.kube.remove(name)
        self.kube.ask_until(f"the end of every process of {name}", lambda: not processes(name))

    def come_and_go(self, name: str) -> None:
        self.make(name)
        self.serves(name)
        self.remove(name)

    def gate_is_set(self, name: str) -> bool:
        """The readiness gate of its pod."""
        conditions = (self.kube.current_pod(name) or {}).get("status", {}).get("conditions", [])
        gate = "kubevirt.io/virtual-machine-unpaused"
        return any(each["type"] == gate and each["status"] == "True" for each in conditions)


def processes(name: str) -> list[int]:
    """Those that were started with a machine's name, as the host counts, the last one last."""
    mark = f"guest={NAMESPACE}_{name}"
    return sorted(
        int(entry.name) for entry, arguments in command_lines() if any(mark in argument for argument in arguments)
    )


def supervisors(kube: Kube, machine: str) -> list[int]:
    """Not the same program when it is asked to show a file."""
    found = kube.processes(machine, names.SUPERVISOR)
    return [each for each in found if b"--pod" in pathlib.Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")]


def qemu_is_executed(name: str) -> bool:
    mark = re.compile(f"qemu.*guest={NAMESPACE}_{name}")
    return any(mark.search(" ".join(arguments)) for _, arguments in command_lines())


# What a machine has of each in its pod: the arguments of a command there, and what is counted.
PLUMBED = {
    "bridge": "ip -o link show type bridge",
    "tap": "ip -o link show type tun",
    "port": "ip -o link show master k6t-eth0 up",
    "address of the bridge": "ip -o -4 address show dev k6t-eth0",
    "table": "nft list tables",
    "DHCP socket": "ss -Huln sport = :67",
}


def expect_plumbed_once(name: str) -> None:
    """One bridge with its addresses, one tap, one table: nothing is missing, half-made or double."""
    process = processes(name)[-1]
    for what, command in PLUMBED.items():
        inside = ["nsenter", "-t", str(process), "-n", *command.split()]
        lines = subprocess.run(inside, check=True, capture_output=True, text=True).stdout.splitlines()
        assert len(lines) == 1, f"not one {what}: {lines}"
