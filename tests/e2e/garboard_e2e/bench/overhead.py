"""What a machine takes beside its guest's memory: what QEMU has to itself, its page tables and the kernel's part, for
several shapes of machine, and what they ask for. Prints markdown for docs/benchmarks.md; the terms of
machine/src/overhead.rs follow from it.

  PYTHONPATH=tests/e2e python3 -B -m garboard_e2e.bench.overhead [--qemu PATH] GARBOARD [PART]

Needs root; with PART only the shapes that have it in their names, with --qemu another QEMU than the host's. Each
machine is let alone until its figures stand still; then, where it has a screen, four VNC viewers ask for whole
pictures, and the largest figures count. Guests whose memory is "dirtied" have written to each of its pages; with
"4 KiB pages" the kernel is kept from larger ones, which is the most that page tables take.
"""

import argparse
import ctypes
import dataclasses
import json
import pathlib
import socket
import threading
import time
from typing import Any

from ..cluster.resident import Beside, beside_guest
from ..guests import HELLO, layout, made_by
from ..machine import Machine
from ..outcome import Failure
from ..places import temporary_directory
from ..rfb import Viewer
from . import figures

VIEWERS, LOAD_SECONDS = 4, 10
UEFI_PICTURE = (1280, 800)
DIRTY = "registry.garboard.dev/bootsector-dirty:1"
# A disk whose tables QEMU would keep 16 MiB of, if it could.
LARGE_DISK = "128Gi"
PR_SET_THP_DISABLE = 41
# machine/src/overhead.rs
TCG_BUFFER_MIB = 128


@dataclasses.dataclass
class Shape:
    """One machine. Under KVM it is firmware that finds nothing to boot, because ordinary kernels crawl where KVM itself
    is interpreted; what dirties its memory is a boot sector."""

    name: str
    accelerator: str
    domain: dict[str, Any] = dataclasses.field(default_factory=dict)
    guest_mib: int = 256
    has_screen: bool = False
    tests: str = ""
    empty_disks: int = 0
    dirties: bool = False
    small_pages: bool = False

    @property
    def is_linux(self) -> bool:
        return self.accelerator == "tcg" and "firmware" not in self.domain and not self.dirties

    def figures(self, process: int) -> Beside:
        return beside_guest(process, self.guest_mib)


def settled(shape: Shape, process: int) -> Beside:
    """The figures once they have stood still for five seconds."""
    now = seen = shape.figures(process)
    since, end = time.monotonic(), time.monotonic() + 120
    while time.monotonic() < min(since + 5, end):
        time.sleep(0.5)
        now = shape.figures(process)
        if any(abs(one - other) > 0.3 for one, other in zip(now, seen, strict=True)):
            seen, since = now, time.monotonic()
    return now


def view(address: str, end: float, failures: list[Exception]) -> None:
    try:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address)
        viewer = Viewer(sock, 20)
        while time.monotonic() < end:
            viewer.picture()
        viewer.close()
    except (OSError, Failure) as failure:
        failures.append(failure)


def under_load(host: Machine, shape: Shape, process: int) -> Beside:
    """The largest figures while viewers look."""
    failures: list[Exception] = []
    look = (str(host.supervisor / "vnc.sock"), time.monotonic() + LOAD_SECONDS, failures)
    viewers = [threading.Thread(target=view, args=look) for _ in range(VIEWERS)]
    for viewer in viewers:
        viewer.start()
    most = shape.figures(process)
    while any(viewer.is_alive() for viewer in viewers):
        most = Beside(*map(max, most, shape.figures(process)))
        time.sleep(0.2)
    if failures:
        raise Failure(f"a viewer ended early: {failures[0]}")
    return most


def manifest(host: Machine, shape: Shape) -> str:
    devices = {"autoattachGraphicsDevice": shape.has_screen, **shape.domain.get("devices", {})}
    domain = {**shape.domain, "memory": {"guest": f"{shape.guest_mib}Mi"}, "devices": devices}
    path = host.manifest(tests=shape.tests if shape.is_linux else None, **domain)
    vmi = json.loads(pathlib.Path(path).read_text())
    empty = {"emptyDisk": {"capacity": LARGE_DISK}}
    volumes: list[dict[str, Any]] = [{"name": f"empty{number}"} | empty for number in range(shape.empty_disks)]
    if shape.dirties:
        volumes.append({"name": "dirty", "containerDisk": {"image": DIRTY}})
    vmi["spec"].setdefault("volumes", []).extend(volumes)
    disks = [{"name": each["name"], "disk": {"bus": "virtio"}} for each in volumes]
    vmi["spec"]["domain"]["devices"]["disks"] += disks
    pathlib.Path(path).write_text(json.dumps(vmi))
    return path


def start(host: Machine, shape: Shape, dirty: pathlib.Path, qemu: list[str]) -> None:
    # What is started from here inherits it.
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, int(shape.small_pages), 0, 0, 0)
    images = [f"--image={HELLO}={host.image}", f"--image={DIRTY}={dirty}"]
    host.run("run", "--detach", "--accel", shape.accelerator, *qemu, *images, manifest(host, shape))
    if shape.is_linux:
        host.wait_for_shell()
        if shape.tests:
            host.wait_for("garboard-hello: swept")
    elif shape.dirties:
        host.wait_for("garboard-boot: dirtied")
    elif "firmware" in shape.domain:
        host.wait("the picture of UEFI", lambda: picture(host) == UEFI_PICTURE)


def asked(host: Machine) -> float:
    """MiB that the plan asks for beside the guest, without QEMU's buffer for translated code, which is in no figure."""
    overhead = json.loads((host.supervisor / "plan.json").read_text())["resources"]["overhead"]
    translates = any(term["name"] == "tcg" for term in overhead["terms"])
    whole: float = overhead["totalBytes"] / (1 << 20)
    return whole - (TCG_BUFFER_MIB if translates else 0)


def picture(host: Machine) -> tuple[int, int]:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(host.supervisor / "vnc.sock"))
    viewer = Viewer(sock, 20)
    viewer.close()
    return viewer.width, viewer.height


def row(programs: pathlib.Path, dirty: pathlib.Path, qemu: list[str], shape: Shape) -> list[str]:
    with temporary_directory("gbo-") as directory:
        host = Machine(programs, layout(HELLO), directory)
        try:
            start(host, shape, dirty, qemu)
            process = host.qemu
            idle = settled(shape, process)
            most = under_load(host, shape, process) if shape.has_screen else idle
            cells = [figures.digits(each) for each in (*idle, *most, together(most), asked(host))]
        finally:
            host.call("stop", "--force", host.name)
    return [shape.name, *cells]


def together(most: Beside) -> float:
    """The kernel counts page tables among what it keeps for a control group."""
    return most.own + max(most.tables, most.kernel)


def cores(number: int) -> dict[str, Any]:
    return {"cpu": {"cores": number}}


QUEUES = {"devices": {"networkInterfaceMultiqueue": True, "blockMultiQueue": True}} | cores(4)
SWEPT = "TCG, Linux, 4 empty disks of 128 GiB, each written from end to end in steps"
EFI = {"firmware": {"bootloader": {"efi": {"secureBoot": False}}}}
SHAPES = [
    Shape("KVM, 1 vCPU, no screen", "kvm"),
    Shape("KVM, 4 vCPUs, no screen", "kvm", cores(4)),
    Shape("KVM, 16 vCPUs, no screen", "kvm", cores(16)),
    Shape("KVM, 64 MiB, 1 vCPU, no screen", "kvm", guest_mib=64),
    Shape("KVM, 4 GiB, 1 vCPU, no screen", "kvm", guest_mib=4096),
    Shape("KVM, 1 vCPU, screen", "kvm", has_screen=True),
    Shape("KVM, 1 vCPU, 8 empty disks", "kvm", empty_disks=8),
    Shape("KVM, 1 GiB dirtied", "kvm", guest_mib=1024, dirties=True),
    Shape("KVM, 1 GiB dirtied, 4 KiB pages", "kvm", guest_mib=1024, dirties=True, small_pages=True),
    Shape("KVM, 2 GiB dirtied, 4 KiB pages", "kvm", guest_mib=2048, dirties=True, small_pages=True),
    Shape("TCG, UEFI, 1 vCPU, screen of 1280×800", "tcg", EFI, has_screen=True),
    Shape("TCG, Linux, 1 vCPU, no screen", "tcg"),
    Shape("TCG, Linux, 1 vCPU, screen", "tcg", has_screen=True),
    Shape("TCG, Linux, 4 vCPUs, screen", "tcg", cores(4), has_screen=True),
    Shape("TCG, Linux, 4 vCPUs, 4 queues each for disk and network", "tcg", QUEUES),
    Shape(SWEPT, "tcg", tests="sweep-disks", empty_disks=4),
    Shape("TCG, Linux, 128 MiB, 1 vCPU, no screen", "tcg", guest_mib=128),
    Shape("TCG, Linux, 1 GiB, 1 vCPU, no screen", "tcg", guest_mib=1024),
    Shape("TCG, Linux, 4 GiB, 1 vCPU, no screen", "tcg", guest_mib=4096),
    Shape("TCG, 1 GiB dirtied, 4 KiB pages", "tcg", guest_mib=1024, dirties=True, small_pages=True),
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--qemu")
    parser.add_argument("garboard", type=pathlib.Path)
    parser.add_argument("parts", nargs="*")
    options = parser.parse_args()
    qemu = ["--qemu", options.qemu] if options.qemu else []
    dirty = made_by("guest-bootsector", "dirty")
    shapes = [shape for shape in SHAPES if all(part in shape.name for part in options.parts)]
    rows = [row(options.garboard.parent, dirty, qemu, shape) for shape in shapes]
    viewed = ["own, viewed", "page tables", "kernel", "together", "asked for"]
    print(figures.table(["MiB", "own, idle", "page tables", "kernel", *viewed], rows))


if __name__ == "__main__":
    main()
