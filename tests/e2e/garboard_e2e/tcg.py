"""Defects of QEMU's TCG that a guest meets rarely (both were seen in CI). A test that fails with one of them is
run once more, and the log has both (--only-rerun in pyproject.toml). docs/status.md has them for users."""

import re

# What pyproject.toml looks for in a failure.
DEFECT = "known defect of QEMU's TCG"

# QEMU 10.0, more than one vCPU: one may read the memory map that another one has just replaced.
CRASH = "iotlb_to_section: Assertion"
INTERRUPTS_ENABLED = 1 << 9


def crashed(messages: str) -> str:
    """The defect, if QEMU's last output is of that crash; else nothing."""
    return f"{DEFECT}: {CRASH}" if CRASH in messages else ""


def is_stuck(serial: bytes, *registers: str) -> str:
    """The defect, if Linux loops with interrupts disabled before its first output; else nothing.

    QEMU 7.2 may execute a breakpoint that Linux has already written over (`text_poke_bp`): the handler (`exc_int3`)
    finds none, returns, and meets it again. `registers` is the monitor's `info registers`, each time it was asked."""
    loops = all(map(is_in_kernel_without_interrupts, registers))
    return f"{DEFECT}: the guest's kernel loops with interrupts disabled" if loops and not serial else ""


def is_in_kernel_without_interrupts(registers: str) -> bool:
    found = re.search(r"RIP=ffffffff8[0-9a-f]{7} RFL=([0-9a-f]+) .*?CPL=0 .*?HLT=0", registers)
    return found is not None and not int(found[1], 16) & INTERRUPTS_ENABLED
