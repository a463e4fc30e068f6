"""From exec to a guest that executes its first program: QEMU alone, garboard, libvirt, in turns."""

import contextlib
import datetime
import json
import time

from ..outcome import Failure
from . import figures
from .host import Executed, Garboard, Instants, Namespace, Show, Tap, contains, wait_for
from .libvirt import Libvirt
from .raw import Raw

MARKER = b"garboard-hello: userspace"
TAP = "gbbenchraw"
WAYS = ["QEMU alone", "garboard run", "virsh create"]
# Instants of each round, by the way.
Seen = dict[str, list[Instants]]


def logged_at(garboard: Garboard, message: str) -> float:
    """When the supervisor wrote a line, real time in seconds."""
    for line in (garboard.machine / "launcher.log").read_text().splitlines():
        entry = json.loads(line)
        if entry.get("fields", {}).get("message") == message:
            return datetime.datetime.fromisoformat(entry["timestamp"].replace("Z", "+00:00")).timestamp()
    raise Failure(f"the supervisor's log has no line {message!r}")


def with_garboard(garboard: Garboard, manifest: str) -> Instants:
    began = time.monotonic()
    command = garboard.begin(manifest)
    wait_for("the guest of garboard", lambda: contains(garboard.supervisor / "serial0.log", MARKER) or command.poll())
    seen = time.monotonic()
    if command.wait() != 0:
        garboard.run(manifest)  # fails with the reason
    executed = Executed.of(garboard.init / "qemu.log")
    instants = {"command": began, "exec": executed.monotonic, "marker": seen}
    for name, message in {"ready": "QEMU's monitor answered", "cont": "the guest runs"}.items():
        instants[name] = executed.monotonic + logged_at(garboard, message) - executed.real
    return instants


def with_raw(raw: Raw, namespace: Namespace) -> Instants:
    instants = raw.start(Tap(TAP, namespace.path))
    return instants | {"marker": raw.wait_for_marker(MARKER)}


def measure(garboard: Garboard, manifest: str, rounds: int, show: Show) -> Seen:
    """A list of instants for each way."""
    seen: Seen = {way: [] for way in WAYS}
    with_garboard(garboard, manifest)
    raw = Raw(garboard)
    virt = Libvirt(garboard)
    garboard.stop()
    namespace = Namespace(garboard.directory)
    # Each is done even if another fails: the last one first.
    with contextlib.ExitStack() as afterwards:
        afterwards.callback(namespace.remove)
        afterwards.callback(virt.end)
        afterwards.callback(raw.stop)
        virt.begin()
        # The round before the first warms caches up and is not counted.
        for number in range(-1, rounds):
            show(f"start: round {number + 1} of {rounds}")
            instants = {"QEMU alone": with_raw(raw, namespace)}
            raw.stop()
            instants["garboard run"] = with_garboard(garboard, manifest)
            garboard.stop()
            virt.start(raw.shares)
            instants["virsh create"] = virt.wait_for_marker(MARKER)
            virt.stop()
            if number >= 0:
                for way, values in instants.items():
                    seen[way].append(values)
    return seen


def between(seen: Seen, first: str, last: str) -> dict[str, list[float | None]]:
    """Milliseconds between two instants, in each round of each way; None where the way does not show one."""

    def span(instants: Instants) -> float | None:
        return (instants[last] - instants[first]) * 1000 if first in instants and last in instants else None

    return {way: [span(instants) for instants in seen[way]] for way in WAYS}


def report(seen: Seen) -> str:
    rows = []
    spans = [("exec", "ready"), ("exec", "cont"), ("exec", "marker"), ("command", "marker")]
    columns = [between(seen, *span) for span in spans]
    for way in WAYS:
        to_marker = columns[2]
        cells = [figures.summary(column[way]) for column in columns]
        ratio = figures.ratio(to_marker[way], to_marker["QEMU alone"]) if way != "QEMU alone" else "1"
        rows.append([way, *cells, ratio])
    header = [
        "ms",
        "exec → QMP ready",
        "exec → `cont` done",
        "exec → userspace",
        "command → userspace",
        "exec → userspace, times QEMU alone",
    ]
    return figures.table(header, rows)
