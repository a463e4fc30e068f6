"""KVM through the real command: a firmware-level guest under KVM and TCG, and the error where there is no KVM."""

import json
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.care import looked_after
from garboard_e2e.command import Garboard
from garboard_e2e.guests import BOOTSECTOR
from garboard_e2e.outcome import Skipped
from garboard_e2e.places import EXAMPLES
from garboard_e2e.processes import process_with, status_of

NAMESPACE = "check-kvm"
MACHINE = f"{NAMESPACE}/firmware"


class Firmware(Garboard):
    """The command, and the guest's manifest in a namespace of its own."""

    def __init__(self, programs: pathlib.Path, layout: pathlib.Path, directory: pathlib.Path) -> None:
        super().__init__(programs, directory, [MACHINE])
        self.manifest = self.directory / "vmi.yaml"
        text = (EXAMPLES / "vmi-firmware.yaml").read_text()
        text = text.replace("name: firmware", f"name: firmware\n  namespace: {NAMESPACE}")
        # The usual weight, a tenth of a CPU, starves the guest on a busy host.
        weight = "    resources:\n      requests:\n        cpu: 8\n"
        self.manifest.write_text(text.replace("  domain:\n", f"  domain:\n{weight}"))
        self.image = f"{BOOTSECTOR}={layout}"

    def command(self, *options: str) -> list[str]:
        return ["run", *options, "--image", self.image, str(self.manifest)]


@pytest.fixture
def firmware(
    request: pytest.FixtureRequest,
    programs: pathlib.Path,
    directory: pathlib.Path,
    guest: Callable[[str], pathlib.Path],
) -> Iterator[Firmware]:
    yield from looked_after(request, Firmware(programs, guest(BOOTSECTOR), directory))


def need_kvm() -> None:
    try:
        os.close(os.open("/dev/kvm", os.O_RDWR))
    except OSError as error:
        raise Skipped(f"/dev/kvm does not open: {error.strerror}") from None


def boots(firmware: Firmware, accelerator: str) -> None:
    """To the guest's marker, on a terminal; then one question over QMP, and the power button."""
    terminal = firmware.terminal(*firmware.command("--accel", accelerator), TERM="dumb")
    # Seconds on a quiet machine, also where KVM interprets.
    terminal.expect("garboard-boot: started", 300)
    terminal.expect("garboard-boot: counted", 300)
    answer = json.loads(firmware.run("qmp", MACHINE, "query-kvm"))
    assert answer == {"enabled": accelerator == "kvm", "present": True}
    if accelerator == "kvm":
        has_kvm_of_its_own()
    firmware.run("stop", MACHINE)
    terminal.expect("garboard-boot: power button", 30)
    terminal.expect("powered down when asked", 30)
    terminal.expect_end(30)


def has_kvm_of_its_own() -> None:
    """QEMU's /dev/kvm is its user's, to whichever user the host's belongs; its user is in no other group."""
    process = process_with(f"guest={NAMESPACE}_")
    assert process, "there is no QEMU"
    qemu = pathlib.Path(f"/proc/{process}")
    node, real, user = os.stat(qemu / "root/dev/kvm"), os.stat("/dev/kvm"), qemu.stat().st_uid
    found = (node.st_uid, node.st_gid, node.st_mode & 0o7777, node.st_rdev)
    assert found == (user, user, 0o660, real.st_rdev), f"the machine's /dev/kvm is {node}"
    assert not status_of(process)["Groups"].split(), "QEMU is in other groups"


def test_a_firmware_guest_runs_under_kvm_with_a_dev_kvm_of_its_own(firmware: Firmware) -> None:
    need_kvm()
    boots(firmware, "kvm")


def test_the_same_under_tcg(firmware: Firmware) -> None:
    boots(firmware, "tcg")


def test_accel_kvm_without_kvm_is_refused_in_one_line(firmware: Firmware) -> None:
    """In a mount namespace whose /dev/kvm is an empty place; then with one that is no KVM."""
    dev = f"{firmware.directory}/dev"
    hide = "true"
    if os.path.exists("/dev/kvm"):
        hide = (
            f"mkdir {dev} && mount --rbind /dev {dev} && mount -t tmpfs none /dev "
            f"&& for d in {dev}/*; do [ $d = {dev}/kvm ] || ln -s $d /dev/; done"
        )
    no_kvm = (hide, "this host has no /dev/kvm")
    false_kvm = (f"{hide} && ln -s /dev/null /dev/kvm", "this host's KVM does not run a guest")
    for prepare, why in [no_kvm, false_kvm]:
        around = ["unshare", "--mount", "sh", "-c", f'{prepare} && exec "$@"', "sh"]
        done = firmware.call(*firmware.command("--detach", "--accel", "kvm"), around=around)
        lines = done.stderr.strip().splitlines()
        assert done.returncode == 1, done
        assert len(lines) == 1 and lines[0].startswith("garboard: --accel kvm: ") and why in lines[0], done
        subprocess.run(["rmdir", dev], capture_output=True)
