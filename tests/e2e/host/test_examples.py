"""Every file of examples/: judged; explained and booted until the guest prints what it should, where a host can."""

import contextlib
import pathlib
import re
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e import guests, terminal
from garboard_e2e.care import looked_after
from garboard_e2e.namespace import Namespace
from garboard_e2e.outcome import Failure
from garboard_e2e.patience import PATIENCE
from garboard_e2e.places import EXAMPLES
from garboard_e2e.processes import free_port
from garboard_e2e.terminal import Terminal


@pytest.fixture
def namespace(request: pytest.FixtureRequest, programs: pathlib.Path, directory: pathlib.Path) -> Iterator[Namespace]:
    yield from looked_after(request, Namespace(programs, directory, "examples"))


class Guest:
    """A booted example."""

    def __init__(self, terminal: Terminal, web_port: int) -> None:
        self.terminal, self.web_port = terminal, web_port

    def shell(self, command: str, wanted: str) -> None:
        """Types a command; `wanted` must appear in what it prints."""
        printed = terminal.shell(self.terminal, command, PATIENCE)
        if not re.search(wanted, printed):
            raise Failure(f"`{command}` should print {wanted!r}, not\n{printed}")


def has_prompt(guest: Guest) -> None:
    guest.terminal.expect("# ", PATIENCE)


def has_address(guest: Guest) -> None:
    guest.terminal.expect(r"garboard-hello: address \d+\.\d+\.\d+\.\d+", PATIENCE)
    has_prompt(guest)


def shows_it_was_started_by_efi(guest: Guest) -> None:
    has_address(guest)
    guest.shell("ls /sys/firmware", "efi")


def has_the_claims_disk(guest: Guest) -> None:
    has_address(guest)
    guest.shell("hardware", r"disk vdb bytes=67108864 ro=0 serial=hello-data")


def can_mount_its_configuration(guest: Guest) -> None:
    has_address(guest)
    mount = "settle; mkdir -p /m; mount -t iso9660 -r $(findfs LABEL=app-config) /m"
    guest.shell(f"{mount} && cat /m/app.conf", "greeting = hello")
    guest.shell("umount /m; mount -t iso9660 -r /dev/vdb /m && cat /m/token", "not-really-secret")
    guest.shell("umount /m; mount -t iso9660 -r /dev/vdc /m && cat /m/labels", 'app="hello"')


def serves_a_page(guest: Guest) -> None:
    has_address(guest)
    page, end = b"", time.monotonic() + PATIENCE
    # The server starts beside the prompt; until then the connection is refused in the guest.
    while not page and time.monotonic() < end:
        with contextlib.suppress(OSError):
            page = urllib.request.urlopen(f"http://127.0.0.1:{guest.web_port}/", timeout=PATIENCE).read()
    assert page == b"garboard-hello from web\n"


def has_all_its_disks(guest: Guest) -> None:
    has_address(guest)
    # A USB disk is looked at a second after it was found.
    six_disks = "until [ $(hardware | grep -c ^disk) = 6 ]; do usleep 100000; done"
    guest.shell(f"{six_disks}; hardware", "driver=e1000e")
    guest.shell("ls /dev/vda /dev/vdb /dev/sda /dev/sdb /dev/sdc /dev/sr0 /dev/watchdog", "/dev/watchdog")
    guest.shell("nproc", "2\n")


def has_the_size_of_its_instancetype(guest: Guest) -> None:
    has_address(guest)
    guest.shell("nproc", "2\n")
    guest.shell("settle; ls /dev/vda", "/dev/vda")


def ran_cloud_init(guest: Guest) -> None:
    guest.terminal.expect("cloud-init was here", 900)


def counts(guest: Guest) -> None:
    guest.terminal.expect("garboard-boot: counted", PATIENCE)


# What is expected of the guest.
EXPECTED: dict[str, Callable[[Guest], None]] = {
    "vm-hello": has_address,
    "vmi-firmware": counts,
    "vmi-minimal": has_prompt,
    "vm-bridge": has_address,
    "vm-configmap": can_mount_its_configuration,
    "vm-debian-cloudinit": ran_cloud_init,
    "vm-efi": shows_it_was_started_by_efi,
    "vm-instancetype": has_the_size_of_its_instancetype,
    "vm-multi-disk": has_all_its_disks,
    "vm-ports": serves_a_page,
    "vm-pvc": has_the_claims_disk,
}


# What there is in a cluster alone; tests/e2e/cluster/kubernetes/test_examples.py boots it.
OF_CLUSTERS = sorted(EXAMPLES.glob("vmpool-*.yaml"))
BOOTED = sorted(set(EXAMPLES.glob("*.yaml")) - set(OF_CLUSTERS))


@pytest.mark.parametrize("example", OF_CLUSTERS, ids=lambda example: example.stem)
def test_an_example_of_a_cluster_is_judged(namespace: Namespace, example: pathlib.Path) -> None:
    namespace.run("validate", example)


@pytest.mark.parametrize("example", BOOTED, ids=lambda example: example.stem)
def test_an_example(namespace: Namespace, guest: Callable[[str], pathlib.Path], example: pathlib.Path) -> None:
    """Judged and explained as it is, booted as a copy in a namespace of its own until it is as expected, stopped."""
    assert example.stem in EXPECTED, "name in EXPECTED what its guest should do"
    text, web_port = example.read_text(), free_port()
    images = [f"--image={reference}={guest(reference)}" for reference in guests.RECIPES if reference in text]
    publish = ["-p", f"{web_port}:80"] if example.stem == "vm-ports" else []
    namespace.run("validate", example)
    namespace.run("explain", example, *images)
    terminal = namespace.terminal("run", namespace.example(example.stem), *images, *publish)
    EXPECTED[example.stem](Guest(terminal, web_port))
    machine = namespace.machines()[0]["name"]
    terminal.detach(PATIENCE)
    namespace.run("stop", namespace.id(machine))
