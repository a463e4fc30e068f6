"""What a machine takes beside its guest's memory: what QEMU has to itself, its page tables and the kernel's part, for
several shapes of machine. Prints markdown for docs/benchmarks.md; the terms of machine/src/overhead.rs follow from it.

  python3 -B scripts/benchmarks/overhead.py GARBOARD HELLO-LAYOUT

Needs root. Each machine is let alone until its figures stand still; then four VNC viewers ask for whole pictures, and the
largest figures count.
"""

import os
import pathlib
import socket
import sys
import tempfile
import threading
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "scripts"))

import figures  # noqa: E402
from life import Host  # noqa: E402
from resident import beside_guest  # noqa: E402
from rfb import Viewer  # noqa: E402
from terminal import Failure  # noqa: E402

GUEST_MIB = 256
VIEWERS, LOAD_SECONDS = 4, 10
NO_SCREEN = {"autoattachGraphicsDevice": False}
UEFI_PICTURE = (1280, 800)
EFI = {"bootloader": {"efi": {"secureBoot": False}}}


def figures_of(process):
    return beside_guest(process, GUEST_MIB)


def settled(process):
    """The figures once they have stood still for five seconds."""
    seen, since, end = None, time.monotonic(), time.monotonic() + 120
    while time.monotonic() < min(since + 5, end):
        now = figures_of(process)
        if seen is None or any(abs(one - other) > 0.3 for one, other in zip(now, seen)):
            seen, since = now, time.monotonic()
        time.sleep(0.5)
    return now


def view(address, end, failures):
    try:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address)
        viewer = Viewer(sock, 20)
        while time.monotonic() < end:
            viewer.picture()
        viewer.close()
    except (OSError, Failure) as failure:
        failures.append(failure)


def under_load(host, process):
    """The largest figures while viewers look."""
    end, failures = time.monotonic() + LOAD_SECONDS, []
    viewers = [threading.Thread(target=view, args=(str(host.shared / "vnc.sock"), end, failures)) for _ in range(VIEWERS)]
    for viewer in viewers:
        viewer.start()
    most = figures_of(process)
    while any(viewer.is_alive() for viewer in viewers):
        most = tuple(map(max, most, figures_of(process)))
        time.sleep(0.2)
    if failures:
        sys.exit(f"a viewer ended early: {failures[0]}")
    return most


def start(host, accelerator, domain):
    domain = {"memory": {"guest": f"{GUEST_MIB}Mi"}, **domain}
    if accelerator == "tcg" and "firmware" not in domain:
        host.start(**domain)
        host.wait_for_shell()
        return
    # Ordinary kernels crawl where KVM itself is interpreted: this one ends with its firmware.
    cpu = {"model": "qemu64", **domain.pop("cpu", {})}
    host.run("run", "--detach", "--accel", accelerator, host.manifest(tests=None, **domain, cpu=cpu))
    if "firmware" in domain:
        host.wait("the picture of UEFI", lambda: picture(host) == UEFI_PICTURE)


def picture(host):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(host.shared / "vnc.sock"))
    viewer = Viewer(sock, 20)
    viewer.close()
    return viewer.width, viewer.height


def row(garboard, layout, name, accelerator, domain):
    with tempfile.TemporaryDirectory(prefix="gbo-") as directory:
        os.chmod(directory, 0o755)
        host = Host(garboard, layout, directory)
        try:
            start(host, accelerator, domain)
            process = host.qemu
            idle = settled(process)
            has_screen = domain.get("devices", {}).get("autoattachGraphicsDevice", True)
            most = under_load(host, process) if has_screen else idle
        finally:
            host.call("stop", "--force", host.name)
    told = [figures.digits(each) for each in (*idle, *most)]
    return [name, *told, figures.digits(sum(most))]


def main():
    garboard, layout = sys.argv[1:]
    cores = lambda number: {"cpu": {"cores": number}}  # noqa: E731
    shapes = [
        ("KVM, 1 vCPU, no screen", "kvm", {"devices": NO_SCREEN}),
        ("KVM, 4 vCPUs, no screen", "kvm", {"devices": NO_SCREEN, **cores(4)}),
        ("KVM, 16 vCPUs, no screen", "kvm", {"devices": NO_SCREEN, **cores(16)}),
        ("KVM, 1 vCPU, screen", "kvm", {}),
        ("TCG, UEFI, 1 vCPU, screen of 1280×800", "tcg", {"firmware": EFI}),
        ("TCG, Linux, 1 vCPU, no screen", "tcg", {"devices": NO_SCREEN}),
        ("TCG, Linux, 1 vCPU, screen", "tcg", {}),
        ("TCG, Linux, 4 vCPUs, screen", "tcg", cores(4)),
    ]
    rows = [row(garboard, layout, *shape) for shape in shapes]
    head = ["MiB", "own, idle", "page tables", "kernel", "own, viewed", "page tables", "kernel", "together"]
    print(figures.table(head, rows))


main()
