"""Each of the machine's processes may be missing, or hang, when it is stopped."""

import contextlib
import os
import resource
import signal
from collections.abc import Iterator

from garboard_e2e import names
from garboard_e2e.machine import Machine
from garboard_e2e.patience import PATIENCE


def test_sigterm_to_run_powers_down_over_a_supervisor_s_death(machine: Machine) -> None:
    arguments = ["run", "--accel", "tcg", "--image", machine.image_option, machine.manifest()]
    terminal = machine.terminal(*arguments, TERM="dumb")
    terminal.expect("garboard-hello: address", PATIENCE)
    # The console outlives the supervisor.
    machine.kill(names.SUPERVISOR)
    terminal.expect("attached to again", PATIENCE)
    os.kill(terminal.pid, signal.SIGTERM)
    terminal.expect_end(PATIENCE)
    machine.expect_end("stoppedGracefully")


@contextlib.contextmanager
def without_a_supervisor(machine: Machine) -> Iterator[None]:
    """Killed, and its shim kept from starting the next one."""
    shim = machine.only(names.SHIM)
    os.kill(shim, signal.SIGSTOP)
    machine.kill(names.SUPERVISOR)
    try:
        yield
    finally:
        os.kill(shim, signal.SIGCONT)


def end_by_pid_1(machine: Machine) -> None:
    machine.kill(names.INIT, signal.SIGTERM)
    machine.wait("PID 1's account", lambda: (machine.init / "exit.json").exists())


def test_pid_1_alone_powers_the_guest_down(machine: Machine) -> None:
    machine.start()
    machine.wait_for_shell()
    with without_a_supervisor(machine):
        end_by_pid_1(machine)
    machine.expect_end("stoppedGracefully")
    machine.start("ignore-power")
    machine.wait_for_shell()
    os.kill(machine.only(names.SUPERVISOR), signal.SIGSTOP)  # it hangs
    end_by_pid_1(machine)
    machine.expect_end("gracePeriodExceeded")


def test_a_supervisor_that_hangs_is_replaced(machine: Machine) -> None:
    machine.start()
    machine.wait_for_shell()
    os.kill(machine.only(names.SUPERVISOR), signal.SIGSTOP)
    output = machine.run("stop", machine.name)
    assert "is replaced" in output, "`garboard stop` should report that it replaces the supervisor"
    machine.expect_end("stoppedGracefully")


def test_a_supervisor_that_cannot_be_started_is_tried_again(machine: Machine) -> None:
    machine.start()
    machine.wait_for_shell()
    shim, qemu, gone = machine.only(names.SHIM), machine.qemu, machine.only(names.SUPERVISOR)
    # No file can be opened any more: not the log either, which a supervisor is started with.
    most = resource.prlimit(shim, resource.RLIMIT_NOFILE)[1]
    before = resource.prlimit(shim, resource.RLIMIT_NOFILE, (3, most))
    os.kill(gone, signal.SIGKILL)
    log = machine.machine / names.SHIM_LOG
    machine.wait("three tries", lambda: log.read_text().count("the supervisor could not be started") >= 3)
    assert machine.qemu == qemu, "the guest was ended because no supervisor could be started"
    resource.prlimit(shim, resource.RLIMIT_NOFILE, before)
    machine.wait("the next supervisor", lambda: machine.status_in("Running"))
    machine.run("stop", machine.name)
    machine.expect_end("stoppedGracefully")


def test_without_a_shim_the_guest_runs_on_until_it_is_stopped(machine: Machine) -> None:
    machine.start()
    machine.wait_for_shell()
    machine.kill(names.SHIM)
    assert machine.reported_status()["phase"] == "Running", f"without its shim the machine is {machine.status()}"
    output = machine.run("run", "--detach", str(machine.directory / "vm.json"), code=4)
    assert "runs already" in output, "a machine without a shim runs all the same; a second run should be refused"
    machine.run("stop", machine.name)
    machine.expect_end("stoppedGracefully")


def test_without_shim_and_supervisor_a_stop_is_still_graceful(machine: Machine) -> None:
    for options, cause in (([], "stoppedGracefully"), (["--force"], "forceStopped")):
        machine.start()
        machine.wait_for_shell()
        shim = machine.only(names.SHIM)
        os.kill(shim, signal.SIGSTOP)
        machine.kill(names.SUPERVISOR)
        os.kill(shim, signal.SIGKILL)
        machine.run("stop", *options, machine.name)
        machine.expect_end(cause)
