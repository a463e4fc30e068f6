"""Supervisors are killed: the guest may not notice, nothing is left behind and nothing leaks."""

import collections
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Callable

from garboard_e2e import names
from garboard_e2e.machine import Machine
from garboard_e2e.outcome import Failure
from garboard_e2e.patience import PATIENCE
from garboard_e2e.source import Source


def test_a_supervisor_killed_while_it_starts_a_machine_is_followed_by_the_next(
    machine: Machine, note: Callable[[str], None]
) -> None:
    """Before, while and after QEMU is executed: there is one QEMU in the end, and it runs."""
    times = 12
    for number in range(times):
        run = machine.begin("run", "--detach", "--accel", "tcg", machine.manifest(tests=None))
        supervisor = machine.only(names.SUPERVISOR)
        time.sleep(0.02 * number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor, signal.SIGKILL)
        output, _ = run.communicate(timeout=PATIENCE)
        assert run.returncode == 0, (
            f"killed after {20 * number} ms, `garboard run` ended with {run.returncode}: {output}"
        )
        # The supervisor may have been killed when everything was reported; then the next one has to come first.
        machine.wait("a supervisor that reports Running", lambda: machine.status_in("Running"))
        machine.only(names.QEMU)
        machine.run("stop", "--force", machine.name)
        machine.expect_end("forceStopped")
    note(f"{times} starts")


Held = dict[str, collections.Counter[str]]


def descriptors(process: int) -> collections.Counter[str]:
    """How many descriptors of which kind a process holds."""
    kinds: collections.Counter[str] = collections.Counter()
    for number in pathlib.Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            kinds[re.sub(r"[:#]\[?\d+\]?", "", os.readlink(number))] += 1
    return kinds


def held(machine: Machine) -> Held:
    return {program: descriptors(machine.only(program)) for program in names.PROCESSES}


def expect_same_descriptors(machine: Machine, before: Held) -> None:
    def grown() -> Held:
        now = held(machine)
        return {program: more for program in now if (more := now[program] - before[program])}

    try:
        # The supervisor tries for a guest agent now and then, with a socket more.
        machine.wait("", lambda: not grown())
    except Failure:
        raise Failure(f"descriptors leaked: {grown()}") from None


def progress(machine: Machine, what: str) -> int:
    return max([int(number) for number in re.findall(rb"%s (\d+)" % what.encode(), machine.serial())], default=0)


def expect_progress(machine: Machine, source: Source) -> None:
    disk, served = progress(machine, "disk-load"), source.served
    machine.wait("more rounds of disk load", lambda: progress(machine, "disk-load") > disk + 1)
    machine.wait("more rounds of network load", lambda: source.served > served + 1)
    wrong = re.search(rb"garboard-hello: (?:disk|net)-load:.*", machine.serial())
    assert not wrong, f"the guest noticed: {wrong and wrong.group().decode()}"


def kill_supervisors(machine: Machine, kills: int) -> None:
    """At spread moments of its life: from its first instruction, over attaching, to driving and answering."""
    asking = []
    for number in range(kills):
        supervisor = machine.only(names.SUPERVISOR)
        time.sleep(0.015 * (number % 20))
        if number % 5 == 0:
            command = machine.argv("qmp", machine.name, "query-block")
            quiet = subprocess.DEVNULL
            asking.append(subprocess.Popen(command, env=machine.environment, stdout=quiet, stderr=quiet))
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor, signal.SIGKILL)
        wait_for_supervisor_after(machine, supervisor)
    for process in asking:
        # Answered or not: it must not hang.
        process.wait(PATIENCE)


def wait_for_supervisor_after(machine: Machine, gone: int) -> None:
    machine.wait("the next supervisor", lambda: machine.processes(names.SUPERVISOR) not in ([], [gone]))


def test_supervisors_killed_under_disk_and_network_load_the_guest_does_not_notice(
    machine: Machine, supervisor_kills: int, note: Callable[[str], None]
) -> None:
    with Source() as source:
        machine.start("disk-load,net-load", f"garboard.target={source.target}")
        machine.wait_for_shell()
        expect_progress(machine, source)
        qemu, before, started = machine.qemu, held(machine), progress(machine, "disk-load")
        began = time.monotonic()
        kill_supervisors(machine, supervisor_kills)
        seconds = time.monotonic() - began
        status = machine.wait("a supervisor that has attached", lambda: machine.status_in("Running"))
        assert status["resets"] == 0, f"the guest noticed: {status}"
        assert machine.qemu == qemu, f"the guest noticed: {status}"
        expect_progress(machine, source)
        expect_same_descriptors(machine, before)
        rounds = progress(machine, "disk-load") - started
        machine.run("stop", machine.name)
        machine.expect_end("stoppedGracefully")
        loads = f"{rounds} rounds of disk load and {source.served} downloads"
        note(f"{supervisor_kills} in {seconds:.0f} s, {loads} went on")


def test_an_end_without_a_supervisor_is_not_lost(machine: Machine) -> None:
    machine.start(tests=None)
    # Killed first, so that the next one finds nothing but PID 1's account.
    qemu, shim = machine.qemu, machine.only(names.SHIM)
    os.kill(shim, signal.SIGSTOP)
    machine.kill(names.SUPERVISOR)
    os.kill(qemu, signal.SIGKILL)
    machine.wait("PID 1's account", lambda: (machine.init / "exit.json").exists())
    os.kill(shim, signal.SIGCONT)
    machine.expect_end("qemuKilled", "signal 9")
