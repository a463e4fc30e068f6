"""What processes take, and how long their work."""

import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping

from ..outcome import Failure

TICKS = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True)
class Usage:
    """Memory in KiB, as a process shares it with others, and processor time in seconds."""

    memory: float
    processor: float

    @classmethod
    def of(cls, process: int) -> "Usage":
        """What a process has taken so far."""
        rollup = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text()
        if not (memory := re.search(r"^Pss:\s*(\d+)", rollup, re.M)):
            raise Failure(f"/proc/{process}/smaps_rollup has no Pss")
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
        return cls(float(memory[1]), (int(fields[11]) + int(fields[12])) / TICKS)

    def since(self, before: "Usage", number: int) -> "Each":
        """For each of so many."""
        milliseconds = (self.processor - before.processor) * 1000 / number
        return Each(milliseconds, (self.memory - before.memory) / number)


@dataclasses.dataclass(frozen=True)
class Each:
    """Processor time in milliseconds, and memory in KiB."""

    milliseconds: float
    kib: float

    def __str__(self) -> str:
        return f"{self.milliseconds:.2f} ms, {self.kib:.1f} KiB"


def slowest(counted: Mapping[float, float], share: float = 0.99) -> float:
    """What that share of them took at most; `counted` is how many took at most so long, and longer than the next
    less."""
    rest = sum(counted.values()) * share
    for end in sorted(counted):
        rest -= counted[end]
        if rest <= 0:
            return end
    return 0.0
