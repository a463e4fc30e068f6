"""The guest that is a firmware of its own, under plain QEMU."""

import os
import pathlib
from collections.abc import Callable

import pytest

from garboard_e2e import guests
from garboard_e2e.outcome import Skipped
from garboard_e2e.plain_qemu import PlainQemu

Start = Callable[[str], PlainQemu]


@pytest.fixture(scope="module")
def roms() -> pathlib.Path:
    return guests.roms()


@pytest.fixture(params=["kvm", "tcg"])
def start(request: pytest.FixtureRequest, roms: pathlib.Path) -> Start:
    """Starts a variant of it, under either accelerator."""
    accel: str = request.param
    if accel == "kvm" and not os.access("/dev/kvm", os.R_OK | os.W_OK):
        raise Skipped("/dev/kvm is missing or not permitted")
    devices = [
        *("-device", "virtio-rng-pci", "-device", "pcie-root-port,id=port1,chassis=1"),
        *("-device", "virtio-balloon-pci,bus=port1"),
    ]
    return lambda variant: PlainQemu(["-m", "64", "-bios", f"{roms}/{variant}.bin", *devices], accel)


def test_rom_reports_and_powers_off(start: Start, note: Callable[[str], None]) -> None:
    with start("off") as guest:
        guest.expect("garboard-rom: started")
        note(f"first line after {guest.seconds() * 1000:.0f} ms")
        guest.expect("garboard-rom: virtio 00:01 1005")
        guest.expect("garboard-rom: virtio 01:00 1045")
        guest.expect("garboard-rom: counted in ring 3")
        guest.expect("garboard-rom: powering off")
        guest.expect_end()


def test_rom_beats_until_the_power_button(start: Start) -> None:
    with start("heartbeat") as guest:
        guest.expect("garboard-rom: beat 5\r")
        guest.execute("system_powerdown")
        guest.expect("garboard-rom: power button")
        guest.expect_end()


def test_rom_halts(start: Start) -> None:
    with start("halt") as guest:
        guest.expect("garboard-rom: halted")
        guest.execute("system_powerdown")
        guest.execute("quit")
        guest.expect_end()
