"""What was asked of the API server, by its own audit log."""

import collections
import datetime
import json
import pathlib
import time

OURS = {"system:serviceaccount:garboard:garboard-controller": "controller", "system:serviceaccount:garboard:garboard-node": "node"}
# In what the API server knows of an account: the node whose pod a token is of.
NODE_CLAIM = "authentication.kubernetes.io/node-name"
WRITES = ("create", "update", "patch", "delete")


READS = ("get", "list")


def requests(cluster, namespace):
    """What our components asked for and were granted: who, the verb, what it was about, and the resource. What is refused
    does not count: the API server keeps nothing of it."""
    log = pathlib.Path(f"/run/garboard-cluster/{cluster}/logs/audit.log")
    for line in log.read_text().splitlines():
        event = json.loads(line)
        about, who = event.get("objectRef", {}), OURS.get(event["user"]["username"])
        if who is None or about.get("namespace") != namespace or event["stage"] != "ResponseComplete":
            continue
        resource = "/".join(filter(None, [about["resource"], about.get("subresource")]))
        yield who, event["verb"], about.get("name", ""), resource, event["responseStatus"]["code"]


def moments(cluster, node, begin):
    """When the agent of one node asked to write something that is in a namespace, in order, seconds since 1970. `begin` is a
    place in the log. What was turned away before it was looked at (429) is asked again and does not count."""
    found = []
    with pathlib.Path(f"/run/garboard-cluster/{cluster}/logs/audit.log").open() as lines:
        lines.seek(begin)
        # The last line may be half written.
        for event in (json.loads(line) for line in lines if line.endswith("\n")):
            who, about = event["user"], event.get("objectRef", {})
            ours = OURS.get(who["username"]) == "node" and node in who.get("extra", {}).get(NODE_CLAIM, [])
            is_write = event["verb"] in WRITES and about.get("namespace") and event["stage"] == "ResponseComplete"
            if ours and is_write and event["responseStatus"]["code"] != 429:
                received = event["requestReceivedTimestamp"].replace("Z", "+00:00")
                found.append(datetime.datetime.fromisoformat(received).timestamp())
    return sorted(found)


def is_about(written, name):
    """Whether an object is a machine's: its own, its pod, an event about it. The latter two begin with its name."""
    written = written.removeprefix("virt-launcher-")
    return written == name or written.startswith((f"{name}-", f"{name}."))


def writes(cluster, namespace, name):
    """How often our components wrote what, by the name of a machine: its objects, its pods, events about it."""
    counted = collections.Counter()
    for who, verb, written, resource, code in requests(cluster, namespace):
        if verb in WRITES and code < 300 and is_about(written, name):
            counted[f"{who}: {verb} {resource}"] += 1
    return counted


def reads(cluster, namespace, name):
    """How often our components read what of a machine, whether it was there or not. A list of the namespace may have been
    for any machine in it, and counts."""
    counted = collections.Counter()
    for who, verb, read, resource, _ in requests(cluster, namespace):
        if verb in READS and (verb == "list" or is_about(read, name)):
            counted[f"{who}: {verb} {resource}"] += 1
    return counted


def is_event(what):
    """Whether a line of `writes` is about events: they expire, and nothing is decided by them."""
    return what.endswith(" events")


def seconds(stamp):
    """Kubernetes' times, whole seconds since 1970."""
    return time.mktime(time.strptime(stamp.split(".")[0].rstrip("Z"), "%Y-%m-%dT%H:%M:%S"))
