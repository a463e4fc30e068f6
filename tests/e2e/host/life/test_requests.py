"""How requests are judged, and what is told of a machine."""

import json
import os
import pathlib
import signal

from garboard_e2e import names
from garboard_e2e.machine import Machine
from garboard_e2e.patience import PATIENCE


def expect_explained(machine: Machine, facts: pathlib.Path, options: pathlib.Path, argv: list[str]) -> None:
    """From the files of a run, while it goes or after its end."""
    files = ["--facts", str(facts / "facts.json"), "--options", str(options / "options.json")]
    again = machine.call("explain", "-o", "json", *files, machine.directory / "vm.json")
    assert again.returncode == 0, f"explain from {options}: {again.stderr}"
    assert json.loads(again.stdout)["argv"] == argv, f"explain from {options} differs from what was executed"


def expect_paused_over_another_supervisor(machine: Machine) -> None:
    """What a person paused stays paused under every supervisor."""
    gone = machine.only(names.SUPERVISOR)
    os.kill(gone, signal.SIGKILL)
    machine.wait("the next supervisor", lambda: machine.processes(names.SUPERVISOR) not in ([], [gone]))
    machine.wait("its status", lambda: machine.status_in("Running"))
    reply = machine.json("qmp", machine.name, "query-status")
    assert reply["status"] == "paused", f"the next supervisor let the guest run: {reply}, {machine.status()}"
    assert machine.told()["paused"] == "PausedByUser", machine.status()


def test_requests_are_judged_explain_is_what_ran(machine: Machine) -> None:
    machine.start()
    machine.wait_for_shell()
    machine.run("pause", machine.name)
    assert "already" in machine.run("pause", machine.name), "a second pause should say that it is so already"
    expect_paused_over_another_supervisor(machine)
    machine.run("unpause", machine.name)
    reply = machine.json("qmp", machine.name, "query-status")
    assert reply["status"] == "running", f"query-status says {reply}"
    said = machine.run("qmp", machine.name, "quit", code=4)
    assert "allow-dangerous" in said, "a read-only client should be told how to get more"
    again = ["run", "--detach", "--image", machine.image_option, str(machine.directory / "vm.json")]
    assert "runs already" in machine.run(*again, code=4), "a second run of the same machine should be refused"
    argv = machine.run("logs", "--part", "argv", machine.name).splitlines()
    expect_explained(machine, machine.machine / "order", machine.supervisor, argv)
    machine.run("stop", machine.name)
    machine.expect_end("stoppedGracefully")
    expect_explained(machine, machine.records()[-1], machine.records()[-1], argv)


def expect_verdict(machine: Machine, wanted: str) -> None:
    found = machine.json("why", "-o", "json", machine.name)["verdict"]
    assert found == wanted, f"why says {found}, not {wanted}: {machine.run('why', machine.name)}"


def test_why_restart_ps_a_tell_what_is_so(machine: Machine) -> None:
    """And several names at once."""
    machine.start()
    machine.wait_for_shell()
    expect_verdict(machine, "running")
    before = machine.qemu
    said = machine.run("restart", "--force", machine.name)
    assert f"{machine.id} was started again" in said, "a restart should say that the machine was started again"
    machine.wait_for_shell()
    assert machine.qemu != before, "a restart should be another QEMU"
    said = machine.run("pause", machine.name, "default/nobody", code=3)
    assert "paused" in said and "default/nobody" in said, f"one of two should be paused, the other not be found: {said}"
    expect_verdict(machine, "paused")
    said = machine.run("why", machine.name)
    assert f"garboard unpause {machine.id}" in said, "why should say how a paused machine goes on"
    machine.run("unpause", machine.name)
    machine.run("stop", machine.name)
    machine.expect_end("stoppedGracefully")
    expect_verdict(machine, "runOver")
    rows = machine.json("ps", "-a", "-o", "json")
    listed = [row for row in rows if f"{row['namespace']}/{row['name']}" == machine.id]
    assert [row["state"] for row in listed] == ["Succeeded"], f"ps -a should have it once, as Succeeded: {listed}"
    assert machine.id in machine.run("ps", "-a", "-o", "name").split()
    assert len(machine.run("logs", "--tail", "1", machine.name).splitlines()) == 1, "logs --tail 1 should be one line"


def test_two_runs_at_once_one_of_them_is_refused(machine: Machine) -> None:
    # Both find no machine, and only then do they look for images.
    words = ["run", "--detach", "--accel", "tcg", "--image", machine.image_option, machine.manifest()]
    both = [machine.begin(*words) for _ in range(2)]
    said = [run.communicate(timeout=PATIENCE)[0] for run in both]
    codes = [run.returncode for run in both]
    assert sorted(codes) == [0, 4], f"one should run and the other be refused: {codes}, {said}"
    assert "runs already" in said[codes.index(4)], said
    machine.wait_for_shell()
    machine.run("stop", machine.name)
    machine.expect_end("stoppedGracefully")


def test_a_runtime_directory_that_is_closed_to_the_machine_is_refused(machine: Machine) -> None:
    closed = machine.directory / "closed"
    closed.mkdir(mode=0o700)
    inside = Machine(machine.programs, machine.image, closed)
    said = inside.run("run", "--detach", inside.manifest(tests=None), code=1)
    assert f"{closed} is closed" in said and "chmod" in said, f"not one clear sentence: {said}"
    assert len(said.splitlines()) <= 2, f"not one clear sentence: {said}"
    assert not (closed / "run").exists(), "something was made all the same"
