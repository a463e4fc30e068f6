"""What was asked of the API server, by its own audit log. Pure, but for `events`, which reads the file."""

import collections
import datetime
import json
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

Event = dict[str, Any]

OURS = {
    "system:serviceaccount:garboard:garboard-controller": "controller",
    "system:serviceaccount:garboard:garboard-node": "node",
}
# In what the API server records of an account: the node whose pod a token is of.
NODE_CLAIM = "authentication.kubernetes.io/node-name"
WRITES = ("create", "update", "patch", "delete")
READS = ("get", "list")
# What the API server refuses because there is too much to do: it is asked again.
TOO_MANY = 429


def events(log: pathlib.Path, begin: int = 0) -> Iterator[Event]:
    """What was answered since a place in the log. The last line may be half written."""
    with log.open() as lines:
        lines.seek(begin)
        for line in lines:
            if line.endswith("\n") and (event := json.loads(line))["stage"] == "ResponseComplete":
                yield event


def component(event: Event) -> str | None:
    """Which of ours asked, by its account."""
    return OURS.get(event["user"]["username"])


def about(event: Event) -> Event:
    """What a request was about; empty where it was about no object."""
    found: Event = event.get("objectRef", {})
    return found


def resource(event: Event) -> str:
    return "/".join(filter(None, [about(event)["resource"], about(event).get("subresource")]))


def name(event: Event) -> str:
    """Of the object; empty where it has none yet, or there are several."""
    return str(about(event).get("name", ""))


def is_written(event: Event) -> bool:
    """What is refused does not count: the API server keeps nothing of it."""
    return event["verb"] in WRITES and event["responseStatus"]["code"] < 300


def moments(log: pathlib.Path, node: str, begin: int) -> list[float]:
    """When the agent of one node asked to write something that is in a namespace, in order, seconds since 1970."""
    found = []
    for event in events(log, begin):
        is_its_own = component(event) == "node" and node in event["user"].get("extra", {}).get(NODE_CLAIM, [])
        is_write = event["verb"] in WRITES and about(event).get("namespace")
        if is_its_own and is_write and event["responseStatus"]["code"] != TOO_MANY:
            found.append(moment(event["requestReceivedTimestamp"]))
    return sorted(found)


def is_about(written: str, machine: str) -> bool:
    """Whether an object is a machine's: its own, its pod, an event about it. The latter two begin with its name."""
    written = written.removeprefix("virt-launcher-")
    return written == machine or written.startswith((f"{machine}-", f"{machine}."))


def writes(requests: Iterable[Event], namespace: str, machine: str) -> collections.Counter[str]:
    """How often our components wrote what of a machine: its objects, its pods, events about it."""
    return collections.Counter(
        line_of(event) for event in of_ours(requests, namespace) if is_written(event) and is_about(name(event), machine)
    )


def reads(requests: Iterable[Event], namespace: str, machine: str) -> collections.Counter[str]:
    """How often our components read what of a machine, whether it was there or not. A list of the namespace may have
    been for any machine in it, and counts."""
    return collections.Counter(
        line_of(event)
        for event in of_ours(requests, namespace)
        if event["verb"] in READS and (event["verb"] == "list" or is_about(name(event), machine))
    )


def of_ours(requests: Iterable[Event], namespace: str) -> Iterator[Event]:
    """What our components asked for in a namespace."""
    return (each for each in requests if component(each) and about(each).get("namespace") == namespace)


def line_of(event: Event) -> str:
    return f"{component(event)}: {event['verb']} {resource(event)}"


def is_event(what: str) -> bool:
    """Whether a line of `writes` is about events: they expire, and nothing is decided by them."""
    return what.endswith(" events")


def moment(stamp: str) -> float:
    """Kubernetes' times, seconds since 1970."""
    return datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
