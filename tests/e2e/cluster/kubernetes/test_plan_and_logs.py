"""The record of a machine that runs through subresources.garboard.dev: its plan and its logs, each with a right, and
nothing goes through the pod."""

import functools
import json
from collections.abc import Iterator

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE, SIDECAR
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.stream import OWN_GROUP

BASE = f"{OWN_GROUP}/namespaces/{NAMESPACE}/virtualmachineinstances"
# What an API server is asked for, and the file of the launcher's record.
PARTS = {
    "plan": "plan.json",
    "plan/facts": "facts.json",
    "plan/options": "options.json",
    "logs/qemu": "qemu.log",
}


@pytest.fixture(scope="module")
def running(kube: Kube) -> Iterator[str]:
    kube.start(machine("looked-into", "Always"))
    yield "looked-into"
    kube.remove("looked-into")


def read(kube: Kube, name: str, path: str, *options: str, code: int = 0) -> str:
    return kube.kubectl("get", "--raw", f"{BASE}/{name}/{path}", *options, code=code, namespace=None)


def inside(kube: Kube, name: str, file: str) -> str:
    show = ("/usr/bin/garboard-launcher", "--show", file)
    return kube.kubectl("exec", kube.pod_name(name), "-c", SIDECAR, "--", *show)


@pytest.mark.parametrize("path", PARTS)
def test_a_part_is_what_the_launcher_has(kube: Kube, running: str, path: str) -> None:
    assert read(kube, running, path) == inside(kube, running, PARTS[path])


def test_the_plan_has_what_is_executed_and_logs_what_was_printed(kube: Kube, running: str) -> None:
    plan = json.loads(read(kube, running, "plan"))
    assert plan["identity"]["name"] == running and plan["argv"][0].endswith("qemu-system-x86_64"), plan["argv"]
    entries = [json.loads(line) for line in read(kube, running, "logs/qmp").splitlines()]
    assert {"command", "reply"} <= {entry["kind"] for entry in entries}, entries[:3]


def test_what_is_not_there_is_named(kube: Kube, running: str) -> None:
    for path, expected in {
        "logs/exit": "this run has no exit.json yet",
        "logs/vmi.json": "write logs/qmp, logs/qemu, logs/serial, logs/exit",
        "plan/journal": "write plan, plan/facts, plan/options",
    }.items():
        refused = read(kube, running, path, code=1)
        assert expected in refused, f"{path}: {refused}"
    kube.apply(machine("not-started", "Halted"))
    assert "not found" in read(kube, "not-started", "plan", code=1)
    kube.remove("not-started")


def may(kube: Kube, user: str, name: str, path: str) -> bool:
    return bool(kube.tried("get", "--raw", f"{BASE}/{name}/{path}", f"--as={user}", namespace=None))


def test_a_right_to_queries_is_none_to_the_record(kube: Kube, running: str) -> None:
    for user, role in {"asks": "garboard-qmp-read", "inspects": "garboard-inspect"}.items():
        kube.kubectl("delete", "rolebinding", f"record-{user}", "--ignore-not-found")
        kube.kubectl("create", "rolebinding", f"record-{user}", f"--clusterrole={role}", f"--user={user}")
    kube.ask_until("the right", functools.partial(may, kube, "asks", running, "qmp-read/query-status"))
    kube.ask_until("the right", functools.partial(may, kube, "inspects", running, "plan"))
    for subresource, path in {"plan": "plan/facts", "logs": "logs/serial"}.items():
        refused = read(kube, running, path, "--as=asks", code=1)
        assert "forbidden" in refused and f"virtualmachineinstances/{subresource}" in refused, refused
    refused = read(kube, running, "qmp-read/query-status", "--as=inspects", code=1)
    assert "forbidden" in refused, refused
