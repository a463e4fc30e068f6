"""QEMU is killed at every moment: each end has its own cause."""

import collections
import random
import subprocess
import time
from collections.abc import Callable
from signal import Signals

from garboard_e2e import names
from garboard_e2e.machine import Machine
from garboard_e2e.patience import PATIENCE

# What the end is called, and what is in its message.
SIGNALS = {
    Signals.SIGKILL: ("qemuKilled", "signal 9"),
    Signals.SIGTERM: ("qemuKilled", "signal 15"),
    Signals.SIGSEGV: ("qemuCrashed", "signal 11"),
    Signals.SIGABRT: ("qemuCrashed", "signal 6"),
}


class Killer:
    """Kills QEMU at a random moment of a random phase, with a random signal."""

    def __init__(self, machine: Machine, seed: int) -> None:
        self.machine, self.random = machine, random.Random(seed)
        self.phases: collections.Counter[str] = collections.Counter()
        self.causes: collections.Counter[str] = collections.Counter()
        self.refused = 0

    def kill_once(self) -> None:
        phase, number = self.random.choice(["start", "run", "stop"]), self.random.choice(list(SIGNALS))
        delay = self.random.choice([0, self.random.uniform(0, 0.3)])
        {"start": self.start, "run": self.run, "stop": self.stop}[phase](number, delay)
        ended = self.machine.ended(self.machine.id)
        wanted = [SIGNALS[number]] + ([("forceStopped", "")] if phase == "stop" else [])
        is_named = any(ended["cause"]["cause"] == cause and text in ended["sentence"] for cause, text in wanted)
        when = f"kill {self.phases.total()}: with {number.name} at {phase} after {delay:.3f} s"
        assert is_named, f"{when}, it ended as {ended}"
        self.phases[phase] += 1
        self.causes[ended["cause"]["cause"]] += 1
        # The shim is the last to go.
        self.machine.wait("the end of every process", self.is_gone)

    def is_gone(self) -> bool:
        return not any(self.machine.processes(program) for program in names.PROCESSES)

    def signal(self, number: Signals, delay: float) -> None:
        time.sleep(delay)
        self.machine.kill(names.QEMU, number)

    def start(self, number: Signals, delay: float) -> None:
        arguments = ["run", "--detach", "--accel", "tcg", self.machine.manifest(tests=None)]
        run = self.machine.begin(*arguments, stderr=subprocess.PIPE)
        self.machine.wait("QEMU", lambda: self.machine.processes(names.QEMU) or run.poll() is not None)
        self.signal(number, delay)
        _, output = run.communicate(timeout=PATIENCE)
        # It may have run already when the signal came.
        if run.returncode != 0:
            self.refused += 1
            message = f"garboard: default/{self.machine.name} could not be started: "
            is_named = message in output and SIGNALS[number][1] in output
            assert is_named, f"killed with {number.name}, `garboard run` printed: {output}"

    def run(self, number: Signals, delay: float) -> None:
        self.machine.start(tests=None)
        self.signal(number, delay)

    def stop(self, number: Signals, delay: float) -> None:
        self.machine.start(tests=None)
        stop = self.machine.begin("stop", "--force", self.machine.name)
        self.signal(number, delay / 4)
        output, _ = stop.communicate(timeout=PATIENCE)
        # The machine may be gone before the command has found it.
        assert stop.returncode in (0, 3), f"`garboard stop --force` ended with {stop.returncode}: {output}"


def test_every_killed_qemu_has_its_cause(
    machine: Machine, qemu_kills: int, seed: int, note: Callable[[str], None]
) -> None:
    killer = Killer(machine, seed)
    for _ in range(qemu_kills):
        killer.kill_once()
    found = f"{dict(killer.phases)}, {dict(killer.causes)}, {killer.refused} reported by `run`"
    note(f"{qemu_kills} times, seed {seed}: {found}")
