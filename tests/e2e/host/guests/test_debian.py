"""The Debian guest under plain QEMU."""

import contextlib
import json
import pathlib
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

from garboard_e2e.outcome import Failure
from garboard_e2e.plain_qemu import PlainQemu, disk, kernel, user_network
from garboard_e2e.processes import free_port

Note = Callable[[str], None]


def make_seed(work: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """A NoCloud disk: host name, a user with a key. Returns it and the private key."""
    seed, key, image = work / "seed", work / "key", work / "seed.iso"
    seed.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = key.with_suffix(".pub").read_text().strip()
    (seed / "meta-data").write_text("instance-id: check\nlocal-hostname: barque\n")
    (seed / "user-data").write_text(
        "#cloud-config\nusers:\n  - name: sailor\n    shell: /bin/bash\n    ssh_authorized_keys:\n"
        f"      - {public}\nruncmd:\n  - echo applied >/run/applied\n"
    )
    make = ["xorriso", "-as", "mkisofs", "-quiet", "-volid", "cidata", "-joliet", "-rock", "-output", str(image)]
    subprocess.run([*make, str(seed)], check=True, stderr=subprocess.DEVNULL)
    return image, key


def ask_agent(path: pathlib.Path, request: str) -> Any:
    """One question to the guest agent, repeated until it answers."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(5)
            channel.connect(str(path))
            channel.sendall(json.dumps({"execute": request}).encode() + b"\n")
            with contextlib.suppress(TimeoutError):
                return json.loads(channel.makefile("r").readline())["return"]
    raise Failure(f"the guest agent did not answer {request}")


def agent_device(socket_path: pathlib.Path) -> list[str]:
    chardev = f"socket,id=agent,path={socket_path},server=on,wait=off"
    port = "virtserialport,chardev=agent,name=org.qemu.guest_agent.0"
    return ["-device", "virtio-serial-pci", "-chardev", chardev, "-device", port]


def ssh(key: pathlib.Path, port: int) -> list[str]:
    settings = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "ConnectTimeout=30"]
    options = [option for setting in settings for option in ("-o", setting)]
    return ["ssh", "-i", str(key), "-p", str(port), *options, "sailor@127.0.0.1"]


def test_debian_applies_cloud_init_and_is_reached_by_ssh(
    debian_files: pathlib.Path, tmp_path: pathlib.Path, note: Note
) -> None:
    seed, key = make_seed(tmp_path)
    port, agent = free_port(), tmp_path / "agent.sock"
    seed_disk = [
        "-drive",
        f"if=none,id=seed,format=raw,readonly=on,file={seed}",
        "-device",
        "virtio-blk-pci,drive=seed",
    ]
    arguments = [
        *kernel(debian_files, memory=1024),
        *("-smp", "2"),
        *user_network(options=f",hostfwd=tcp:127.0.0.1:{port}-:22"),
        *disk(debian_files / "disk/debian.qcow2"),
        *seed_disk,
        *agent_device(agent),
        *("-device", "virtio-rng-pci"),
    ]
    with PlainQemu(arguments) as guest:
        guest.expect("barque login:", 240)
        note(f"login prompt after {guest.seconds():.2f} s")
        assert ask_agent(agent, "guest-get-host-name") == {"host-name": "barque"}
        note(f"guest agent after {guest.seconds():.2f} s")
        interfaces = ask_agent(agent, "guest-network-get-interfaces")
        assert "10.0.2.15" in json.dumps(interfaces), interfaces
        waiting = "until [ -e /run/applied ]; do sleep 0.2; done; cat /run/applied; hostname; sudo -n true || id -un"
        done = subprocess.run([*ssh(key, port), waiting], capture_output=True, text=True, timeout=120)
        assert done.stdout.split() == ["applied", "barque", "sailor"], done
        note(f"all of cloud-init after {guest.seconds():.2f} s")
        guest.execute("system_powerdown")
        guest.expect_end(90)


def test_debian_boots_from_its_disk_by_bios(debian_files: pathlib.Path, note: Note) -> None:
    with PlainQemu(["-m", "1024", "-smp", "2", *disk(debian_files / "disk/debian.qcow2")]) as guest:
        guest.expect("login:", 240)
        note(f"login prompt after {guest.seconds():.2f} s")
