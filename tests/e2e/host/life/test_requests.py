"""How requests are judged, and what is reported of a machine."""

import contextlib
import json
import os
import pathlib
import signal

from garboard_e2e import names
from garboard_e2e.machine import Machine
from garboard_e2e.outcome import Failure
from garboard_e2e.patience import PATIENCE


def expect_explained(machine: Machine, facts: pathlib.Path, options: pathlib.Path, argv: list[str]) -> None:
    """From the files of a run, while it goes or after its end."""
    files = ["--facts", str(facts / "facts.json"), "--options", str(options / "options.json")]
    again = machine.call("explain", "-o", "json", *files, machine.directory / "vm.json")
    assert again.returncode == 0, f"explain from {options}: {again.stderr}"
    assert json.loads(again.stdout)["argv"] == argv, f"explain from {options} differs from what was executed"


def expect_differences(machine: Machine) -> None:
    """What the guest that runs would see change."""
    same = machine.directory / "vm.json"
    against = ["explain", "--against-running", machine.name]
    assert "the machine that it had" in machine.run(*against, str(same))
    changed = json.loads(same.read_text())
    changed["spec"]["domain"]["memory"]["guest"] = "320Mi"
    changed["spec"]["domain"]["devices"].pop("rng")
    other = machine.directory / "other.json"
    other.write_text(json.dumps(changed))
    for command in (against, ["explain", "--diff", str(same)]):
        lines = machine.run(*command, str(other), code=8).splitlines()
        assert any(line.startswith("memory: size=") for line in lines), lines
        assert any(line.startswith("device ") and ": lost (was virtio-rng" in line for line in lines), lines


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
    expect_differences(machine)
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


def link(machine: Machine) -> object:
    """Of the machine's card; None as long as there is no supervisor that has a plan."""
    interfaces = (machine.status() or {}).get("interfaces") or [{}]
    return interfaces[0].get("link")


def test_a_cable_that_is_pulled_is_out_also_under_the_next_supervisor(machine: Machine) -> None:
    machine.start()
    machine.wait("a guest that runs", lambda: machine.status_in("Running"))
    assert link(machine) == "up", machine.status()
    machine.run("qmp", "--allow-write", machine.name, "set_link", json.dumps({"name": "nic-default", "up": False}))
    machine.wait("the cable is out", lambda: link(machine) == "down")
    gone = machine.only(names.SUPERVISOR)
    os.kill(gone, signal.SIGKILL)
    machine.wait("the next supervisor", lambda: machine.processes(names.SUPERVISOR) not in ([], [gone]))
    machine.wait("its status", lambda: machine.status_in("Running"))
    assert machine.wait("its plan", lambda: link(machine)) == "down"
    # By the other end of the cable, as a person at the human monitor has it.
    line = json.dumps({"command-line": "set_link net-default on"})
    machine.run("qmp", "--allow-dangerous", machine.name, "human-monitor-command", line)
    machine.wait("the cable is in", lambda: link(machine) == "up")
    machine.run("stop", "--force", machine.name)
    machine.expect_end("forceStopped")


def boots(machine: Machine) -> int:
    return machine.serial().count(b"garboard-hello: userspace")


def soft_reboots(machine: Machine) -> None:
    before, qemu = boots(machine), machine.qemu
    assert f"{machine.id} rebooted" in machine.run("soft-reboot", machine.name)
    machine.wait("the guest's next start", lambda: boots(machine) > before)
    assert machine.qemu == qemu, "a soft reboot should keep its QEMU"


def test_a_soft_reboot_presses_the_power_button_and_the_next_power_off_is_the_guest_s_own(machine: Machine) -> None:
    machine.start()
    machine.wait_for_shell()
    for _ in range(2):
        soft_reboots(machine)
        machine.wait("the shell again", lambda: machine.serial().count(b"garboard-hello: address") == boots(machine))
    assert b"power button" in machine.serial()
    machine.run("pause", machine.name)
    assert "vCPUs are stopped" in machine.run("soft-reboot", machine.name, code=4)
    machine.run("unpause", machine.name)
    machine.run("qmp", "--allow-dangerous", machine.name, "system_powerdown")
    machine.expect_end("guestShutdown")


def test_a_soft_reboot_goes_on_under_another_supervisor_and_a_stop_precedes_it(machine: Machine) -> None:
    machine.start("slow-poweroff")
    machine.wait_for_shell()
    asking = machine.begin("soft-reboot", machine.name)
    machine.wait_for("power button")
    gone = machine.only(names.SUPERVISOR)
    os.kill(gone, signal.SIGKILL)
    machine.wait("the guest's second start", lambda: boots(machine) == 2)
    output, _ = asking.communicate(timeout=PATIENCE)
    assert asking.returncode == 0 and "rebooted" in output, output
    machine.wait("the shell again", lambda: machine.serial().count(b"garboard-hello: address") == 2)
    asking = machine.begin("soft-reboot", machine.name)
    machine.wait("the button again", lambda: machine.serial().count(b"power button") == 2)
    machine.run("stop", machine.name)
    machine.expect_end("stoppedGracefully")
    output, _ = asking.communicate(timeout=PATIENCE)
    assert asking.returncode == 4 and "was not rebooted" in output, output


def test_a_guest_that_ignores_a_soft_reboot_keeps_running(machine: Machine) -> None:
    machine.start("ignore-power")
    machine.wait_for_shell()
    output = machine.run("soft-reboot", machine.name, code=4)
    assert "the guest did not react" in output, output
    assert machine.status_in("Running") and boots(machine) == 1
    machine.run("stop", "--force", machine.name)
    machine.expect_end("forceStopped")


def is_frozen(machine: Machine) -> bool:
    return bool(machine.reported_status().get("frozen"))


def freezes(machine: Machine) -> bool:
    with contextlib.suppress(Failure):
        return f"{machine.id} frozen" in machine.run("freeze", machine.name)
    return False


def test_a_guest_agent_reboots_its_guest_and_freezes_and_thaws_it(machine: Machine) -> None:
    machine.start("agent")
    machine.wait_for("garboard-hello: agent")
    machine.wait("the agent", lambda: (machine.status() or {}).get("guest"))
    soft_reboots(machine)
    assert b"agent reboot" in machine.serial(), "the guest agent was there and was not asked"
    machine.wait("the agent again", lambda: machine.serial().count(b"garboard-hello: agent\r") == 2)
    # What the status has may still be of the agent before the reboot.
    machine.wait("the agent again", lambda: freezes(machine))
    assert f"{machine.id} frozen" in machine.run("freeze", machine.name)
    assert is_frozen(machine) and machine.serial().count(b"agent freeze") == 1
    os.kill(machine.only(names.SUPERVISOR), signal.SIGKILL)
    machine.wait("the next supervisor with the agent", lambda: (machine.status() or {}).get("guest"))
    assert is_frozen(machine), "another supervisor should know that the file systems are frozen"
    for _ in range(2):
        assert f"{machine.id} thawed" in machine.run("unfreeze", machine.name)
    assert not is_frozen(machine) and machine.serial().count(b"agent thaw") == 1
    machine.run("freeze", machine.name, "--unfreeze-timeout", "3")
    os.kill(machine.only(names.SUPERVISOR), signal.SIGKILL)
    machine.wait("a thaw after the time", lambda: machine.serial().count(b"agent thaw") == 2)
    machine.wait("its report", lambda: not is_frozen(machine))
    machine.run("freeze", machine.name)
    machine.run("stop", machine.name)
    machine.expect_end("stoppedGracefully")


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
