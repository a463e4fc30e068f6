"""Commands and shims are killed while they start a machine or clear one away: the next command reports what happened,
nothing is left, and no other machine is ended."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e import names
from garboard_e2e.machine import Machine
from garboard_e2e.patience import PATIENCE

# A process number that the kernel gives to no process.
NO_PROCESS = 2**22 + 1
# Moments of a start, seconds after its first process was seen.
MOMENTS = [0.008 * number for number in range(24)]


def begin(machine: Machine) -> subprocess.Popen[str]:
    return machine.begin("run", "--detach", "--accel", "tcg", machine.manifest(tests=None))


def first(machine: Machine, program: str, run: subprocess.Popen[str]) -> int | None:
    """The first process of a program, looked for without a pause; None if `run` ended before one was seen."""
    while not (found := machine.processes(program)):
        if run.poll() is not None:
            return None
    return found[0]


def kill(process: int | None) -> None:
    if process is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def expect_over(machine: Machine, code: int, output: str) -> str:
    """A start that was interfered with has either succeeded, or reports why not and has left nothing."""
    if code == 0:
        machine.run("stop", "--force", machine.name)
        return "started"
    assert code == 1 and "could not be started" in output, f"`garboard run` ended with {code}: {output!r}"
    assert not re.search(r": *$", output.strip()), f"an error without a reason: {output!r}"
    assert not machine.machine.exists(), (
        f"`garboard run` ended with {output!r} and left {list(machine.machine.iterdir())}"
    )
    for program in names.PROCESSES:
        assert not machine.processes(program), f"after {output!r} there is a {program}"
    return "refused"


def test_a_shim_killed_while_it_starts_leaves_nothing(machine: Machine, note: Callable[[str], None]) -> None:
    ends: dict[str, int] = {}
    for moment in MOMENTS:
        run = begin(machine)
        shim = first(machine, names.SHIM, run)
        time.sleep(moment)
        kill(shim)
        output, _ = run.communicate(timeout=PATIENCE)
        end = expect_over(machine, run.returncode, output)
        ends[end] = ends.get(end, 0) + 1
        if end == "refused" and (log := re.search(r"the log of its shim is (\S+?):? ", output)):
            assert pathlib.Path(log[1]).is_file(), f"the log that is named is not there: {output!r}"
            assert "SIGKILL" in output, f"it does not name what happened: {output!r}"
    assert ends.get("refused"), "every shim was killed too late"
    note(", ".join(f"{number} {end}" for end, number in sorted(ends.items())))


def test_what_cannot_be_cleared_away_is_kept_and_named(programs: pathlib.Path, machine: Machine) -> None:
    """No shim can be executed any more when the one that starts the machine is killed."""
    own = machine.directory / "bin"
    own.mkdir()
    for name in names.INSTALLED:
        shutil.copy(programs / name, own)
    machine.garboard = str(own / names.COMMAND)
    run = begin(machine)
    shim = first(machine, names.SHIM, run)
    assert shim, run.communicate()
    os.kill(shim, signal.SIGSTOP)
    (own / names.SHIM).rename(own / "elsewhere")
    kill(shim)
    output, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode == 1 and f"garboard stop --force {machine.id}" in output, f"no way out is named: {output!r}"
    assert machine.machine.exists(), "the files are gone, and a process may run without them"
    (own / "elsewhere").rename(own / names.SHIM)
    machine.run("stop", "--force", machine.name)
    assert not machine.machine.exists()


def test_what_a_killed_run_leaves_is_cleared_away_by_the_next(machine: Machine) -> None:
    for moment in MOMENTS[::2]:
        run = begin(machine)
        first(machine, names.SHIM, run)
        time.sleep(moment)
        kill(run.pid)
        run.communicate(timeout=PATIENCE)
        again = begin(machine)
        output, _ = again.communicate(timeout=PATIENCE)
        # The shim may have been far enough to go on alone.
        assert again.returncode == 0 or "runs already" in output, (
            f"the next run ended with {again.returncode}: {output!r}"
        )
        machine.only(names.SHIM)
        machine.run("stop", "--force", machine.name)
        assert not machine.machine.exists()


def test_what_a_killed_run_and_its_killed_shim_leave_is_cleared_away_by_a_stop(machine: Machine) -> None:
    for moment in MOMENTS[::3]:
        run = begin(machine)
        shim = first(machine, names.SHIM, run)
        time.sleep(moment)
        kill(run.pid)
        kill(shim)
        run.communicate(timeout=PATIENCE)
        done = machine.call("stop", "--force", machine.name)
        # A run that was killed before it had made the directory, or a shim that had given up, leaves nothing.
        assert done.returncode in (0, 3), f"`garboard stop` ended with {done.returncode}: {done.stderr}"
        machine.expect_clean()


def test_a_stop_while_a_machine_is_started_waits_for_its_shim(machine: Machine) -> None:
    for moment in MOMENTS[::3]:
        run = begin(machine)
        while run.poll() is None and not machine.machine.exists():
            pass
        time.sleep(moment)
        stop = machine.call("stop", "--force", machine.name)
        output, _ = run.communicate(timeout=PATIENCE)
        assert stop.returncode == 0, f"`garboard stop` ended with {stop.returncode}: {stop.stderr}"
        assert run.returncode in (0, 1), f"`garboard run` ended with {run.returncode}: {output!r}"
        assert not re.search(r": *$", output.strip()), f"an error without a reason: {output!r}"
        assert not machine.machine.exists(), f"it was stopped and runs: {output!r}"


def test_a_directory_without_a_launch_request_is_removed_by_a_stop(machine: Machine) -> None:
    machine.machine.mkdir(parents=True)
    (row,) = machine.machines()
    assert row["state"] == "Unknown" and f"garboard stop {machine.id}" in row["problem"], f"ps prints {row}"
    output = machine.run("restart", machine.name, code=4)
    assert f"garboard stop {machine.id}" in output, f"not one clear error message: {output}"
    output = machine.run("stop", machine.name)
    assert "did not run" in output and "removed" in output, f"it does not print what was removed: {output}"
    assert not machine.machine.exists()
    machine.run("stop", machine.name, code=3)


def test_what_an_interrupted_removal_left_is_collected_by_the_next_start(machine: Machine) -> None:
    other = machine.runtime / "other"
    left = [machine.machine.with_name(f".{machine.name}-{NO_PROCESS}"), other / f".gone-{NO_PROCESS}"]
    for directory in left:
        (directory / "supervisor").mkdir(parents=True)
    # Its number is another process's by now.
    reused = machine.machine.with_name(f".{machine.name}-{os.getpid()}")
    reused.mkdir()
    machine.start(tests=None)
    log = (machine.machine / names.SHIM_LOG).read_text()
    for directory in (*left, reused):
        assert not directory.exists(), f"{directory} is still there"
        assert f"{directory}" in log, f"the log does not name {directory}: {log}"
    machine.run("stop", "--force", machine.name)
    assert not other.exists(), "an empty namespace is left"


def test_a_shim_killed_while_it_clears_away_leaves_nothing_for_long(machine: Machine) -> None:
    for moment in MOMENTS[::3]:
        machine.start(tests=None)
        shim = machine.only(names.SHIM)
        stop = machine.begin("stop", "--force", machine.name)
        machine.wait("the end of QEMU", lambda: not machine.processes(names.QEMU))
        time.sleep(moment)
        kill(shim)
        output, _ = stop.communicate(timeout=PATIENCE)
        assert stop.returncode == 0, f"`garboard stop` ended with {stop.returncode}: {output!r}"
        assert not machine.machine.exists()
    # What was aside is collected by a start.
    machine.start(tests=None)
    machine.run("stop", "--force", machine.name)


@contextlib.contextmanager
def called_as(arguments: list[str], user: int) -> Iterator[subprocess.Popen[bytes]]:
    """Another program that has the command line of one of ours, for as long as its standard input is open."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [*arguments, "-"], executable="/bin/cat", stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, user=user
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("user", [65534, 0])
def test_a_process_that_is_called_as_ours_is_not_taken_for_it(machine: Machine, user: int) -> None:
    """Of another user, or another program: neither keeps a machine from being started, nor is it signalled."""
    machine.machine.mkdir(parents=True)
    guest, supervisor = [names.INIT, str(machine.init)], [names.SUPERVISOR, str(machine.machine)]
    with called_as(guest, user) as one, called_as(supervisor, user) as other:
        # Taken for a guest, it would be waited for or ended.
        machine.start(tests=None)
        kill(machine.only(names.SHIM))
        machine.run("stop", "--force", machine.name)
        assert one.poll() is None and other.poll() is None, "a process of another program was ended"
