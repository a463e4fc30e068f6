"""libvirt from Debian: its own daemons, in this mount namespace, with directories in memory; an equal domain."""

import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import time
from xml.sax.saxutils import escape

from ..outcome import Failure
from .host import MACHINE, Document, Executed, Garboard, Instants, Shares, contains, output, wait_for

# tmpfs over them, in the mount namespace of scripts/bench: whatever the daemons write is gone with it.
PLACES = ["/run", "/var/lib/libvirt", "/var/log/libvirt", "/var/cache/libvirt", "/etc/libvirt"]
LOG = pathlib.Path(f"/var/log/libvirt/qemu/{MACHINE}.log")
DEVICES = ["null", "zero", "full", "random", "urandom", "tty", "net/tun", "vhost-net"]
# The user garboard's QEMU runs as; libvirt requires its own to exist even where its configuration names another.
USER = "+107"
ACCOUNTS = {
    "/etc/passwd": "libvirt-qemu:x:107:107::/nonexistent:/usr/sbin/nologin\n",
    "/etc/group": "libvirt-qemu:x:107:\n",
}
VIRSH = ["virsh", "-q", "-c", "qemu:///system"]
TAP = "gbbenchtap"

DOMAIN = """<domain type='qemu'>
  <name>{name}</name>
  <memory unit='b'>{memory}</memory>
  <vcpu>{vcpus}</vcpu>
  <cputune>{shares}</cputune>
  <os>
    <type arch='x86_64' machine='{machine}'>hvm</type>
    <kernel>{directory}/vmlinux</kernel><initrd>{directory}/initrd</initrd><cmdline>{cmdline}</cmdline>
  </os>
  <features><acpi/></features>
  <cpu mode='maximum'/>
  <devices>
    <emulator>{qemu}</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='{cache}'/>
      <source file='{directory}/overlay.qcow2'/>
      <backingStore type='file'><format type='raw'/><source file='{directory}/base.img'/><backingStore/></backingStore>
      <target dev='vda' bus='virtio'/>
    </disk>
    <interface type='ethernet'>
      <mac address='{mac}'/><target dev='{tap}' managed='no'/><model type='virtio'/>
    </interface>
    <serial type='unix'>
      <source mode='bind' path='{directory}/serial.sock'/><log file='{directory}/serial0.log' append='on'/>
    </serial>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
    {graphics}
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
    <memballoon model='virtio'/>
  </devices>
</domain>
"""


class Libvirt:
    """The daemons, and one domain like the machine of a plan."""

    command: subprocess.Popen[bytes]
    began: float

    def __init__(self, garboard: Garboard) -> None:
        """Of garboard's machine as it runs just now."""
        self.plan, self.qemu, self.directory = garboard.plan(), garboard.qemu, garboard.directory / "libvirt"
        self.directory.mkdir()
        self.groups_before: set[pathlib.Path] = set()
        # The domain's user makes the socket of the screen.
        os.chown(self.directory, int(USER), int(USER))
        order = garboard.order()
        kernel = self.plan["firmware"]["kernelBoot"]
        # Copies: libvirt gives every file of a domain to the domain's user.
        for inside, name in [(kernel["kernel"], "vmlinux"), (kernel["initrd"], "initrd")]:
            shutil.copy(order["kernelFiles"][inside], self.directory / name)
        shutil.copy(order["volumes"]["root"]["path"], self.directory / "base.img")
        self.daemons: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        self.groups_before = set(pathlib.Path("/sys/fs/cgroup").rglob("machine*"))
        for place in PLACES:
            pathlib.Path(place).mkdir(parents=True, exist_ok=True)
            output(["mount", "-t", "tmpfs", "-o", "mode=755", "bench", place])
        take_kvm_away()
        for place, line in ACCOUNTS.items():
            known = pathlib.Path(place).read_text()
            if line.split(":")[0] not in known:
                changed = self.directory / pathlib.Path(place).name
                changed.write_text(known + line)
                output(["mount", "--bind", changed, place])
        pathlib.Path("/etc/libvirt/qemu.conf").write_text(f'user = "{USER}"\ngroup = "{USER}"\n')
        pathlib.Path("/etc/libvirt/libvirtd.conf").write_text('auth_unix_rw = "none"\n')
        pathlib.Path("/etc/libvirt/virtlogd.conf").write_text("")
        log = open(self.directory / "libvirtd.log", "ab")
        for daemon in ["virtlogd", "libvirtd"]:
            command = [f"/usr/sbin/{daemon}"]
            self.daemons.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        wait_for("libvirtd", self.answers, pause=0.1)

    def answers(self) -> bool:
        if any(daemon.poll() is not None for daemon in self.daemons):
            raise Failure(f"libvirtd ended: {(self.directory / 'libvirtd.log').read_text()[-1000:]}")
        return virsh("version", may_fail=True)

    def write_domain(self, tap: str, shares: Shares | None) -> None:
        plan = self.plan
        argv = plan["argv"]
        (interface,) = plan["interfaces"]
        graphics = f"<graphics type='vnc' socket='{self.directory}/vnc.sock'/><video><model type='vga'/></video>"
        kind = graphics if plan["display"] == "vnc" else "<video><model type='none'/></video>"
        text = DOMAIN.format(
            name=MACHINE,
            memory=plan["resources"]["guestMemoryBytes"],
            vcpus=plan["resources"]["vcpuCount"],
            machine=plan["stored"]["machineType"],
            directory=self.directory,
            qemu=self.qemu,
            mac=interface["mac"],
            tap=tap,
            cmdline=escape(argv[argv.index("-append") + 1]),
            cache="none" if any_direct(plan) else "writeback",
            shares=f"<shares>{shares.value}</shares>" if shares else "",
            graphics=kind,
        )
        (self.directory / "domain.xml").write_text(text)

    def start(self, shares: Shares | None) -> None:
        """`virsh create`, under way; a tap of the host's own namespace, because libvirtd lives there."""
        output(["ip", "tuntap", "add", TAP, "mode", "tap", "vnet_hdr"])
        output(["ip", "link", "set", TAP, "up"])
        overlay = self.directory / "overlay.qcow2"
        output(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", self.directory / "base.img", overlay])
        for name in ["serial0.log", "domain.xml"]:
            (self.directory / name).unlink(missing_ok=True)
        LOG.unlink(missing_ok=True)
        self.write_domain(TAP, shares)
        self.began = time.monotonic()
        create = [*VIRSH, "create", str(self.directory / "domain.xml")]
        self.command = subprocess.Popen(create, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def wait_for_marker(self, marker: bytes) -> Instants:
        log = self.directory / "serial0.log"
        wait_for(f"{marker!r} under libvirt", lambda: self.has_failed() or contains(log, marker))
        seen = time.monotonic()
        self.command.wait()
        return {"command": self.began, "exec": Executed.of(LOG).monotonic, "marker": seen}

    def has_failed(self) -> bool:
        if self.command.poll():
            errors = self.command.stderr.read() if self.command.stderr else b""
            raise Failure(f"virsh create: {errors.decode()}")
        return False

    def stop(self) -> None:
        virsh("destroy", MACHINE)
        output(["ip", "link", "delete", TAP])

    def end(self) -> None:
        virsh("destroy", MACHINE, may_fail=True)
        subprocess.run(["ip", "link", "delete", TAP], capture_output=True)
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait()
        for group in sorted(set(pathlib.Path("/sys/fs/cgroup").rglob("machine*")) - self.groups_before, reverse=True):
            remove_groups(group)


def virsh(*arguments: str, may_fail: bool = False) -> bool:
    """Whether it succeeded."""
    done = subprocess.run([*VIRSH, *arguments], capture_output=True, text=True)
    if done.returncode != 0 and not may_fail:
        raise Failure(f"virsh {shlex.join(arguments)}: {done.stderr}")
    return done.returncode == 0


def take_kvm_away() -> None:
    """Another /dev, with what the guests here need. A domain of kind qemu needs no KVM, and libvirt would probe it
    through QEMU: minutes where it is emulated."""
    new = tempfile.mkdtemp(prefix="gbb-dev-")
    output(["mount", "-t", "tmpfs", "-o", "mode=755", "bench", new])
    for name in DEVICES:
        old = pathlib.Path("/dev") / name
        if old.exists():
            (copy := pathlib.Path(new) / name).parent.mkdir(exist_ok=True)
            os.mknod(copy, old.stat().st_mode, old.stat().st_rdev)
    for name in ["pts", "shm"]:
        os.mkdir(f"{new}/{name}")
        output(["mount", "--bind", f"/dev/{name}", f"{new}/{name}"])
    os.symlink("pts/ptmx", f"{new}/ptmx")
    # Not over the old one: libvirt moves each mount below /dev, and would find these twice.
    output(["umount", "--recursive", "--lazy", "/dev"])
    output(["mount", "--move", new, "/dev"])
    os.rmdir(new)


def any_direct(plan: Document) -> bool:
    return any(descriptor["purpose"].get("direct") for descriptor in plan["descriptors"])


def remove_groups(group: pathlib.Path) -> None:
    """A cgroup with what is below it; one that is busy stays and belongs to another program."""
    for path, _, _ in os.walk(group, topdown=False):
        try:
            os.rmdir(path)
        except OSError:
            return
