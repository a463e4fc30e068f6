"""An object that this release cannot read: its own problem, and no other's."""

import json

from kube import NAMESPACE, Failure, machine

# A text that quantities cannot have, and one that is not for logs.
BAD, MARK = "1e1.5", "not-for-logs"
CRD = "customresourcedefinitions/virtualmachines.kubevirt.io"
WEBHOOKS = ("mutatingwebhookconfigurations/garboard", "validatingwebhookconfigurations/garboard")


def stored(kube, what):
    return json.loads(kube.kubectl("get", what, "-o", "json", namespace=None))


def restored(kube, *objects):
    """As they were, whatever the API server or a controller wrote into them meanwhile."""
    for each in objects:
        for field in "resourceVersion", "uid", "creationTimestamp", "managedFields", "generation":
            each["metadata"].pop(field, None)
        each.pop("status", None)
        kube.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=json.dumps(each), namespace=None)


def tried(kube, *arguments, **options):
    """What kubectl prints, or nothing if it fails."""
    try:
        return kube.kubectl(*arguments, **options)
    except Failure:
        return ""


def unpatterned(schema):
    """A schema without patterns: what an earlier release, or another program, may have stored."""
    if isinstance(schema, dict):
        return {key: unpatterned(value) for key, value in schema.items() if key != "pattern" or not isinstance(value, str)}
    return [unpatterned(each) for each in schema] if isinstance(schema, list) else schema


def one_object_that_cannot_be_read(kube):
    """Stored behind the webhooks' back; the controllers begin again, and find it in their first list."""
    kept, crd = [stored(kube, each) for each in WEBHOOKS], stored(kube, CRD)
    vm = machine("unreadable", "Halted")
    vm["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": BAD}
    vm["metadata"]["annotations"] = {"garboard.test/mark": MARK}
    try:
        loose = json.loads(json.dumps(crd))
        loose["spec"]["versions"][0]["schema"] = unpatterned(loose["spec"]["versions"][0]["schema"])
        kube.kubectl("replace", "-f", "-", text=json.dumps(loose), namespace=None)
        kube.kubectl("delete", *WEBHOOKS, namespace=None)
        kube.ask_until("an object that no webhook judged", lambda: "created" in tried(kube, "apply", "-f", "-", text=json.dumps(vm)))
    finally:
        restored(kube, *kept, crd)
    kube.kubectl("rollout", "restart", "deployment/garboard-controller", namespace="garboard")
    kube.kubectl("rollout", "status", "deployment/garboard-controller", "--timeout=120s", namespace="garboard")
    # Certificates come back into the configurations of the webhooks, and another machine starts.
    kube.ask_until("another machine", lambda: tried(kube, "apply", "-f", "-", text=json.dumps(machine("beside"))))
    kube.runs("beside")
    told = kube.wait("a word about it", lambda: kube.condition("vm", "unreadable", "Failure"))
    if told.get("reason") != "Unreadable" or "memory.guest" not in told.get("message", ""):
        raise Failure(f"of the object is told: {told}")
    for pod in kube.controllers():
        if MARK in tried(kube, "logs", pod["metadata"]["name"], namespace="garboard"):
            raise Failure("the log of a controller has the text of an object")
    kube.recorder.note("removal", machine=f"{NAMESPACE}/unreadable")
    kube.kubectl("delete", "vm/unreadable", "--timeout=180s")
    kube.remove("beside")


SCENES = [("one object that cannot be read is its own problem", one_object_that_cannot_be_read)]
