"""How requests are judged, and what is reported of a machine."""

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
    assert machine.reported_status()["paused"] == "PausedByUser", machine.status()


def test_requests_are_judged_explain_is_what_ran(machine: Machine) -> None:
    machine.start()
    machine.wait_for_shell()
    machine.run("pause", machine.name)
    assert "already" in machine.run("pause", machine.name), "a second pause should print that it is so already"
    expect_paused_over_another_supervisor(machine)
    machine.run("unpause", machine.name)
    reply = machine.json("qmp", machine.name, "query-status")
    assert reply["status"] == "running", f"query-status answers {reply}"
    output = machine.run("qmp", machine.name, "quit", code=4)
    assert "allow-dangerous" in output, "a read-only client should read how to get more"
    again = ["run", "--detach", "--image", machine.image_option, str(machine.directory / "vm.json")]
    assert "runs already" in machine.run(*again, code=4), "a second run of the same machine should be refused"
    argv = machine.run("logs", "--part", "argv", machine.name).splitlines()
    expect_explained(machine, machine.machine / "order", machine.supervisor, argv)
    machine.run("stop", machine.name)
    machine.expect_end("stoppedGracefully")
    expect_explained(machine, machine.records()[-1], machine.records()[-1], argv)


def expect_verdict(machine: Machine, wanted: str) -> None:
    found = machine.json("why", "-o", "json", machine.name)["verdict"]
    assert found == wanted, f"why prints {found}, not {wanted}: {machine.run('why', machine.name)}"


def test_why_restart_ps_a_tell_what_is_so(machine: Machine) -> None:
    """And several names at once."""
    machine.start()
    machine.wait_for_shell()
    expect_verdict(machine, "running")
    before = machine.qemu
    output = machine.run("restart", "--force", machine.name)
    assert f"{machine.id} was started again" in output, "a restart should print that the machine was started again"
    machine.wait_for_shell()
    assert machine.qemu != before, "a restart should be another QEMU"
    output = machine.run("pause", machine.name, "default/absent", code=3)
    assert "paused" in output and "default/absent" in output, (
        f"one of two should be paused, the other not be found: {output}"
    )
    expect_verdict(machine, "paused")
    output = machine.run("why", machine.name)
    assert f"garboard unpause {machine.id}" in output, "why should print how a paused machine goes on"
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
    arguments = ["run", "--detach", "--accel", "tcg", "--image", machine.image_option, machine.manifest()]
    both = [machine.begin(*arguments) for _ in range(2)]
    outputs = [run.communicate(timeout=PATIENCE)[0] for run in both]
    codes = [run.returncode for run in both]
    assert sorted(codes) == [0, 4], f"one should run and the other be refused: {codes}, {outputs}"
    assert "runs already" in outputs[codes.index(4)], outputs
    machine.wait_for_shell()
    machine.run("stop", machine.name)
    machine.expect_end("stoppedGracefully")


def test_a_runtime_directory_that_is_closed_to_the_machine_is_refused(machine: Machine) -> None:
    closed = machine.directory / "closed"
    closed.mkdir(mode=0o700)
    inside = Machine(machine.programs, machine.image, closed)
    output = inside.run("run", "--detach", inside.manifest(tests=None), code=1)
    assert f"{closed} is closed" in output and "chmod" in output, f"not one clear error message: {output}"
    assert len(output.splitlines()) <= 2, f"not one clear error message: {output}"
    assert not (closed / "run").exists(), "something was made all the same"
