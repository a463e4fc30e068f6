"""What may never be seen in a history of machines, whatever fails. Pure: a history goes in, what is wrong with it comes
out. `recorder.py` makes histories of a real cluster.

A history is a list of events in the order of their time `at`, in seconds:

  {"at", "kind": "processes", "running": [{"id", "pod", "machine", "writes": [disk…]}…]}
      every QEMU there is, when the set or what one of them locks has changed; `machine` is NAMESPACE/NAME, `pod` the
      UID of its pod, `disk` names a file or device that it holds QEMU's lock for writing on
  {"at", "kind": "object", "type": "vm" | "vmi" | "pod", "uid", "machine", "gone": bool, …}
      what the API server reported of one object: `phase` (vmi), `left` (vmi: UIDs of pods of which nothing is left),
      `strategy` and `leaving` (vm), `vmi` (pod: UID of its instance)
  {"at", "kind": "listed", "type", "uids"}
      all there are: what is missing has gone unseen
  {"at", "kind": "fault", "name", "over": bool, "mutes": bool, "of": [machine…], "forced": [machine…]}
      something is broken on purpose until an event of the same name is `over`. `mutes`: no report arrives while it
      lasts, of these machines or, without `of`, of any. `forced`: an operator has reported of these machines that
      their old QEMU is gone, true or not
  {"at", "kind": "removal", "machine"}
      this VirtualMachine is deleted on purpose
"""

import collections
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Event = dict[str, Any]
History = list[Event]
Span = tuple[float, float]

ORDER = ["", "Pending", "Scheduling", "Scheduled", "Running", "Succeeded", "Failed"]
FINAL = {"Succeeded", "Failed"}
# How much later than it was so a process may be seen, in seconds.
LATE = 0.5


def findings(history: Iterable[Event], stale_after: float = 10.0) -> list[str]:
    """Every finding, in the order of the rules."""
    seen = sorted(history, key=lambda event: event["at"])
    rules: list[Callable[[History], Iterator[str]]] = [
        one_qemu_for_each_instance,
        one_qemu_for_each_machine,
        one_writer_for_each_disk,
        phases_go_forward,
        lambda history: running_is_true(history, stale_after),
        no_machine_is_lost,
        machines_end_as_they_should,
        what_is_not_left_does_not_run,
    ]
    return [finding for rule in rules for finding in rule(seen)]


def of_kind(history: History, kind: str, **wanted: object) -> History:
    return [
        event
        for event in history
        if event["kind"] == kind and all(event.get(key) == value for key, value in wanted.items())
    ]


def instances_of_pods(history: History) -> dict[str, str]:
    return {event["uid"]: event["vmi"] for event in of_kind(history, "object", type="pod") if event.get("vmi")}


def repeated(running: list[Event], key: Callable[[Event], list[str]]) -> dict[str, list[str]]:
    """What several of these processes have in common by `key`, which answers a list."""
    found: dict[str, set[str]] = collections.defaultdict(set)
    for process in running:
        for each in key(process):
            found[each].add(process["id"])
    return {each: sorted(ids) for each, ids in found.items() if len(ids) > 1}


def report_once(
    history: History,
    key: Callable[[Event], list[str]],
    text: str,
    is_allowed: Callable[[float, str], bool] = lambda at, each: False,
) -> Iterator[str]:
    reported = set()
    for event in of_kind(history, "processes"):
        for each, ids in repeated(event["running"], key).items():
            if (each, tuple(ids)) not in reported and not is_allowed(event["at"], each):
                reported.add((each, tuple(ids)))
                yield f"at {event['at']:.1f} s {text} {each}: {', '.join(ids)}"


def one_qemu_for_each_instance(history: History) -> Iterator[str]:
    instances = instances_of_pods(history)
    return report_once(
        history,
        lambda process: [str(instances.get(process["pod"], process["pod"]))],
        "several QEMU run the instance",
    )


def one_qemu_for_each_machine(history: History) -> Iterator[str]:
    """However many instances a machine has had; unless an operator forced it."""
    forced = [(start, end, machine) for start, end, fault in faults(history) for machine in fault.get("forced", [])]

    def is_allowed(at: float, machine: str) -> bool:
        return any(start <= at <= end and machine == name for start, end, name in forced)

    return report_once(history, lambda process: [process["machine"]], "several QEMU run the machine", is_allowed)


def one_writer_for_each_disk(history: History) -> Iterator[str]:
    """Nothing excuses two."""
    return report_once(history, lambda process: list(process["writes"]), "several QEMU write the disk")


def phases_go_forward(history: History) -> Iterator[str]:
    last: dict[str, str] = {}
    for event in of_kind(history, "object", type="vmi", gone=False):
        phase, before = event.get("phase", ""), last.get(event["uid"], "")
        if phase not in ORDER:
            yield f"at {event['at']:.1f} s {event['machine']} has the unknown phase {phase!r}"
        elif ORDER.index(phase) < ORDER.index(before) or (before in FINAL and phase != before):
            which = f"{event['machine']} ({event['uid']})"
            yield f"at {event['at']:.1f} s {which} went from {before} back to {phase or 'no phase'}"
        last[event["uid"]] = phase if phase in ORDER else before


def faults(history: History) -> list[tuple[float, float, Event]]:
    """(begin, end, the event that began it) of each; one that never ended lasts."""
    begun: dict[str, Event] = {}
    all_faults: list[tuple[float, float, Event]] = []
    for event in of_kind(history, "fault"):
        if not event["over"]:
            begun[event["name"]] = event
        elif event["name"] in begun:
            start = begun.pop(event["name"])
            all_faults.append((start["at"], event["at"], start))
    return all_faults + [(event["at"], float("inf"), event) for event in begun.values()]


def gone_by(history: History, kind: str) -> Iterator[tuple[float, str]]:
    """For each event, the UIDs of which nothing more is there afterwards: (at, uid)."""
    known: set[str] = set()
    for event in history:
        if event["kind"] == "object" and event["type"] == kind:
            if event["gone"]:
                known.discard(event["uid"])
                yield event["at"], event["uid"]
            else:
                known.add(event["uid"])
        elif event["kind"] == "listed" and event["type"] == kind:
            for uid in sorted(known - set(event["uids"])):
                yield event["at"], uid
            known &= set(event["uids"])


def claims_to_run(history: History) -> list[tuple[str, str, float, float]]:
    """The times at which the status of each instance begins and ceases to be Running: (uid, machine, begin, end)."""
    claims: list[tuple[str, float, float]] = []
    since: dict[str, float] = {}
    changes = [
        (event["at"], event["uid"], event.get("phase") == "Running")
        for event in of_kind(history, "object", type="vmi", gone=False)
    ]
    changes += [(at, uid, False) for at, uid in gone_by(history, "vmi")]
    names = {event["uid"]: event["machine"] for event in of_kind(history, "object", type="vmi")}
    for at, uid, runs in sorted(changes):
        if runs:
            since.setdefault(uid, at)
        elif uid in since:
            claims.append((uid, since.pop(uid), at))
    end = history[-1]["at"] if history else 0.0
    claims += [(uid, at, end) for uid, at in since.items()]
    return [(uid, names[uid], start, stop) for uid, start, stop in claims]


def lives(history: History) -> dict[str, list[Span]]:
    """Per instance the spans in which it has a QEMU."""
    instances = instances_of_pods(history)
    spans: dict[str, list[Span]] = collections.defaultdict(list)
    since: dict[str, float] = {}
    for event in of_kind(history, "processes"):
        now = {instances.get(process["pod"], process["pod"]) for process in event["running"]}
        for uid in now - set(since):
            since[uid] = event["at"]
        for uid in set(since) - now:
            spans[uid].append((since.pop(uid), event["at"]))
    for uid, at in since.items():
        spans[uid].append((at, float("inf")))
    return spans


def without(span: Span, holes: Iterable[Span]) -> list[Span]:
    """What is left of a span: a list of spans."""
    left = [span]
    for start, end in holes:
        parts = [part for low, high in left for part in ((low, min(high, start)), (max(low, end), high))]
        left = [part for part in parts if part[0] < part[1]]
    return left


def running_is_true(history: History, stale_after: float) -> Iterator[str]:
    """A status is Running only while a QEMU runs, or a moment longer; while no report arrives, the clock stands
    still."""
    alive, mutes = lives(history), [each for each in faults(history) if each[2].get("mutes")]
    for uid, machine, start, end in claims_to_run(history):
        mute = [(begin, stop) for begin, stop, fault in mutes if machine in fault.get("of", [machine])]
        for low, high in without((start, end), alive.get(uid, [])):
            stale = sum(stop - begin for begin, stop in without((low, high), mute))
            if stale > stale_after:
                yield f"from {low:.1f} s on {machine} ({uid}) was called Running for {stale:.1f} s without a QEMU"


def last_states(history: History, kind: str) -> dict[str, Event]:
    """What is there at the end, by UID."""
    gone: dict[str, float] = collections.defaultdict(lambda: -1.0)
    for at, uid in gone_by(history, kind):
        gone[uid] = max(gone[uid], at)
    latest = {event["uid"]: event for event in of_kind(history, "object", type=kind, gone=False)}
    return {uid: event for uid, event in latest.items() if gone[uid] < event["at"]}


def what_is_not_left_does_not_run(history: History) -> Iterator[str]:
    """A node's agent has reported that nothing is left of a pod: no QEMU of it is seen from then on."""
    left: dict[str, float] = {}
    reported = set()
    for event in history:
        if event["kind"] == "object" and event["type"] == "vmi":
            for pod in event.get("left", []):
                left.setdefault(pod, event["at"])
        for process in event.get("running", []) if event["kind"] == "processes" else []:
            # What is seen comes a moment after it was so, and the answer may have come in that moment.
            if event["at"] > left.get(process["pod"], float("inf")) + LATE and process["id"] not in reported:
                reported.add(process["id"])
                since = f"since {left[process['pod']]:.1f} s nothing is left of its pod, as reported"
                yield f"at {event['at']:.1f} s {process['id']} runs {process['machine']}, and {since}"


def no_machine_is_lost(history: History) -> Iterator[str]:
    removed = {event["machine"] for event in of_kind(history, "removal")}
    left = {event["machine"] for event in last_states(history, "vm").values()}
    for machine in sorted({event["machine"] for event in of_kind(history, "object", type="vm")} - left - removed):
        yield f"the VirtualMachine {machine} is gone, and was not deleted"


def machines_end_as_they_should(history: History) -> Iterator[str]:
    """With `Always` it runs, in status and in truth; whatever QEMU runs, a status has it."""
    samples, instances = of_kind(history, "processes"), instances_of_pods(history)
    running = samples[-1]["running"] if samples else []
    alive = {instances.get(process["pod"], process["pod"]) for process in running}
    latest = last_states(history, "vmi")
    for machine in last_states(history, "vm").values():
        if machine.get("strategy") == "Always" and not machine.get("leaving"):
            mine = [event for event in latest.values() if event["machine"] == machine["machine"]]
            if not any(event.get("phase") == "Running" and event["uid"] in alive for event in mine):
                phases = [(event["uid"], event.get("phase")) for event in mine]
                yield f"{machine['machine']} should run at the end; its instances: {phases}, QEMU of {sorted(alive)}"
    for process in running:
        uid = instances.get(process["pod"], process["pod"])
        if latest.get(uid, {}).get("phase") != "Running":
            yield f"{process['id']} runs {process['machine']} ({uid}) at the end, and no status has it"
