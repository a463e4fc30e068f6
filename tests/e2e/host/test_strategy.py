"""Run strategies on a bare host, through the real command: what is started again after which end, what a user's stop
means, and how starts that fail are spaced out.

Most of the time of these tests is waiting: `-n 3 --dist worksteal` runs them side by side. The longest is the first,
and behind it, because it waits for the same process, a short one."""

import contextlib
import datetime
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from garboard_e2e.care import looked_after
from garboard_e2e.command import Garboard
from garboard_e2e.guests import HELLO, PATIENT
from garboard_e2e.patience import PATIENCE
from garboard_e2e.places import EXAMPLES
from garboard_e2e.processes import free_port, process_with
from garboard_e2e.terminal import DETACH

NAMESPACE = "check-strategy"


class Host(Garboard):
    """The command, and one machine."""

    def __init__(self, programs: pathlib.Path, image: str, directory: pathlib.Path, name: str) -> None:
        self.image, self.name, self.machine = image, name, f"{NAMESPACE}/{name}"
        super().__init__(programs, directory, [self.machine])

    def command(self, strategy: str, *options: str, kernel_arguments: str = "") -> list[str]:
        """The arguments that run a manifest with this strategy; `kernel_arguments` are added for the guest's kernel."""
        manifest = (EXAMPLES / "vm-hello.yaml").read_text().replace("runStrategy: Once", strategy)
        manifest = manifest.replace("  name: hello", f"  name: {self.name}\n  namespace: {NAMESPACE}")
        manifest = manifest.replace(PATIENT, f"{PATIENT} {kernel_arguments}")
        # A tenth of a CPU, the usual request, is a weight that starves the guest beside a compiler.
        cores = "          cores: 1\n"
        manifest = manifest.replace(cores, f"{cores}        resources:\n          requests:\n            cpu: 8\n")
        path = self.directory / "vm.yaml"
        path.write_text(manifest)
        return ["run", "--image", self.image, *options, str(path)]

    def row(self) -> dict[str, Any]:
        return next(iter(self.machines()), {})

    def wait_for_records(self, number: int) -> None:
        self.wait(f"{number} recorded runs", lambda: len(self.ends()) >= number, 3 * PATIENCE)

    def wait_until_gone(self) -> None:
        self.wait("the machine's end", lambda: not self.home(self.machine).exists())

    def ends(self) -> list[str]:
        """The causes of the recorded runs, oldest first."""
        causes = []
        for record in self.recorded_runs(self.machine):
            with contextlib.suppress(OSError, ValueError, TypeError):  # being written
                causes.append(json.loads((record / "journal.json").read_text())["ended"]["cause"]["cause"])
        return causes

    def plans(self) -> list[dict[str, Any]]:
        return [json.loads((record / "plan.json").read_text()) for record in self.recorded_runs(self.machine)]

    def wait_for_shell(self) -> None:
        self.wait("the guest's shell", lambda: b"garboard-hello: address" in self.console(self.machine))

    def kill_qemu(self) -> None:
        qemu = self.wait("QEMU", lambda: process_with(f"guest={NAMESPACE}_{self.name},"))
        os.kill(qemu, signal.SIGKILL)

    def expect_ends(self, *causes: str) -> None:
        assert self.ends() == list(causes)


@pytest.fixture
def host(
    request: pytest.FixtureRequest, programs: pathlib.Path, hello: pathlib.Path, directory: pathlib.Path
) -> Iterator[Host]:
    # Different for tests that run at the same time.
    name = f"s{os.getpid()}"
    yield from looked_after(request, Host(programs, f"{HELLO}={hello}", directory, name))


def page(port: int) -> bytes:
    """What the guest's web server answers, or nothing."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
            return answer
    except OSError:
        return b""


def breakable_qemu(host: Host) -> pathlib.Path:
    """A QEMU that gives up at once while the file `broken` lies beside it."""
    directory = host.directory / "bin"
    directory.mkdir()
    program = directory / "qemu-system-x86_64"
    program.write_text(
        f"#!/bin/sh\nif [ -e {directory}/broken ]; then echo 'this QEMU is broken' >&2; exit 1; fi\n"
        f'exec {shutil.which("qemu-system-x86_64")} "$@"\n'
    )
    program.chmod(0o755)
    return program


def backs_off(host: Host) -> dict[str, Any] | None:
    row = host.row()
    return row if row.get("startFailure", {}).get("consecutiveFailCount", 0) >= 3 else None


def test_failed_starts_are_spaced_out(host: Host) -> None:
    """Three starts that fail: 10 s, then 40 s and more lie between them; `ps` shows it. The stop ends the pause."""
    qemu = breakable_qemu(host)
    host.run(*host.command("runStrategy: Always", "--detach", "--qemu", str(qemu)))
    # A machine whose guest was not let run yet is not started again.
    host.wait_for_shell()
    (qemu.parent / "broken").touch()
    host.kill_qemu()
    row = host.wait("3 failed starts", lambda: backs_off(host))
    assert row["state"] == "CrashLoopBackOff", row
    assert "QEMU gave up with exit code 1" in row["problem"], row
    began = [datetime.datetime.strptime(run.name, "%Y%m%dT%H%M%S.%fZ") for run in host.recorded_runs(host.machine)]
    pauses = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(began[1:])]
    # 10 to 15 s, then 40 to 60 s; the start itself takes a moment too.
    assert 8 < pauses[0] < 100, f"the pauses between failed starts were {pauses} s"
    assert 38 < pauses[1] < 200, f"the pauses between failed starts were {pauses} s"
    assert re.search(r"\d starts failed", table := host.run("ps")), f"`garboard ps` prints {table}"
    assert "between two runs" in host.run("console", host.machine, code=4)
    stopping = time.monotonic()
    host.run("stop", host.machine)
    assert time.monotonic() - stopping <= 30, "`garboard stop` waited for the next start"
    assert not host.home(host.machine).exists(), "`garboard stop` waited for the next start"
    host.expect_ends("qemuKilled", *["qemuFailed"] * (len(began) - 1))


def test_a_machine_that_never_ran_is_not_tried_again(host: Host) -> None:
    qemu = breakable_qemu(host)
    options = ["--detach", "--qemu", str(qemu)]
    host.run(*host.command("runStrategy: Once", *options, kernel_arguments="garboard.test=poweroff"))
    host.wait_until_gone()
    (qemu.parent / "broken").touch()
    output = host.run(*host.command("runStrategy: Always", *options), code=1)
    assert "could not be started" in output and "this QEMU is broken" in output, output
    host.wait_until_gone()


def test_a_start_that_works_clears_the_count(host: Host) -> None:
    """The pause ends, the repaired QEMU starts, and the next kill is followed at once."""
    qemu = breakable_qemu(host)
    terminal = host.terminal(*host.command("runStrategy: Always", "--qemu", str(qemu)), TERM="dumb")
    terminal.expect("garboard-hello: address", PATIENCE)
    (qemu.parent / "broken").touch()
    host.kill_qemu()
    terminal.expect(r"its start failed, the next try is in \d+ s", PATIENCE)
    (qemu.parent / "broken").unlink()
    terminal.expect("garboard-hello: address", PATIENCE)
    host.kill_qemu()
    terminal.expect(r"runs again; [^\r]*signal 9", PATIENCE)
    terminal.expect("garboard-hello: address", PATIENCE)
    terminal.type(DETACH)
    terminal.end(PATIENCE)
    host.run("stop", "--force", host.machine)
    host.wait_until_gone()
    host.expect_ends("qemuKilled", "qemuFailed", "qemuKilled", "forceStopped")


def test_always_after_power_off(host: Host) -> None:
    """Each run has its record, and the guest finds the same machine; nothing follows the stop."""
    host.run(*host.command("runStrategy: Always", "--detach", kernel_arguments="garboard.test=poweroff"))
    host.wait_for_records(3)
    host.run("stop", host.machine)
    host.wait_until_gone()
    assert host.ends()[:3] == ["guestShutdown"] * 3, f"the runs ended as {host.ends()}"
    plans = host.plans()[:3]
    for key in ["argv", "stored"]:
        assert all(plan[key] == plans[0][key] for plan in plans), f"the {key} of later runs is another one"
    last = host.run("logs", "--last", "--part", "exit", host.machine)
    assert "oomKills" in last, f"the last run's account is {last!r}"


def test_another_run_finds_the_same_machine(host: Host) -> None:
    """Also another `garboard run`, and `explain` for this host, until `--forget-machine`."""

    def once(*options: str) -> dict[str, Any]:
        host.run(*host.command("runStrategy: Once", "--detach", *options, kernel_arguments="garboard.test=poweroff"))
        host.wait_until_gone()
        stored: dict[str, Any] = host.plans()[-1]["stored"]
        return stored

    first, file = once(), host.state / "machines" / host.machine / "stored.json"
    assert json.loads(file.read_text()) == first, "what is kept"
    # Something that no plan would choose by itself.
    changed = first | {"macs": dict.fromkeys(first["macs"], "02:00:00:00:00:77")}
    file.write_text(json.dumps(changed))
    manifest = host.command("runStrategy: Once")[-1]
    explained = json.loads(host.call("explain", "--facts", "here", "-o", "json", manifest).stdout)
    assert explained["stored"] == changed, "the machine that is explained"
    assert once() == changed, "the machine of the second run"
    assert once("--forget-machine") == first, "the machine after it was forgotten"
    assert json.loads(file.read_text()) == first, "what is kept then"
    file.write_text("{")
    output = host.run(*host.command("runStrategy: Once", "--detach"), code=2)
    assert str(file) in output and "--forget-machine" in output, f"of a file that cannot be read: {output!r}"


def test_published_ports_survive(host: Host) -> None:
    """`running: true` means Always; a published port leads to the guest of the next run as well."""
    port = free_port()
    publish = ["-p", f"127.0.0.1:{port}:80"]
    host.run(*host.command("running: true", "--detach", *publish, kernel_arguments="garboard.test=httpd"))
    for _ in range(2):
        host.wait("the guest's page", lambda: b"garboard-hello from" in page(port))
        host.kill_qemu()
        host.wait("the next run", lambda: host.row().get("state") == "Running")
    host.wait("the guest's page after two restarts", lambda: b"garboard-hello from" in page(port))
    host.run("stop", host.machine)
    host.wait_until_gone()
    host.expect_ends("qemuKilled", "qemuKilled", "stoppedGracefully")


def test_rerun_on_failure(host: Host) -> None:
    """Again after QEMU was killed, attached all the time; not after the guest's own power-off."""
    terminal = host.terminal(*host.command("runStrategy: RerunOnFailure"), TERM="dumb")
    terminal.expect("garboard-hello: address", PATIENCE)
    host.kill_qemu()
    terminal.expect(r"runs again; [^\r]*signal 9", PATIENCE)
    terminal.expect("garboard-hello: address", PATIENCE)
    terminal.expect("# ", PATIENCE)
    terminal.type(b"poweroff\n")
    terminal.expect("the guest powered itself off", PATIENCE)
    terminal.expect_end(PATIENCE)
    host.wait_until_gone()
    host.expect_ends("qemuKilled", "guestShutdown")


def test_signals_end_it_for_good(host: Host) -> None:
    """SIGTERM to the attached command in the second run, although the strategy is Always."""
    terminal = host.terminal(*host.command("runStrategy: Always"), TERM="dumb")
    terminal.expect("garboard-hello: address", PATIENCE)
    host.kill_qemu()
    terminal.expect("runs again", PATIENCE)
    terminal.expect("garboard-hello: address", PATIENCE)
    os.kill(terminal.pid, signal.SIGTERM)
    terminal.expect_end(PATIENCE)
    host.wait_until_gone()
    host.expect_ends("qemuKilled", "stoppedGracefully")


def test_once_manual_halted_run_once(host: Host) -> None:
    off = ["runStrategy: Halted", "running: false"]
    for number, strategy in enumerate(["runStrategy: Once", "runStrategy: Manual", *off]):
        output = host.run(*host.command(strategy, "--detach", kernel_arguments="garboard.test=poweroff"))
        host.wait_until_gone()
        assert len(host.ends()) == number + 1, f"{strategy}: the runs ended as {host.ends()}"
        assert ("meant to stay off" in output) == (strategy in off), f"{strategy}: {output!r}"
    host.expect_ends(*["guestShutdown"] * 4)
