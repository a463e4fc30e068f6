"""Out of memory where there is cgroup v2 alone, as on today's distributions: in a
guest, because this machine may have v1.

The guest is Debian's kernel and busybox of the hello guest, with PID 1 and a supervisor as in a pod: in control
groups of their own, the one of PID 1 with a limit and, once, with `memory.oom.group`, which kubelets set. At the place
of QEMU is a program that takes all the memory it can get."""

import json
import pathlib
import re
import shutil
import subprocess
import tarfile

from .outcome import Failure
from .patience import PATIENCE

LIMIT = 64 << 20
ORDER = {
    "version": 1,
    "volumes": {},
    "emulation": True,
    "vmi": {
        "metadata": {"name": "vm", "namespace": "default", "uid": "3f1c3c3e-0000-4000-8000-000000000001"},
        "spec": {"domain": {"devices": {}, "memory": {"guest": "256Mi"}}},
    },
}
NODE = {"version": 1, "tap": False, "vhostNet": False}
# Each line that begins with `@` is for us. One container after the other: what is killed with it, and without.
INIT = f"""#!/bin/busybox sh
export PATH=/bin:/usr/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
mount -t cgroup2 cgroup2 /sys/fs/cgroup && echo "@controllers $(cat /sys/fs/cgroup/cgroup.controllers)"
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
for together in 1 0; do
    group=/sys/fs/cgroup/compute$together
    rm -rf /run/garboard
    mkdir -p /run/garboard/init /var/lib/garboard/scratch $group
    : >/tmp/termination
    chown -R 107:107 /run/garboard /var/lib/garboard /tmp/termination
    echo {LIMIT} >$group/memory.max
    echo $together >$group/memory.oom.group
    /usr/bin/setpriv --reuid 107 --regid 107 --clear-groups /usr/bin/garboard-launcher --pod 2>/tmp/launcher &
    launcher=$!
    (sh -c "echo \\$\\$ >$group/cgroup.procs; exec /usr/bin/unshare --cgroup --pid --mount --fork /container") &
    waited=0
    journal=/run/garboard/supervisor/journal.json
    while [ $waited -lt 120 ] && kill -0 $launcher && ! grep -q '"ended":{{' $journal 2>/dev/null; do
        sleep 1
        waited=$((waited + 1))
    done
    echo "@together $together"
    echo "@events $(tr '\\n' ' ' <$group/memory.events)"
    echo "@journal $(tr '\\n' ' ' <$journal)"
    echo "@exit $(cat /run/garboard/init/exit.json 2>/dev/null)"
    cat /tmp/launcher
    kill -KILL $launcher 2>/dev/null
    echo 1 >$group/cgroup.kill
    sleep 1
done
echo @over
poweroff -f
"""
# What a container runtime does: the process sees its own control group as the root.
CONTAINER = """#!/bin/busybox sh
mount -t proc proc /proc
umount /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec /usr/bin/setpriv --reuid 107 --regid 107 --clear-groups \\
    /usr/bin/garboard-init /run/garboard/init --termination-log /tmp/termination
"""
QEMU = "#!/usr/bin/busybox sh\nexec /usr/bin/busybox tail /dev/zero\n"
FACTS = "#!/bin/busybox sh\nexec cat /etc/facts.json\n"


class Archive:
    """An initramfs (`Documentation/driver-api/early-userspace/buffer-format.rst`) of files, behind another one."""

    def __init__(self, path: pathlib.Path, before: bytes) -> None:
        self.out, self.directories, self.number = open(path, "wb"), {""}, 0
        self.out.write(before + bytes(-len(before) % 4))

    def entry(self, name: str, mode: int, content: bytes = b"") -> None:
        self.number += 1
        fields = [self.number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        self.out.write(head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4))

    def add(self, path: str, content: bytes, mode: int = 0o755) -> None:
        name = path.strip("/")
        for parent in reversed(pathlib.PurePosixPath(name).parents):
            if (directory := str(parent)) not in (".", *self.directories):
                self.directories.add(directory)
                self.entry(directory, 0o040755)
        self.entry(name, 0o100000 | mode, content)

    def finish(self) -> None:
        self.entry("TRAILER!!!", 0)
        self.out.close()


def boot_files(image: pathlib.Path) -> tuple[bytes, bytes]:
    """Kernel and initrd of an image's only layer."""

    def blob(descriptor: dict[str, str]) -> pathlib.Path:
        return image / "blobs" / descriptor["digest"].replace(":", "/")

    def content(layer: tarfile.TarFile, name: str) -> bytes:
        file = layer.extractfile(f"boot/{name}")
        if file is None:
            raise Failure(f"boot/{name} of {image} is no file")
        return file.read()

    manifest = json.loads(blob(json.loads((image / "index.json").read_text())["manifests"][0]).read_text())
    with tarfile.open(blob(manifest["layers"][0])) as layer:
        return content(layer, "vmlinuz"), content(layer, "initrd")


def add_program(archive: Archive, path: str, source: str | pathlib.Path, added: set[str]) -> None:
    """A program of this machine and the libraries that it is linked with."""
    archive.add(path, pathlib.Path(source).read_bytes())
    listed = subprocess.run(["ldd", source], check=True, capture_output=True, text=True).stdout
    for library in re.findall(r"(/\S+) \(0x", listed):
        if library not in added:
            added.add(library)
            archive.add(library, pathlib.Path(library).read_bytes())


def build(programs: pathlib.Path, image: pathlib.Path, work: pathlib.Path) -> None:
    """Kernel and initramfs, as files in `work`."""
    kernel, initrd = boot_files(image)
    (work / "vmlinuz").write_bytes(kernel)
    archive, added = Archive(work / "initrd", initrd), set[str]()
    for name in ("garboard-launcher", "garboard-init"):
        add_program(archive, f"/usr/bin/{name}", programs / name, added)
    for name in ("unshare", "setpriv"):
        add_program(archive, f"/usr/bin/{name}", shutil.which(name) or name, added)
    facts = subprocess.run([programs / "garboard-facts"], check=True, capture_output=True).stdout
    archive.add("/usr/bin/busybox", busybox(initrd))
    for path, text in (
        ("/oom", INIT),
        ("/container", CONTAINER),
        ("/usr/bin/qemu-system-x86_64", QEMU),
        ("/usr/bin/garboard-facts", FACTS),
    ):
        archive.add(path, text.encode())
    for path, value in (("/etc/garboard/order/order.json", ORDER), ("/run/garboard-agent/node.json", NODE)):
        archive.add(path, json.dumps(value).encode(), 0o644)
    archive.add("/etc/facts.json", facts, 0o644)
    archive.finish()


def busybox(initrd: bytes) -> bytes:
    """Out of the hello guest's own initramfs."""
    place = 0
    while initrd[place : place + 6] == b"070701":
        fields = [int(initrd[place + 6 + 8 * each : place + 14 + 8 * each], 16) for each in range(13)]
        size, length = fields[6], fields[11]
        name = initrd[place + 110 : place + 109 + length].decode()
        start = (place + 110 + length + 3) & ~3
        if name.lstrip("./") == "bin/busybox":
            return initrd[start : start + size]
        place = (start + size + 3) & ~3
    raise Failure("the hello guest has no busybox")


def boot(work: pathlib.Path) -> str:
    """What the guest printed."""
    command = [
        *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-machine", "q35,accel=tcg", "-cpu", "max", "-m", "1024", "-serial", f"file:{work}/serial"),
        *("-kernel", f"{work}/vmlinuz", "-initrd", f"{work}/initrd"),
        *("-append", "console=ttyS0 quiet cryptomgr.notests rdinit=/oom"),
    ]
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=2 * PATIENCE)
    except subprocess.TimeoutExpired:
        raise Failure(f"the guest did not end: {(work / 'serial').read_text(errors='replace')[-3000:]}") from None
    return (work / "serial").read_text(errors="replace").replace("\r", "")


def ends(printed: str) -> dict[bool, dict[str, str]]:
    """`{together: (events, cause, exit report)}`."""
    found: dict[bool, dict[str, str]] = {}
    together: dict[str, str] = {}
    lines = re.findall(r"^@(\w+) ?(.*)$", printed, re.M)
    for key, text in lines:
        if key == "together":
            together = found[text == "1"] = {}
        elif key in ("events", "journal", "exit"):
            together[key] = text
    if ("over", "") not in lines or len(found) != 2:
        raise Failure(f"the guest did not come to its end: {printed[-3000:]}")
    return found
