"""Programs that are no QEMU, or a QEMU with ideas of its own."""

import pathlib
import subprocess

import pytest

from garboard_e2e.refusals import INSTANCE, Bad, Bench, executable

QEMU = "/usr/bin/qemu-system-x86_64"
PRETENDER = f"""#!/usr/bin/python3 -IS
# Answers questions as the real one does, and has its own idea of running a machine.
import os, re, socket, sys, time
if "-M" in sys.argv:
    os.execv("{QEMU}", ["{QEMU}", *sys.argv[1:]])
number = re.search(r"id=monitor,fd=([0-9]+)", " ".join(sys.argv))
monitor = socket.socket(fileno=int(number.group(1)))
"""
# How it behaves: its last lines, then what its error message has.
PRETENDERS = {
    "gives up": (
        'print("qemu: the flux capacitor is missing", file=sys.stderr); sys.exit(3)',
        ("exit code 3", "flux capacitor is missing"),
    ),
    "is killed at once": ("os.kill(os.getpid(), 9)", ("signal 9",)),
    "sends garbage": (
        'peer, _ = monitor.accept(); peer.sendall(b"\\xff\\x00{not qmp}\\n" * 1000); time.sleep(600)',
        ("monitor",),
    ),
    "closes its monitor": ("peer, _ = monitor.accept(); peer.close(); time.sleep(600)", ("monitor",)),
    "never stops talking": (
        'peer, _ = monitor.accept()\ntry:\n    while True: peer.sendall(b"x" * 65536)\nexcept OSError: time.sleep(600)',
        ("monitor",),
    ),
}


@pytest.fixture(scope="module")
def programs_directory(bench: Bench) -> pathlib.Path:
    made = bench.directory / "programs"
    made.mkdir()
    return made


@pytest.fixture(scope="module", autouse=True)
def hanging(
    request: pytest.FixtureRequest, bench: Bench, programs_directory: pathlib.Path
) -> subprocess.Popen[bytes] | None:
    """A command with a program that hangs, begun before all else, because it takes long; if it is to be judged."""
    if not any(item.name == "test_a_program_that_hangs" for item in request.session.items):
        return None
    program = executable(programs_directory / "hangs", "#!/bin/sh\nsleep 600\n")
    return bench.begin_bad(bad(program))


def bad(program: str, *patterns: str) -> Bad:
    return Bad(patterns, INSTANCE, options=("--qemu", program), has_image=True, code=1)


def test_no_qemu(bench: Bench) -> None:
    bench.refuses(bad("/nowhere/qemu", "/nowhere/qemu", "not there or not executable", "doctor"))


def test_a_qemu_that_cannot_be_executed(bench: Bench, programs_directory: pathlib.Path) -> None:
    (programs_directory / "plain").write_text("no program")
    bench.refuses(bad(str(programs_directory / "plain"), "plain", "not executable", "doctor"))


@pytest.mark.parametrize("program", ["/bin/true", "/bin/false"])
def test_another_program_for_qemu(bench: Bench, program: str) -> None:
    bench.refuses(bad(program, program, "--qemu|doctor"))


@pytest.mark.parametrize("behaviour", PRETENDERS)
def test_a_qemu_that(bench: Bench, programs_directory: pathlib.Path, behaviour: str) -> None:
    lines, patterns = PRETENDERS[behaviour]
    program = executable(programs_directory / behaviour.replace(" ", "-"), PRETENDER + lines + "\n")
    bench.refuses(bad(program, *patterns))


def test_a_program_that_hangs(bench: Bench, hanging: subprocess.Popen[bytes]) -> None:
    bench.judge(hanging, ["hangs", "did not answer", "--qemu|doctor"], code=1)
