"""What was written to the API server, by its own audit log."""

import collections
import json
import pathlib
import time

OURS = {"system:serviceaccount:garboard:garboard-controller": "controller", "system:serviceaccount:garboard:garboard-node": "node"}
WRITES = ("create", "update", "patch", "delete")


def writes(cluster, namespace, name):
    """How often our components wrote what, by the name of a machine: its objects, its pods, events about it. Refused
    writes do not count: the API server keeps nothing of them."""
    counted, log = collections.Counter(), pathlib.Path(f"/run/garboard-cluster/{cluster}/logs/audit.log")
    for line in log.read_text().splitlines():
        event = json.loads(line)
        about, who = event.get("objectRef", {}), OURS.get(event["user"]["username"])
        if who is None or event["verb"] not in WRITES or about.get("namespace") != namespace:
            continue
        if event["stage"] != "ResponseComplete" or event["responseStatus"]["code"] >= 300:
            continue
        # The pod of a machine, and its events, begin with its name.
        written = about.get("name", "").removeprefix("virt-launcher-")
        if written == name or written.startswith((f"{name}-", f"{name}.")):
            resource = "/".join(filter(None, [about["resource"], about.get("subresource")]))
            counted[f"{who}: {event['verb']} {resource}"] += 1
    return counted


def is_event(what):
    """Whether a line of `writes` is about events: they expire, and nothing is decided by them."""
    return what.endswith(" events")


def seconds(stamp):
    """Kubernetes' times, whole seconds since 1970."""
    return time.mktime(time.strptime(stamp.split(".")[0].rstrip("Z"), "%Y-%m-%dT%H:%M:%S"))
