"""An object that this release cannot read: its own problem, and no other's."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import CONTROLLER, INSTALLED_IN, Object
from garboard_e2e.cluster.objects import machine

# A text that quantities cannot have, and one that is not for logs.
BAD, MARK = "1e1.5", "not-for-logs"
NAME = "unreadable"
CRD = "customresourcedefinitions/virtualmachines.kubevirt.io"
WEBHOOKS = ("mutatingwebhookconfigurations/garboard", "validatingwebhookconfigurations/garboard")


def restore(kube: Kube, *objects: Object) -> None:
    """As they were, whatever the API server or a controller wrote into them meanwhile."""
    for each in objects:
        for field in ("resourceVersion", "uid", "creationTimestamp", "managedFields", "generation"):
            each["metadata"].pop(field, None)
        each.pop("status", None)
        forced = ["apply", "--server-side", "--force-conflicts", "-f", "-"]
        kube.kubectl(*forced, text=json.dumps(each), namespace=None)


def unpatterned(schema: Any) -> Any:
    """A schema without patterns: what an earlier release, or another program, may have stored."""
    if isinstance(schema, dict):
        kept = {key: value for key, value in schema.items() if key != "pattern" or not isinstance(value, str)}
        return {key: unpatterned(value) for key, value in kept.items()}
    return [unpatterned(each) for each in schema] if isinstance(schema, list) else schema


@pytest.fixture
def unreadable(kube: Kube) -> Iterator[str]:
    """Stored behind the webhooks' back; the controllers begin again, and find it in their first list."""
    webhooks, crd = [kube.get(each, namespace=None) for each in WEBHOOKS], kube.get(CRD, namespace=None)
    vm = machine(NAME, "Halted")
    vm["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": BAD}
    vm["metadata"]["annotations"] = {"garboard.test/mark": MARK}
    loose = copy.deepcopy(crd)
    loose["spec"]["versions"][0]["schema"] = unpatterned(loose["spec"]["versions"][0]["schema"])
    store = ["apply", "-f", "-"]
    try:
        kube.kubectl("replace", "-f", "-", text=json.dumps(loose), namespace=None)
        kube.kubectl("delete", *WEBHOOKS, namespace=None)
        kube.ask_until("an object that no webhook judged", lambda: "created" in kube.tried(*store, text=json.dumps(vm)))
    finally:
        restore(kube, *webhooks, crd)
    kube.kubectl("rollout", "restart", f"deployment/{CONTROLLER}", namespace=INSTALLED_IN)
    kube.kubectl("rollout", "status", f"deployment/{CONTROLLER}", "--timeout=120s", namespace=INSTALLED_IN)
    yield NAME
    kube.will_go(NAME)
    kube.kubectl("delete", f"vm/{NAME}", "--timeout=180s")


def test_one_object_that_cannot_be_read_is_its_own_problem(kube: Kube, unreadable: str) -> None:
    """Certificates come back into the configurations of the webhooks, and another machine starts."""
    apply, beside = ["apply", "-f", "-"], json.dumps(machine("beside"))
    kube.ask_until("another machine", lambda: kube.tried(*apply, text=beside))
    kube.runs("beside")
    failure = kube.says_of_itself("vm", unreadable, "Failure", "memory.guest")
    assert failure["reason"] == "Unreadable", f"the condition is {failure}"
    for pod in kube.controllers():
        log = kube.tried("logs", pod["metadata"]["name"], namespace=INSTALLED_IN)
        assert MARK not in log, "the log of a controller has the text of an object"
