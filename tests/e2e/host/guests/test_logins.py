"""The guests with logins of others, under plain QEMU: what tests/console/login.go of KubeVirt types, and what its
functional tests ask of guests, in as much memory as they give."""

import pathlib
import subprocess
from collections.abc import Callable

from garboard_e2e import guests
from garboard_e2e.plain_qemu import PlainQemu, disk, user_network

Note = Callable[[str], None]
Unpack = Callable[[str], pathlib.Path]
# What every prompt of a shell ends with there.
PROMPT = r"(\$ |# )"


def seed(work: pathlib.Path, user_data: str) -> list[str]:
    """A NoCloud disk with a host name, as Garboard writes it, and this user data."""
    content, image = work / "seed", work / "seed.iso"
    content.mkdir()
    (content / "meta-data").write_text('{"instance-id":"check","local-hostname":"barque"}')
    (content / "user-data").write_text(user_data)
    make = ["xorriso", "-as", "mkisofs", "-quiet", "-volid", "cidata", "-joliet", "-rock", "-output", str(image)]
    subprocess.run([*make, str(content)], check=True, stderr=subprocess.DEVNULL)
    drive = f"if=none,id=seed,format=raw,readonly=on,file={image}"
    return ["-drive", drive, "-device", "virtio-blk-pci,drive=seed"]


def random_numbers() -> list[str]:
    return ["-object", "rng-random,id=random,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=random"]


def answer(guest: PlainQemu, command: str, wanted: str, seconds: float = 30) -> None:
    """A command as the suite types it: what is wanted stands at the beginning of a line, and a prompt comes."""
    guest.type(f"{command}\n".encode())
    guest.expect(rf"[\r\n]{wanted}[^\r\n]*\r\n.*{PROMPT}", seconds)


def log_in(guest: PlainQemu, name: str, user: str, password: str = "") -> None:
    """`name` is a regular expression."""
    guest.type(b"\n")
    guest.expect(f"{name} login: ", 180)
    guest.type(f"{user}\n".encode())
    if password:
        guest.expect("Password:", 60)
        guest.type(f"{password}\n".encode())
    guest.expect(PROMPT, 60)
    answer(guest, "stty cols 500 rows 500; echo $?", "0")


def test_alpine_lets_root_in_and_its_watchdog_runs_out(unpack: Unpack, note: Note) -> None:
    files = unpack(guests.ALPINE)
    arguments = ["-m", "128", *disk(files / "disk/hello.img"), "-device", "i6300esb", "-action", "watchdog=poweroff"]
    with PlainQemu([*arguments, *user_network()]) as guest:
        log_in(guest, "localhost", "root")
        note(f"logged in after {guest.seconds():.2f} s")
        answer(guest, "hostname", "localhost")
        answer(
            guest, 'nc -klp 1500 -e echo -e "Hello World!" & sleep 1; echo test | nc 127.0.0.1 1500 -i 1 -w 1', "Hello"
        )
        answer(guest, "echo test | nc 127.0.0.1 1501 -i 1 -w 1; echo $?", "1")
        answer(guest, "ping -c 1 -w 10 10.0.2.2 >/dev/null; echo $?", "0")
        answer(guest, "wget -S --spider http://10.0.2.2:1 -T 5; echo $?", "1")
        guest.type(b"watchdog -t 2000ms -T 4000ms /dev/watchdog && sleep 5 && killall -9 watchdog\n")
        guest.expect_end(60)


def test_alpine_with_tools_has_a_guest_agent(unpack: Unpack) -> None:
    files = unpack(guests.ALPINE_TOOLS)
    with PlainQemu(["-m", "128", *disk(files / "disk/hello.img"), *random_numbers()]) as guest:
        log_in(guest, "localhost", "root")
        answer(guest, "grep -o garboard.test=agent /proc/cmdline", "garboard.test=agent")
        answer(guest, "cat /sys/devices/virtual/misc/hw_random/rng_available", "virtio_rng")


def test_cirros_runs_a_script_of_its_cloud_and_counts_its_boots(
    unpack: Unpack, tmp_path: pathlib.Path, note: Note
) -> None:
    files = unpack(guests.CIRROS)
    script = seed(tmp_path, "#!/bin/bash\ntouch /executed\n")
    with PlainQemu(["-m", "128", *disk(files / "disk/hello.img"), *script]) as guest:
        guest.expect(r"login as 'cirros' user\. default password: 'gocubsgo'\. use 'sudo' for root\.", 120)
        log_in(guest, "barque", "cirros", "gocubsgo")
        note(f"logged in after {guest.seconds():.2f} s")
        answer(guest, "id -u; sudo id -u", "1000\r\n0")
        answer(guest, "cat /executed; echo $?", "0")
        answer(guest, "ping -c 1 -w 10 127.0.0.1 >/dev/null; echo $?", "0")
        answer(guest, "last reboot | grep reboot | wc -l", "1")
        guest.type(b"sudo reboot\n")
        guest.expect("The system is going down NOW!", 30)
        log_in(guest, "barque", "cirros", "gocubsgo")
        answer(guest, "last reboot | grep reboot | wc -l", "2")
        guest.type(b"sudo poweroff\n")
        guest.expect_end(60)


def test_fedora_has_its_user_and_prompt_without_a_cloud(unpack: Unpack, note: Note) -> None:
    files = unpack(guests.FEDORA)
    with PlainQemu(["-m", "512", *disk(files / "disk/debian.qcow2"), *user_network()]) as guest:
        log_in(guest, "localhost", "fedora", "fedora")
        note(f"logged in after {guest.seconds():.2f} s")
        guest.type(b"sudo su\n")
        guest.expect(r"\[root@localhost fedora\]# ", 60)
        answer(guest, "last reboot | grep reboot | wc -l", "1")
        answer(guest, "ip -4 -o address show dev eth0 | grep -c 10.0.2.15", "1", 60)
        answer(guest, "ss -ltn | grep -c ':22 '", "[12]", 60)
        began = guest.seconds()
        guest.execute("system_powerdown")
        guest.expect_end(60)
        note(f"powered down in {guest.seconds() - began:.2f} s")


def test_fedora_takes_keys_and_a_name_from_its_cloud(unpack: Unpack, tmp_path: pathlib.Path, note: Note) -> None:
    files = unpack(guests.FEDORA)
    key = "ssh-rsa AAAAB3NzaC1yc2EAAAABIwAAAQEA6NF8iallvQVp22WDkT test-ssh-key1"
    cloud = seed(tmp_path, f"#cloud-config\nchpasswd: {{ expire: False }}\nssh_authorized_keys:\n  - {key}\n")
    with PlainQemu(["-m", "512", *disk(files / "disk/debian.qcow2"), *cloud]) as guest:
        log_in(guest, "barque", "fedora", "fedora")
        note(f"logged in after {guest.seconds():.2f} s")
        answer(guest, "cat /home/fedora/.ssh/authorized_keys", "ssh-rsa .* test-ssh-key1")


def test_fedora_has_the_name_and_the_domains_of_its_lease(unpack: Unpack) -> None:
    files = unpack(guests.FEDORA)
    network = user_network(options=",hostname=skiff,dnssearch=harbour.example")
    with PlainQemu(["-m", "512", *disk(files / "disk/debian.qcow2"), *network]) as guest:
        log_in(guest, "(localhost|skiff)", "fedora", "fedora")
        answer(guest, 'until [ "$(hostname)" = skiff ]; do sleep 1; done; hostname', "skiff", 60)
        answer(guest, "cat /etc/resolv.conf", r"search harbour\.example\r\nnameserver 10\.0\.2\.3", 60)
        answer(guest, "ls /usr/sbin/dmidecode /usr/sbin/dhclient | wc -l", "2")
        answer(guest, "grep -c '^NAME=.*Fedora' /etc/os-release", "1")
