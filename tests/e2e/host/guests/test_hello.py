"""The hello guest under plain QEMU keeps its promises: when a test of Garboard fails, this shows whether the guest is
to blame."""

import contextlib
import os
import pathlib
import re
import socket
import subprocess
from collections.abc import Callable, Iterator

from garboard_e2e.outcome import Failure, Skipped
from garboard_e2e.plain_qemu import PlainQemu, disk, kernel, user_network
from garboard_e2e.usbredir import Device, Socket, plugged

Note = Callable[[str], None]


def test_hello_gets_an_address_and_a_shell(hello_files: pathlib.Path, note: Note) -> None:
    root = disk(hello_files / "disk/hello.img", options=",serial=ABC")
    with PlainQemu(kernel(hello_files) + user_network() + root) as guest:
        assert guest.expect("garboard-hello: (userspace|address)").group(1) == b"userspace"
        guest.expect(r"garboard-hello: address 10\.0\.2\.15")
        guest.expect("hello:/# ")
        note(f"prompt after {guest.seconds():.2f} s")
        guest.run("ping -c 1 10.0.2.2")
        seen = guest.run("hardware")
        assert "disk vda" in seen and "serial=ABC" in seen and "nic eth0" in seen, seen
        # Job control: the foreground command gets Ctrl-C, the shell does not.
        guest.type(b"echo be''gun; sleep 1000\n")
        guest.expect("begun")
        interrupt(guest)
        guest.execute("system_powerdown")
        guest.expect("garboard-hello: power button")
        guest.expect_end()


def interrupt(guest: PlainQemu) -> None:
    """Ctrl-C until the prompt is back: the shell swallows one that comes before its child is in the foreground."""
    for _ in range(20):
        guest.type(b"\x03")
        with contextlib.suppress(Failure):
            guest.expect("hello:/# ", 2)
            return
    raise Failure("Ctrl-C did not end the foreground command")


def test_hello_restarts_once(hello_files: pathlib.Path) -> None:
    arguments = kernel(hello_files, "garboard.test=reboot-once,poweroff")
    with PlainQemu(arguments + disk(hello_files / "disk/hello.img")) as guest:
        guest.expect("garboard-hello: first boot")
        guest.expect("garboard-hello: rebooting")
        guest.expect("garboard-hello: second boot")
        guest.expect("garboard-hello: powering off")
        guest.expect_end()


def test_hello_behaves_as_asked(hello_files: pathlib.Path) -> None:
    tests = "httpd,nc-echo,wait-ipv6,disk-load,net-load,ignore-power"
    arguments = kernel(hello_files, f"garboard.hostname=other garboard.test={tests}")
    with PlainQemu(arguments + user_network() + disk(hello_files / "disk/hello.img")) as guest:
        guest.expect("garboard-hello: address6 fe[0-9a-f:]+")
        # Each prints what it did at its own pace.
        for line in ("disk-load 3", "net-load 3"):
            guest.read_to = 0
            guest.expect(f"garboard-hello: {line}\\b")
        guest.type(b"\n")
        guest.expect("other:/# ")
        guest.run("wget -q -O - http://127.0.0.1/ | grep -q 'from other' && echo x | nc 127.0.0.1 7 | grep -q x")
        assert b"failed" not in guest.printed and b"something else" not in guest.printed, guest.printed
        guest.execute("system_powerdown")
        guest.run("! pidof acpid")
        assert guest.process.poll() is None, "the guest powered down"
        guest.type(b"poweroff\n")
        guest.expect_end()


@contextlib.contextmanager
def dhcpv6_server(work: pathlib.Path) -> Iterator[list[str]]:
    """On a tap in a network namespace; the arguments in front of a command that is to be in there."""
    space = f"guest-check-{os.getpid()}"
    inside = ["ip", "netns", "exec", space]
    subprocess.run(["ip", "netns", "add", space], check=True)
    try:
        for command in (
            "ip link set lo up",
            "ip tuntap add tap0 mode tap",
            "sysctl -q net.ipv6.conf.tap0.accept_dad=0",
            "ip link set tap0 up",
            "ip addr add fd10:0:2::1/120 dev tap0 nodad",
        ):
            subprocess.run([*inside, *command.split()], check=True)
        options = ["--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--interface=tap0", "--enable-ra"]
        files = [f"--dhcp-leasefile={work}/leases", "--pid-file="]
        leases = ["--dhcp-range=fd10:0:2::2,fd10:0:2::2,120,5m"]
        dnsmasq = [*inside, "dnsmasq", *options, *files, *leases]
        server = subprocess.Popen(dnsmasq, stderr=subprocess.DEVNULL)
        try:
            yield inside
        finally:
            server.kill()
            server.wait()
    finally:
        subprocess.run(["ip", "netns", "delete", space], check=True)


def test_hello_takes_an_address_by_dhcpv6(hello_files: pathlib.Path, tmp_path: pathlib.Path) -> None:
    if os.geteuid() != 0 or not pathlib.Path("/usr/sbin/dnsmasq").exists():
        raise Skipped("needs root and the package dnsmasq-base")
    tap = "tap,id=net0,ifname=tap0,script=no,downscript=no"
    network = ["-netdev", tap, "-device", "virtio-net-pci,netdev=net0,romfile="]
    with (
        dhcpv6_server(tmp_path) as inside,
        PlainQemu(kernel(hello_files, "garboard.test=wait-ipv6") + network, within=inside) as guest,
    ):
        address = guest.expect(r"garboard-hello: address6 (\S+)\r").group(1)
        assert address == b"fd10:0:2::2"


def test_hello_eats_its_memory(hello_files: pathlib.Path) -> None:
    with PlainQemu(kernel(hello_files, "garboard.test=eat-memory", memory=1024)) as guest:
        ate = int(guest.expect(r"garboard-hello: ate (\d+) MiB").group(1))
        assert ate > 800, f"it ate {ate} MiB of 1024"
        guest.read_to = 0
        guest.expect("hello:/# ")
        held = re.search(r"Shmem: +(\d+) kB", guest.run("grep Shmem: /proc/meminfo"))
        assert held, "the guest does not print its shared memory"
        assert int(held.group(1)) >= ate << 10, f"it reports {ate} MiB and holds {held.group(1)} KiB"


def test_hello_panics_and_says_so(hello_files: pathlib.Path) -> None:
    arguments = kernel(hello_files, "garboard.test=panic")
    with PlainQemu([*arguments, "-device", "pvpanic-pci", "-action", "panic=shutdown"]) as guest:
        guest.expect("garboard-hello: panicking")
        guest.expect_end()


def test_hello_boots_from_its_disk_by_bios(hello_files: pathlib.Path, note: Note) -> None:
    with PlainQemu(["-m", "256", *user_network(), *disk(hello_files / "disk/hello.img")]) as guest:
        guest.expect("hello:/# ")
        note(f"prompt after {guest.seconds():.2f} s")


def test_hello_boots_from_its_disk_by_efi(hello_files: pathlib.Path, tmp_path: pathlib.Path, note: Note) -> None:
    firmware = pathlib.Path("/usr/share/OVMF/OVMF_CODE_4M.fd")
    if not firmware.exists():
        raise Skipped("the package ovmf is not installed")
    variables = tmp_path / "vars.fd"
    variables.write_bytes(firmware.with_name("OVMF_VARS_4M.fd").read_bytes())
    code = f"if=pflash,format=raw,readonly=on,file={firmware}"
    flash = ["-drive", code, "-drive", f"if=pflash,format=raw,file={variables}"]
    with PlainQemu(["-m", "256", *flash, *user_network(), *disk(hello_files / "disk/hello.img")]) as guest:
        guest.expect("hello:/# ", 90)
        note(f"prompt after {guest.seconds():.2f} s")
        guest.run("test -d /sys/firmware/efi")


def test_hello_pc_drives_the_devices_of_a_pc(hello_pc_files: pathlib.Path, note: Note) -> None:
    watchdog = ["-device", "i6300esb", "-action", "watchdog=poweroff"]
    devices = ["-device", "ahci,id=sata", "-device", "qemu-xhci", "-device", "usb-tablet", *watchdog]
    root = disk(hello_pc_files / "disk/hello.img", "ide-hd,bus=sata.0")
    with PlainQemu(kernel(hello_pc_files, "garboard.test=") + devices + user_network("e1000e") + root) as guest:
        guest.expect("garboard-hello: address")
        guest.expect("hello:/# ")
        note(f"prompt after {guest.seconds():.2f} s")
        # USB is enumerated after its driver is loaded; the limit of the question is that of the wait.
        guest.run("until grep -q Tablet /proc/bus/input/devices; do usleep 20000; done")
        seen = guest.run("hardware; cat /proc/bus/input/devices; ls /dev/watchdog")
        for part in ("disk sda", "driver=e1000e", "USB Tablet", "/dev/watchdog"):
            assert part in seen, f"{part} is missing in {seen}"


def test_hello_pc_sees_a_usb_device_that_is_played(hello_pc_files: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "usbredir"
    redirection = ["-chardev", f"socket,id=usb,path={path},server=on,wait=off", "-device", "qemu-xhci"]
    redirection += ["-device", "usb-redir,chardev=usb"]
    device = Device(0x1209, 0x0001, "played by garboard")
    with PlainQemu([*kernel(hello_pc_files, "garboard.test="), *redirection]) as guest:
        guest.expect("hello:/# ")
        connected = socket.socket(socket.AF_UNIX)
        connected.connect(str(path))
        with plugged(device, Socket(connected)):
            guest.run(f"until grep -qs '{device.name}' {device.seen_in}; do usleep 20000; done")
            ids = guest.run("cd /sys/bus/usb/devices; cat $(dirname $(grep -ls played */product))/id[VP]*; cd /")
            assert "0001" in ids and "1209" in ids, ids
        guest.run(f"while grep -qs '{device.name}' {device.seen_in}; do usleep 20000; done")
