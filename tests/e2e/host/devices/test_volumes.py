"""What is kept and what is not: a machine with a disk of every kind, run twice."""

import dataclasses
import pathlib
import re
import subprocess
from collections.abc import Iterator

import pytest

from garboard_e2e.namespace import Namespace
from garboard_e2e.outcome import Skipped
from garboard_e2e.patience import PATIENCE
from garboard_e2e.terminal import Terminal, shell

NAMESPACE = "kept"
SECTOR = 64000
DISKS = ["root", "file", "block", "base", "empty", "host"]
# In the guest: reads and writes the first bytes of a sector of the disk with that serial number.
GUEST_COMMANDS = f"""settle
disk() {{ for s in /sys/block/*/serial; do [ "$(cat $s)" != $1 ] || basename ${{s%/serial}}; done; }}
get() {{ dd if=/dev/$(disk $1) bs=512 skip={SECTOR} count=1 iflag=direct 2>/dev/null | tr -d '\\0'; }}
at() {{ dd if=/tmp/text of=/dev/$(disk $1) bs=512 seek={SECTOR} oflag=direct conv=notrunc 2>/dev/null; }}
put() {{ echo "$2" >/tmp/text; truncate -s 512 /tmp/text; at $1; }}
"""

VOLUMES = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: file
spec:
  accessModes: [ReadWriteOnce]
  resources:
    requests:
      storage: 64Mi
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata:
  name: volumes
spec:
  domain:
    memory:
      guest: 256Mi
    firmware:
      kernelBoot:
        kernelArgs: console=ttyS0 quiet cryptomgr.notests
        container:
          image: registry.garboard.dev/hello:1
          kernelPath: /boot/vmlinuz
          initrdPath: /boot/initrd
    devices:
      disks: [%(disks)s]
  terminationGracePeriodSeconds: 10
  volumes:
    - name: root
      containerDisk:
        image: registry.garboard.dev/hello:1
    - name: file
      persistentVolumeClaim:
        claimName: file
    - name: base
      ephemeral:
        persistentVolumeClaim:
          claimName: base
    - name: empty
      emptyDisk:
        capacity: 64Mi
    - name: host
      hostDisk:
        path: %(directory)s/host.img
        type: DiskOrCreate
        capacity: 64Mi
"""

ANOTHER = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata:
  name: another
spec:
  domain:
    memory:
      guest: 64Mi
    devices:
      disks: [{name: file, disk: {bus: virtio}}]
  volumes:
    - name: file
      persistentVolumeClaim:
        claimName: file
"""

BLOCK = """    - name: block
      persistentVolumeClaim:
        claimName: block
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: block
spec:
  volumeMode: Block
  volumeName: loop
  accessModes: [ReadWriteOnce]
  resources:
    requests:
      storage: 64Mi
---
apiVersion: v1
kind: PersistentVolume
metadata:
  name: loop
spec:
  volumeMode: Block
  local:
    path: %s
"""


@dataclasses.dataclass(frozen=True)
class LoopDevice:
    """A block device, or why the kernel gives none."""

    path: pathlib.Path | None
    problem: str = ""


@pytest.fixture(scope="module")
def device(namespace: Namespace) -> Iterator[LoopDevice]:
    backing = namespace.directory / "block.img"
    fill(backing, "")
    made = subprocess.run(["losetup", "--find", "--show", backing], capture_output=True, text=True)
    if made.returncode != 0:
        yield LoopDevice(None, made.stderr.strip())
        return
    path = made.stdout.strip()
    yield LoopDevice(pathlib.Path(path))
    subprocess.run(["losetup", "--detach", path], check=True)


class Volumes:
    """The machine's manifest, and where its disks are on this host."""

    def __init__(self, namespace: Namespace, device: LoopDevice) -> None:
        self.namespace = namespace
        self.disks = DISKS if device.path else [disk for disk in DISKS if disk != "block"]
        self.claims = namespace.directory / "state/claims" / namespace.namespace
        self.base, self.claim = self.claims / "base/disk.img", self.claims / "file/disk.img"
        self.host_disk = namespace.directory / "host.img"
        described = [f"{{name: {disk}, serial: {disk}, disk: {{bus: virtio}}}}" for disk in self.disks]
        text = VOLUMES % {"disks": ", ".join(described), "directory": namespace.directory}
        self.manifest = namespace.manifest("volumes", text + (BLOCK % device.path if device.path else ""))
        # A PersistentVolume has no namespace.
        without = re.sub(r"(kind: PersistentVolume\nmetadata:\n)  namespace: \S+\n", r"\1", self.manifest.read_text())
        self.manifest.write_text(without)
        self.base.parent.mkdir(parents=True)
        fill(self.base, "from below")

    def boot(self, image: str) -> Terminal:
        terminal = self.namespace.terminal("run", self.manifest, image)
        terminal.expect("# ", PATIENCE)
        prepare(terminal)
        return terminal

    def seen(self, terminal: Terminal) -> dict[str, str]:
        """What the guest finds on each disk."""
        return {disk: shell(terminal, f"get {disk}", PATIENCE).strip() for disk in self.disks}


def fill(path: pathlib.Path, text: str) -> None:
    """A sparse disk with a text where the guest looks for it."""
    with path.open("wb") as disk:
        disk.truncate(64 << 20)
        disk.seek(SECTOR * 512)
        disk.write(text.encode())


def content(path: pathlib.Path) -> str:
    with open(path, "rb") as disk:
        disk.seek(SECTOR * 512)
        return disk.read(512).rstrip(b"\0\n").decode()


def prepare(terminal: Terminal) -> None:
    for line in GUEST_COMMANDS.splitlines():
        shell(terminal, line, PATIENCE)


def power_down(terminal: Terminal) -> None:
    terminal.type(b"poweroff\n")
    terminal.expect_end(PATIENCE)


@pytest.fixture(scope="module")
def volumes(namespace: Namespace, device: LoopDevice) -> Volumes:
    return Volumes(namespace, device)


@dataclasses.dataclass(frozen=True)
class FirstRun:
    """What the guest found on its disks, and found again after its own reboot."""

    fresh: dict[str, str]
    rebooted: dict[str, str]
    resets: int


@pytest.fixture(scope="module")
def first_run(volumes: Volumes, hello_image: str) -> FirstRun:
    """To its end: the guest has written to every disk."""
    terminal = volumes.boot(hello_image)
    fresh = volumes.seen(terminal)
    for disk in volumes.disks:
        shell(terminal, f"put {disk} 'written by {disk}'", PATIENCE)
    terminal.type(b"reboot\n")
    terminal.expect("(?s)garboard-hello: rebooting.*?# ", PATIENCE)
    prepare(terminal)
    seen = FirstRun(fresh, volumes.seen(terminal), volumes.namespace.resets("volumes"))
    power_down(terminal)
    return seen


@pytest.fixture(scope="module")
def untouched(volumes: Volumes, first_run: FirstRun) -> dict[str, str]:
    """What is on this host after the first run, before the second one."""
    files = {"file": volumes.claim, "host": volumes.host_disk, "base": volumes.base}
    return {disk: content(path) for disk, path in files.items()}


@pytest.fixture(scope="module")
def overlays(volumes: Volumes, first_run: FirstRun) -> list[pathlib.Path]:
    """Those that are left between the two runs."""
    return list((volumes.namespace.directory / "state/scratch").rglob("*"))


@pytest.fixture(scope="module")
def second_run(
    volumes: Volumes, untouched: dict[str, str], overlays: list[pathlib.Path], hello_image: str
) -> Iterator[dict[str, str]]:
    """What it finds; it goes on until its tests are over."""
    terminal = volumes.boot(hello_image)
    yield volumes.seen(terminal)
    power_down(terminal)


def test_the_guest_reboots_itself_every_disk_is_as_it_was_empty_disks_and_overlays_too(
    volumes: Volumes, first_run: FirstRun
) -> None:
    assert first_run.fresh == {disk: "from below" if disk == "base" else "" for disk in volumes.disks}
    assert first_run.rebooted == {disk: f"written by {disk}" for disk in volumes.disks}
    assert first_run.resets >= 1, "ps should count the reset"


def test_claims_and_host_disks_are_written_what_is_below_an_overlay_is_not(untouched: dict[str, str]) -> None:
    assert untouched == {"file": "written by file", "host": "written by host", "base": "from below"}


def test_overlays_are_not_left_behind(overlays: list[pathlib.Path]) -> None:
    assert not overlays


def test_a_claim_on_a_block_device_is_written(device: LoopDevice, first_run: FirstRun) -> None:
    if device.path is None:
        raise Skipped(f"there is no block device: {device.problem}")
    assert content(device.path) == "written by block"


def test_a_second_run_finds_claims_and_host_disk_as_the_first_left_them_overlays_and_empty_disk_new(
    volumes: Volumes, second_run: dict[str, str]
) -> None:
    kept = {
        "file": "written by file",
        "block": "written by block",
        "host": "written by host",
        "base": "from below",
    }
    assert second_run == {disk: kept.get(disk, "") for disk in volumes.disks}


def test_a_claim_that_another_machine_writes_to_is_refused(
    namespace: Namespace, second_run: dict[str, str], hello_image: str
) -> None:
    """Before QEMU would refuse it, by an error message."""
    another = namespace.manifest("another", ANOTHER)
    namespace.run("run", "--detach", another, hello_image, code=1)
    message = namespace.ended(namespace.id("another"))["sentence"]
    assert "in use by another running VM" in message, f"a machine with the claim of another one ended with: {message}"
