"""From exec to a guest that executes its first program: QEMU alone, garboard, libvirt, in turns."""

import contextlib
import datetime
import json
import time

import figures
from host import Garboard, Namespace, contains, executed, wait_for
from libvirt import Libvirt
from raw import Raw

MARKER = b"garboard-hello: userspace"
TAP = "gbbenchraw"
WAYS = ["QEMU alone", "garboard run", "virsh create"]


def supervisor_said(garboard, sentence):
    """When the supervisor wrote a line, real time in seconds."""
    for line in (garboard.machine / "launcher.log").read_text().splitlines():
        entry = json.loads(line)
        if entry.get("fields", {}).get("message") == sentence:
            return datetime.datetime.fromisoformat(entry["timestamp"].replace("Z", "+00:00")).timestamp()
    return None


def with_garboard(garboard, manifest):
    began = time.monotonic()
    command = garboard.begin(manifest)
    wait_for("the guest of garboard", lambda: contains(garboard.supervisor / "serial0.log", MARKER) or command.poll())
    seen = time.monotonic()
    if command.wait() != 0:
        garboard.run(manifest)  # says why
    executed_at, real = executed(garboard.init / "qemu.log")
    instants = {"command": began, "exec": executed_at, "marker": seen}
    for name, sentence in {"ready": "QEMU's monitor answered", "cont": "the guest runs"}.items():
        instants[name] = executed_at + supervisor_said(garboard, sentence) - real
    return instants


def with_raw(raw, namespace):
    instants = raw.start((TAP, namespace.path))
    return instants | {"marker": raw.wait_for_marker(MARKER)}


def measure(garboard: Garboard, manifest, rounds, say):
    """A list of instants for each way."""
    seen = {way: [] for way in WAYS}
    with_garboard(garboard, manifest)
    raw = Raw(garboard, garboard.directory)
    virt = Libvirt(garboard.plan(), garboard.order(), garboard.qemu, garboard.directory)
    garboard.stop()
    namespace = Namespace(garboard.directory)
    # Each is done whatever the others say: the last one first.
    with contextlib.ExitStack() as afterwards:
        afterwards.callback(namespace.remove)
        afterwards.callback(virt.end)
        afterwards.callback(raw.stop)
        virt.begin()
        # The round before the first warms caches up and is not counted.
        for number in range(-1, rounds):
            say(f"start: round {number + 1} of {rounds}")
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


def between(seen, first, last):
    """Milliseconds between two instants, in each round of each way; None where the way does not show one."""
    def span(instants):
        return (instants[last] - instants[first]) * 1000 if first in instants and last in instants else None
    return {way: [span(instants) for instants in seen[way]] for way in WAYS}


def report(seen):
    rows = []
    spans = [("exec", "ready"), ("exec", "cont"), ("exec", "marker"), ("command", "marker")]
    columns = [between(seen, *span) for span in spans]
    for way in WAYS:
        to_marker = columns[2]
        cells = [figures.summary(column[way]) for column in columns]
        ratio = figures.ratio(to_marker[way], to_marker["QEMU alone"]) if way != "QEMU alone" else "1"
        rows.append([way, *cells, ratio])
    header = ["ms", "exec → QMP ready", "exec → `cont` done", "exec → userspace", "command → userspace",
              "exec → userspace, times QEMU alone"]
    return figures.table(header, rows)
