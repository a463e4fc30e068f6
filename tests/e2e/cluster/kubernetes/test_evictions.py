"""What a drain does to machines: pods/eviction as kubectl drain asks it, answered by `evictionStrategy`."""

import json

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE, Object
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.virtctl import virtctl as client


def evict(kube: Kube, name: str, code: int, dry_run: bool = False) -> str:
    """The answer to an eviction that kubectl ends with this code: 0 where it is let through."""
    pod = kube.pod_name(name)
    metadata = {"name": pod, "namespace": NAMESPACE}
    eviction: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    if dry_run:
        eviction["deleteOptions"] = {"dryRun": ["All"]}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
    return kube.kubectl("create", "--raw", path, "-f", "-", text=json.dumps(eviction), code=code, namespace=None)


def stays(kube: Kube, name: str, text: str, dry_run: bool = False) -> None:
    answer = evict(kube, name, 1, dry_run)
    assert text in answer and "TooManyRequests" in answer, f"an eviction of {name} is answered {answer!r}"


def started(kube: Kube, name: str, vm: Object) -> tuple[str, str]:
    """A machine that runs, once its instance reports that it cannot be migrated; the UIDs of instance and pod."""
    (uid,) = kube.start(vm)
    not_migratable = kube.becomes("vmi", name, "LiveMigratable", "False")
    assert not_migratable["reason"] == "NotMigratable", not_migratable
    return uid, str(kube.pod(name)["metadata"]["uid"])


def is_undisturbed(kube: Kube, name: str, before: tuple[str, str]) -> bool:
    return (kube.uid(name), kube.pod(name)["metadata"]["uid"]) == before and kube.phase(name) == "Running"


def test_an_eviction_is_refused_for_a_machine_that_would_have_to_be_migrated(kube: Kube) -> None:
    before = started(kube, "kept", machine("kept", evictionStrategy="LiveMigrate"))
    stays(kube, "kept", "LiveMigrate and cannot be migrated")
    assert is_undisturbed(kube, "kept", before)


def test_an_eviction_marks_a_machine_that_another_program_moves(kube: Kube) -> None:
    """Not in a dry run; and it runs on."""
    name, first = "asked", f'Eviction triggered evacuation of VMI "{NAMESPACE}/asked"'
    before = started(kube, name, machine(name, evictionStrategy="External"))
    stays(kube, name, first, dry_run=True)
    assert "evacuationNodeName" not in kube.status_of("vmi", name), "a dry run has marked the instance"
    stays(kube, name, first)
    node = kube.pod(name)["spec"]["nodeName"]
    kube.wait("the mark", lambda: kube.status_of("vmi", name).get("evacuationNodeName") == node)
    stays(kube, name, "Evacuation in progress")
    client(kube).run("evacuate-cancel", "vm", name)
    assert "evacuationNodeName" not in kube.get("vmi", name)["status"]
    assert is_undisturbed(kube, name, before)


def test_an_eviction_ends_other_machines_and_is_a_failure_for_rerun_on_failure(kube: Kube) -> None:
    """Powered down, which ends its run in order: for RerunOnFailure it has failed."""
    name = "goes"
    uid, _ = started(kube, name, machine(name, "RerunOnFailure"))
    kube.has_shell(name)
    evict(kube, name, 0)

    def is_reported() -> bool:
        reason = kube.condition("vmi", name, "EvictionRequested").get("reason")
        return kube.uid(name) != uid or reason == "EvictionByEvictionAPI"

    kube.wait("the reason of the eviction", is_reported)
    kube.runs(name, not_this=uid)
