"""virtctl with a whole Debian: ssh and scp, and a guest agent as distributions have it. One boot for all tests here,
which are left out of the usual run, because an emulated Debian takes a minute to boot."""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.objects import debian as manifest
from garboard_e2e.cluster.person import Tool
from garboard_e2e.cluster.virtctl import SshKey
from garboard_e2e.cluster.virtctl import virtctl as client
from garboard_e2e.guests import DEBIAN
from garboard_e2e.outcome import Failure
from garboard_e2e.places import temporary_directory

pytestmark = pytest.mark.long

NAME, USER = "barque", "debian"
# A boot under TCG takes less than a minute; not beside compilers.
BOOT = 900
# More than any buffer on the way.
MUCH = 3_000_000


class Guest:
    """A machine whose guest is reached by ssh, through virtctl alone."""

    def __init__(self, virtctl: Tool, name: str, key: SshKey) -> None:
        self.virtctl, self.name, self.key = virtctl, name, key

    def run(self, command: str, kind: str = "vmi") -> str:
        """What a command prints in the guest."""
        return self.virtctl.run("ssh", *self.key.options(), f"{USER}@{kind}/{self.name}", "--command", command)

    def answers(self, command: str) -> str:
        """The same; nothing where it cannot be asked yet."""
        with contextlib.suppress(Failure):
            return self.run(command).strip()
        return ""

    def copy(self, source: str, destination: str, *options: str) -> None:
        self.virtctl.run("scp", *self.key.options(), *options, source, destination)

    def path(self, path: str) -> str:
        return f"{USER}@vmi/{self.name}:{path}"


@pytest.fixture(scope="module")
def virtctl(kube: Kube) -> Tool:
    return client(kube)


@pytest.fixture(scope="module")
def key() -> Iterator[SshKey]:
    with temporary_directory() as directory:
        yield SshKey(directory)


@pytest.fixture(scope="module")
def image(kube: Kube, guest: Callable[[str], pathlib.Path]) -> None:
    """The nodes have the image of the guest."""
    kube.load(guest(DEBIAN))


@pytest.fixture(scope="module")
def debian(kube: Kube, virtctl: Tool, key: SshKey, image: None) -> Iterator[Guest]:
    kube.start(manifest(NAME, key.public))
    kube.prints(NAME, "cloud-init was here", seconds=BOOT)
    yield Guest(virtctl, NAME, key)
    kube.remove(NAME)


# ---- ssh and scp


@pytest.mark.parametrize("kind", ["vm", "vmi"])
def test_a_command_is_run_by_ssh(debian: Guest, kind: str) -> None:
    assert debian.run("hostname; id -un", kind).split() == [NAME, USER]


def test_the_end_of_a_command_is_that_of_virtctl(debian: Guest) -> None:
    target = f"{USER}@vmi/{debian.name}"
    failed = debian.virtctl.call("ssh", *debian.key.options(), target, "--command", "exit 3")
    assert failed.returncode != 0 and "exit status 3" in failed.stderr, failed


def test_as_much_as_fits_no_buffer_comes_by_ssh(debian: Guest) -> None:
    count = debian.run(f"head -c {MUCH} /dev/zero").count("\0")
    assert count == MUCH, f"of {MUCH} bytes {count} came"


def test_a_file_is_copied_there_and_back(debian: Guest, tmp_path: pathlib.Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_bytes(bytes(range(256)) * (MUCH // 256))
    debian.copy(str(there), debian.path("copied"))
    assert debian.run("stat -c %s copied").strip() == str(there.stat().st_size)
    debian.copy(debian.path("copied"), str(back))
    assert back.read_bytes() == there.read_bytes()


def test_a_directory_is_copied(debian: Guest, tmp_path: pathlib.Path) -> None:
    deep = tmp_path / "cargo/deep"
    deep.mkdir(parents=True)
    (deep / "hemp").write_text("seven bales")
    debian.copy(str(tmp_path / "cargo"), debian.path("."), "--recursive")
    assert debian.run("cat cargo/deep/hemp") == "seven bales"


def test_a_key_that_nobody_gave_opens_nothing(debian: Guest, tmp_path: pathlib.Path) -> None:
    other = SshKey(tmp_path)
    refused = debian.virtctl.call("ssh", *other.options(), f"{USER}@vmi/{debian.name}", "--command", "true")
    assert refused.returncode != 0 and "Permission denied" in refused.stderr, refused


# ---- the guest agent


def test_the_agent_of_a_distribution_is_asked(kube: Kube, virtctl: Tool, debian: Guest) -> None:
    kube.becomes("vmi", NAME, "AgentConnected")
    info = json.loads(virtctl.run("guestosinfo", NAME))
    assert info["hostname"] == NAME and "Debian GNU/Linux 12" in info["os"]["prettyName"], info
    assert info["guestAgentVersion"] and info["fsFreezeStatus"] == "thawed", info
    commands = {each["name"] for each in info["supportedCommands"]}
    assert {"guest-exec", "guest-fsfreeze-freeze"} <= commands, commands
    status = kube.get("vmi", NAME)["status"]
    reported = status["guestOSInfo"]
    expected = {"id": "debian", "versionId": "12", "prettyName": info["os"]["prettyName"]}
    assert expected.items() <= reported.items(), reported
    assert all(reported[field] for field in ("name", "version", "kernelRelease", "kernelVersion", "machine")), reported
    assert "AgentVersionNotSupported" not in [each["type"] for each in status["conditions"]], status["conditions"]
    disks = {disk["mountPoint"]: disk for disk in json.loads(virtctl.run("fslist", NAME))["items"]}
    root = disks["/"]
    assert root["fileSystemType"] == "ext4" and 0 < root["usedBytes"] < root["totalBytes"], root
    # Nobody is logged in at a terminal.
    assert not json.loads(virtctl.run("userlist", NAME))["items"]


def test_a_soft_reboot_is_done_by_the_agent(kube: Kube, virtctl: Tool, debian: Guest) -> None:
    boot = "cat /proc/sys/kernel/random/boot_id"
    uid, before = kube.runs(NAME), debian.run(boot).strip()
    virtctl.run("soft-reboot", NAME)
    kube.ask_until("another boot", lambda: debian.answers(boot) not in ("", before), BOOT)
    assert kube.runs(NAME) == uid, "a soft reboot should keep its instance"
    kube.becomes("vmi", NAME, "AgentConnected")
