"""A Debian as clouds have it, through the real command: user data is applied, the guest agent answers, ssh gets in,
and the guest is powered down by its agent. One boot for all tests here, because TCG is slow."""

import contextlib
import ipaddress
import json
import pathlib
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from garboard_e2e.care import looked_after
from garboard_e2e.guests import DEBIAN
from garboard_e2e.namespace import Namespace
from garboard_e2e.outcome import Failure
from garboard_e2e.patience import PATIENCE
from garboard_e2e.places import temporary_directory
from garboard_e2e.processes import free_port
from garboard_e2e.terminal import DETACH

EXAMPLE_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPYcrQEP7VVbltAmyNcITpNDJvN8o4DCmRJGeYRk65tB example"
GUEST_ADDRESS = "10.0.2.2"
# What user data can do that only cloud-init would: a host name, a user with a key, a file.
MORE_USER_DATA = (
    "    runcmd:\n",
    "    write_files:\n      - path: /etc/cargo\n        content: seven bales of hemp\n    runcmd:\n",
)
# A boot under TCG takes less than a minute; not beside compilers.
BOOT = 900


class Ssh:
    """A key, and a client that asks nothing."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.key = directory / "key"
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(self.key)]
        subprocess.run(make, check=True)
        self.public = self.key.with_suffix(".pub").read_text().strip()

    def run(self, address: str, port: int, command: str) -> str:
        """What the command prints in the guest."""
        settings = ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"]
        options = [option for setting in [*settings, "ConnectTimeout=60"] for option in ("-o", setting)]
        done = subprocess.run(
            ["ssh", "-F", "none", "-i", str(self.key), "-p", str(port), *options, f"debian@{address}", command],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        if done.returncode != 0:
            where = f"ssh to {address} port {port}, `{command}`"
            raise Failure(f"{where}: ended with {done.returncode}: {done.stderr}")
        return done.stdout.strip()


class Debian:
    """The machine, booted, and how it is reached."""

    def __init__(self, namespace: Namespace, layout: pathlib.Path) -> None:
        self.namespace, self.ssh, self.port = namespace, Ssh(namespace.directory), free_port()
        self.id = namespace.id("debian")
        example = namespace.example("vm-debian-cloudinit", (EXAMPLE_KEY, self.ssh.public), MORE_USER_DATA)
        publish = ["-p", f"127.0.0.1:{self.port}:22"]
        self.terminal = namespace.terminal("run", example, f"--image={DEBIAN}={layout}", *publish)
        self.terminal.expect("cloud-init was here", BOOT)
        # A terminal that is not read would hold up the command.
        self.terminal.type(DETACH)
        self.detached = self.terminal.end(20)

    def run(self, command: str) -> str:
        return self.ssh.run("127.0.0.1", self.port, command)

    def uplink_address(self) -> str:
        """Where the machine's namespace is reached from this host."""
        pin = self.namespace.home(self.id) / "netns"
        command = ["nsenter", f"--net={pin}", "ip", "-j", "-4", "address", "show", "eth0"]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return str(ipaddress.ip_address(json.loads(shown)[0]["addr_info"][0]["local"]))

    def agent_status(self) -> dict[str, Any] | None:
        status = self.namespace.status("debian")
        assert status is not None, "the machine has no status"
        is_named = (status["guest"] or {}).get("hostname") == "barque"
        return status if is_named and status["interfaces"][0].get("interfaceName") else None


@pytest.fixture(scope="module")
def namespace(request: pytest.FixtureRequest, programs: pathlib.Path) -> Iterator[Namespace]:
    with temporary_directory() as directory:
        yield from looked_after(request, Namespace(programs, directory, "debian"))


@pytest.fixture(scope="module")
def debian(namespace: Namespace, guest: Callable[[str], pathlib.Path]) -> Iterator[Debian]:
    machine = Debian(namespace, guest(DEBIAN))
    yield machine
    # Where the test that stops it was left out.
    if namespace.home(machine.id).exists():
        namespace.run("stop", machine.id)


@pytest.fixture(scope="module")
def stopped(debian: Debian) -> Debian:
    debian.namespace.run("stop", debian.id, seconds=PATIENCE)
    return debian


def test_debian_boots_from_its_example_and_runs_cloud_init(debian: Debian) -> None:
    screen = debian.terminal.screen()
    assert debian.detached == 0, f"after Ctrl-] `garboard run` ended with {debian.detached}:\n{screen}"


def test_ps_has_host_name_system_kernel_and_the_interface_s_addresses_from_the_guest_agent(debian: Debian) -> None:
    status = debian.namespace.wait("the guest agent's report", debian.agent_status)
    guest, interface = status["guest"], status["interfaces"][0]
    assert "Debian GNU/Linux 12" in guest["os"], guest
    assert guest["kernel"] and guest["agentVersion"], guest
    # One interface seen from both sides, under its name of the manifest.
    assert len(status["interfaces"]) == 1, f"ps should report one interface: {status['interfaces']}"
    assert interface["name"] == "default", interface
    assert interface["infoSource"] == "domain, guest-agent", interface
    assert interface["addresses"][0] == GUEST_ADDRESS, f"ps should report the leased address first: {interface}"
    table = debian.namespace.run("ps")
    assert GUEST_ADDRESS in table, f"the address is not in the table of ps:\n{table}"


def test_user_data_is_applied_host_name_user_with_key_and_sudo_file_command(debian: Debian) -> None:
    """By ssh through a published port."""
    output = debian.run("hostname; cat /etc/cargo; echo; sudo id -u; cloud-init status --wait")
    lines = [line for line in output.splitlines() if line]
    assert lines == ["barque", "seven bales of hemp", "0", "status: done"], f"user data was not applied: {output!r}"


def test_ssh_through_a_published_port_of_as_much_as_fits_no_buffer_on_the_way(debian: Debian) -> None:
    count = debian.run("head -c 3000000 /dev/zero; echo the end >&2").count("\0")
    assert count == 3_000_000, f"of 3000000 bytes {count} came through -p"


def test_ssh_through_masquerade_to_the_namespace_s_address(debian: Debian) -> None:
    address = debian.uplink_address()
    output = debian.ssh.run(address, 22, "ip -4 addr show scope global")
    assert GUEST_ADDRESS in output, f"another machine answered at {address}"


def test_the_agent_freezes_and_thaws_file_systems(debian: Debian) -> None:
    run = debian.namespace.run
    assert f"{debian.id} frozen" in run("freeze", debian.id, "--unfreeze-timeout", "600")
    status = debian.namespace.status("debian")
    assert status and status["frozen"] and status["guest"]["hostname"] == "barque", status
    assert f"{debian.id} thawed" in run("unfreeze", debian.id)
    assert debian.run("echo thawed | sudo tee /etc/cargo") == "thawed"
    run("freeze", debian.id, "--unfreeze-timeout", "1")
    # It waits for the disk, and goes on.
    assert debian.run("echo seven bales of hemp | sudo tee /etc/cargo; sync") == "seven bales of hemp"


def test_a_soft_reboot_is_done_by_the_agent(debian: Debian) -> None:
    def boot() -> str:
        return debian.run("cat /proc/sys/kernel/random/boot_id")

    def is_another() -> bool:
        with contextlib.suppress(Failure, subprocess.TimeoutExpired):
            return boot() != before
        return False

    before = boot()
    assert f"{debian.id} rebooted" in debian.namespace.run("soft-reboot", debian.id, seconds=BOOT)
    debian.namespace.wait("ssh after the reboot", is_another, BOOT)
    events = debian.namespace.run("logs", debian.id)
    assert "the guest agent was asked to reboot the guest" in events, events
    debian.namespace.wait("the guest agent's report", debian.agent_status)


def test_stop_powers_it_down_by_its_agent(stopped: Debian) -> None:
    ended = stopped.namespace.ended(stopped.id)
    events = stopped.namespace.run("logs", "--last", stopped.id)
    assert ended["cause"]["cause"] == "stoppedGracefully", f"{ended}:\n{events}"
    assert "the guest agent was asked to power down" in events, f"{ended}:\n{events}"


def test_the_serial_log_is_readable_after_the_end(stopped: Debian) -> None:
    serial = stopped.namespace.run("logs", "--last", "--part", "serial", stopped.id)
    for text in ["cloud-init was here", "reboot: Power down"]:
        assert text in serial, f"{text!r} is not in the serial log:\n{serial[-2000:]}"
