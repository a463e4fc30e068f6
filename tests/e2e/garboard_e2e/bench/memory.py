"""What supervisor and PID 1 weigh: PSS from /proc/PID/smaps, by what the pages are."""

import dataclasses
import pathlib
import re
import time
from collections.abc import Callable

from ..names import INIT, SUPERVISOR
from . import figures
from .host import MACHINE, NAMESPACE, Garboard, Show, wait_for

PROGRAMS = [SUPERVISOR, INIT]
KINDS = [
    "program: code",
    "program: constants",
    "program: relocated and written",
    "libraries",
    "heap",
    "stack",
    "other anonymous",
]


def kind(mapping: str, permissions: str, path: str) -> str:
    if path.startswith("["):
        return "heap" if path == "[heap]" else "stack" if path == "[stack]" else "other anonymous"
    if not path:
        return "heap" if mapping == "after program" else "other anonymous"
    if "garboard" not in path:
        return "libraries"
    return {"r-x": "program: code", "r--": "program: constants"}.get(permissions[:3], "program: relocated and written")


@dataclasses.dataclass
class Weight:
    """PSS in KiB by kind, and the part of it that only this process holds."""

    by_kind: dict[str, int]
    private: int

    @property
    def pss(self) -> int:
        return sum(self.by_kind.values())


# Of each program.
Weights = dict[str, Weight]


def weigh(process: int) -> Weight:
    text = pathlib.Path(f"/proc/{process}/smaps").read_text()
    by_kind, private, previous = dict.fromkeys(KINDS, 0), 0, ""
    for block in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", text):
        head, *lines = block.splitlines()
        fields = head.split(None, 5)
        path = fields[5] if len(fields) > 5 else ""
        sizes = {name: int(value) for name, value in re.findall(r"^(\w+): +(\d+) kB", "\n".join(lines), re.M)}
        which = kind(previous, fields[1], path)
        # The program's read-only pages that the loader wrote to (relocations) are private although they are `r--`.
        dirty = sizes["Private_Dirty"] if which in ("program: constants", "program: code") else 0
        by_kind["program: relocated and written"] += dirty
        by_kind[which] += sizes["Pss"] - dirty
        private += sizes["Private_Clean"] + sizes["Private_Dirty"]
        previous = "after program" if "garboard" in path and not path.startswith("[") else ""
    return Weight(by_kind, private)


def weigh_both(garboard: Garboard) -> Weights:
    processes = garboard.processes()
    return {program: weigh(processes[program]) for program in PROGRAMS}


def use_heavily(garboard: Garboard, guest_printed: Callable[[bytes], bool]) -> None:
    """What a machine goes through in its life, in short: a flood on the console, questions, pauses."""
    name = f"{NAMESPACE}/{MACHINE}"
    # 16 MiB through a serial port that an interpreted processor feeds byte by byte.
    wait_for("the flood on the console", lambda: guest_printed(b"serial-flood done"), seconds=900, pause=0.2)
    for _ in range(5):
        garboard.call("qmp", name, "query-qmp-schema")
        garboard.call("qmp", name, "query-named-block-nodes")
        garboard.call("pause", name)
        garboard.call("unpause", name)
        for _ in range(5):
            garboard.call("ps")


def measure(garboard: Garboard, manifest: str, show: Show) -> dict[str, Weights]:
    """Weights when idle, and after heavy use."""
    show("pss: an idle machine")
    garboard.run(manifest)
    # What was needed for the start and is still held has this long to be given back.
    wait_for("the guest", lambda: b"garboard-hello: address" in read_all(garboard))
    time.sleep(3)
    idle = weigh_both(garboard)
    garboard.stop()
    show("pss: after heavy use")
    flood = garboard.directory / "flood.yaml"
    text = pathlib.Path(manifest).read_text()
    flood.write_text(text.replace("cryptomgr.notests", "cryptomgr.notests garboard.test=serial-flood"))
    garboard.run(str(flood))
    use_heavily(garboard, lambda line: line in read_all(garboard))
    time.sleep(3)
    used = weigh_both(garboard)
    garboard.stop()
    return {"idle": idle, "after heavy use": used}


def read_all(garboard: Garboard) -> bytes:
    logs = sorted(garboard.supervisor.glob("serial0.log*"))
    return b"".join(log.read_bytes() for log in logs)


def report(weights: dict[str, Weights]) -> str:
    columns = {f"{program}, {state}": weights[state][program] for state in weights for program in PROGRAMS}
    rows: list[list[object]] = []
    for name in KINDS:
        rows.append([name, *(weight.by_kind[name] for weight in columns.values())])
    rows.append(["**PSS**", *(weight.pss for weight in columns.values())])
    rows.append(["of which private", *(weight.private for weight in columns.values())])
    both = {state: sum(weight.pss for weight in weights[state].values()) for state in weights}
    sums = [f"{state} **{total} KiB** ({total / 1024:.2f} MiB)" for state, total in both.items()]
    return figures.table(["KiB", *columns], rows) + "\nBoth together: " + "; ".join(sums) + ".\n"
