"""Every end of a run has its own name."""

import json
import os
import pathlib
import re
import signal
import socket
import time
from collections.abc import Callable

import pytest

from garboard_e2e import names
from garboard_e2e.guests import HELLO_PC
from garboard_e2e.machine import Machine
from garboard_e2e.patience import PATIENCE
from garboard_e2e.processes import status_of

PANIC_DEVICE = {"panicDevices": [{"model": "pvpanic"}]}
# By which KubeVirt's functional tests have starts fail; its value does not matter.
FAIL_FAST = "kubevirt.io/func-test-virt-launcher-fail-fast"


def test_guests_end_themselves(machine: Machine) -> None:
    machine.start("poweroff")
    machine.expect_end("guestShutdown")
    machine.start("panic", devices=PANIC_DEVICE)
    machine.expect_end("guestPanic")


def test_a_command_that_stays_attached_ends_with_5_after_a_bad_end(machine: Machine) -> None:
    path = machine.manifest("panic", devices=PANIC_DEVICE)
    output = machine.run("run", "--accel", "tcg", "--image", machine.image_option, path, code=5)
    assert "the guest's kernel panicked" in output, f"the end should be reported: {output[-600:]}"
    machine.expect_end("guestPanic")


def test_a_start_that_is_to_fail_ends_before_qemu_is_executed(machine: Machine) -> None:
    path = pathlib.Path(machine.manifest("poweroff"))
    manifest = json.loads(path.read_text())
    manifest["metadata"]["annotations"] = {FAIL_FAST: ""}
    path.write_text(json.dumps(manifest))
    # How the command ends is not what this is about.
    machine.call("run", "--detach", "--accel", "tcg", "--image", machine.image_option, path)
    machine.expect_end("notStarted", FAIL_FAST)


def test_a_watchdog_that_ends_the_run_is_named(machine: Machine, guest: Callable[[str], pathlib.Path]) -> None:
    watchdog = {"watchdog": {"name": "dog", "i6300esb": {"action": "poweroff"}}}
    machine.start("watchdog-bite", image=guest(HELLO_PC), devices=watchdog)
    machine.expect_end("watchdog")


def test_a_panic_without_a_supervisor_is_not_lost(machine: Machine) -> None:
    machine.start("panic", devices=PANIC_DEVICE)
    shim = machine.only(names.SHIM)
    os.kill(shim, signal.SIGSTOP)
    machine.kill(names.SUPERVISOR)
    machine.wait_for("garboard-hello: panicking")
    time.sleep(1)
    os.kill(shim, signal.SIGCONT)
    machine.expect_end("guestPanic")


def test_a_reboot_is_a_reset_and_the_run_goes_on(machine: Machine) -> None:
    machine.start("reboot-once")
    machine.wait_for("garboard-hello: second boot")
    machine.wait_for_shell()
    # Linux tries several ways at once, and QEMU reports each.
    assert machine.reported_status()["resets"] >= 1, f"a reboot should be counted: {machine.status()}"
    machine.run("stop", machine.name)
    machine.expect_end("stoppedGracefully")


def last_console(machine: Machine) -> bytes:
    return (machine.records()[-1] / "serial0.log").read_bytes()


def test_graceful_stops_agent_power_button_after_a_pause_neither(machine: Machine) -> None:
    machine.start("agent")
    machine.wait_for("garboard-hello: agent")
    machine.wait("the agent", lambda: (machine.status() or {}).get("guest"))
    machine.run("stop", machine.name)
    machine.expect_end("stoppedGracefully")
    assert b"agent shutdown" in last_console(machine), "the guest agent was there and was not asked"
    machine.start()
    machine.wait_for_shell()
    machine.run("pause", machine.name)
    machine.run("stop", machine.name)
    machine.expect_end("stoppedGracefully")
    assert b"power button" in last_console(machine), "the power button was not pressed"
    machine.start("ignore-power")
    machine.wait_for_shell()
    machine.run("stop", "--grace-period", "1", machine.name)
    machine.expect_end("gracePeriodExceeded")


def hang_on_the_way_out(machine: Machine, number: int | None) -> bool:
    """Stops QEMU as soon as it has reported that it leaves, as if it hung in its cleanup; `number` is a signal to leave
    for, if it does not on its own. Whether it was there still."""
    qemu = machine.qemu
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE)
        client.connect(str(machine.supervisor / "qmp.sock"))
        lines = client.makefile("rb")
        lines.readline()
        client.sendall(b'{"execute": "qmp_capabilities"}\n')
        lines.readline()
        if number is not None:
            os.kill(qemu, number)
        while b'"SHUTDOWN"' not in (line := lines.readline()):
            assert line, "QEMU left without a line in its log"
        try:
            os.kill(qemu, signal.SIGSTOP)
            return machine.wait("QEMU that stands still", lambda: re.match("[TZ]", status_of(qemu)["State"]))[0] == "T"
        except (ProcessLookupError, FileNotFoundError):
            return False


@pytest.mark.parametrize(
    "behaviour, number, cause, text",
    [(None, signal.SIGTERM, "qemuKilled", "signal 15"), ("poweroff", None, "guestShutdown", "")],
)
def test_a_qemu_that_hangs_on_its_way_out_has_the_cause_that_it_left_for(
    machine: Machine, behaviour: str | None, number: int | None, cause: str, text: str
) -> None:
    """QEMU may, where a command comes at that moment: it answers nothing then, and never ends."""
    for _ in range(10):
        machine.start(behaviour)
        hangs = hang_on_the_way_out(machine, number)
        ended = machine.expect_end(cause, text)
        if hangs:
            assert ended["report"]["killedByInit"], f"QEMU stood still, and yet: {ended}"
            return
    raise AssertionError("QEMU was always quicker")
