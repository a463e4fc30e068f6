"""What clients read of a machine: the fields of its status, its events, and the record of what was started."""

import contextlib
import json
from collections.abc import Callable

from garboard_e2e.cluster import volumes
from garboard_e2e.cluster.kube import PROMPT, Kube
from garboard_e2e.cluster.names import COMPUTE, NODE_1, Object
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.virtctl import virtctl

RUNNING = ["Pending", "Scheduling", "Scheduled", "Running"]


def events(kube: Kube, name: str, kind: str = "VirtualMachineInstance") -> list[tuple[str, str]]:
    """Types and reasons of all events about an object of this name, as they came."""
    selector = f"involvedObject.name={name},involvedObject.kind={kind}"
    found = json.loads(kube.kubectl("get", "events", "--field-selector", selector, "-o", "json"))["items"]

    def at(event: Object) -> str:
        return str(event.get("eventTime") or event["metadata"]["creationTimestamp"])

    return [(str(each["type"]), str(each["reason"])) for each in sorted(found, key=at)]


def has_events(kube: Kube, name: str, *reasons: str) -> Callable[[], bool]:
    """Whether there is an event of each of these reasons."""
    return lambda: set(reasons) <= {reason for _, reason in events(kube, name)}


def revisions(kube: Kube, owner: str | None) -> dict[str, Object]:
    """The records of what was started of a machine, by their names."""
    selector = f"garboard.dev/revision-of={owner}"
    found = json.loads(kube.kubectl("get", "controllerrevisions", "-l", selector, "-o", "json"))["items"]
    return {str(each["metadata"]["name"]): each for each in found}


def test_a_running_machine_is_described(kube: Kube, held: contextlib.ExitStack) -> None:
    """The fields that KubeVirt's clients read; what belongs to features that are not there is not written."""
    held.enter_context(volumes.claimed(kube, "described"))
    kept = {"name": "kept", "persistentVolumeClaim": {"claimName": "described"}}
    described = machine("described", node=NODE_1, volumes=[kept])
    domain = described["spec"]["template"]["spec"]["domain"]
    domain["cpu"] = {"cores": 2}
    domain["devices"]["networkInterfaceMultiqueue"] = True
    kube.start(described)
    kube.becomes("vm", "described", "Ready")
    status = kube.status_of("vmi", "described")
    pod = kube.pod("described")
    assert status["activePods"] == {pod["metadata"]["uid"]: NODE_1}
    image = next(each["image"] for each in pod["spec"]["containers"] if each["name"] == COMPUTE)
    assert status["launcherContainerImageVersion"] == image
    assert [each["phase"] for each in status["phaseTransitionTimestamps"]] == RUNNING
    interface = status["interfaces"][0]
    assert interface["queueCount"] == 2 and interface["linkState"] == "up", interface
    assert interface["infoSource"].startswith("domain") and interface["podInterfaceName"] == "eth0", interface
    (volume,) = status["volumeStatus"]
    assert (volume["name"], volume["target"]) == ("kept", "vda"), volume
    info = volume["persistentVolumeClaimInfo"]
    assert (info["claimName"], info["accessModes"]) == ("described", ["ReadWriteOnce"]), info
    assert status["currentCPUTopology"] == {"cores": 2, "sockets": 1, "threads": 1}
    assert status["memory"]["guestAtBoot"] == status["memory"]["guestCurrent"] == "128Mi"
    migratable = kube.becomes("vmi", "described", "LiveMigratable", "False")
    assert migratable["reason"] == "DisksNotLiveMigratable" and "described" in migratable["message"], migratable
    assert kube.becomes("vmi", "described", "StorageLiveMigratable", "False")["reason"] == "NotMigratable"
    absent = {"migrationState", "migrationMethod", "migrationTransport", "evacuationNodeName", "fsFreezeStatus"}
    assert not absent & set(status), f"the status has {absent & set(status)}"
    of_machine = kube.status_of("vm", "described")
    assert of_machine["created"] and of_machine["ready"] and of_machine["runStrategy"] == "Always", of_machine
    assert not {"volumeUpdateState", "snapshotInProgress"} & set(of_machine)
    assert [(each["name"], each["enabled"]) for each in of_machine["volumeSnapshotStatuses"]] == [("kept", False)]


def observes(kube: Kube, name: str) -> Callable[[], bool]:
    """Whether the instance of a machine is as new as the machine."""
    return lambda: (
        kube.status_of("vm", name).get("observedGeneration") == kube.present("vm", name)["metadata"]["generation"]
    )


def test_what_is_started_is_recorded_and_a_change_of_it_asks_for_a_restart(kube: Kube) -> None:
    kube.start(machine("recorded"))
    uid = kube.uid("recorded", "vm")
    stored = kube.present("vm", "recorded")
    first = f"revision-start-vm-{uid}-{stored['metadata']['generation']}"
    assert kube.reported("recorded", "virtualMachineRevisionName") == first
    (revision,) = revisions(kube, uid).values()
    assert revision["metadata"]["name"] == first and revision["revision"] == stored["metadata"]["generation"]
    assert revision["data"]["spec"]["template"]["spec"]["domain"]["memory"]["guest"] == "128Mi"
    assert revision["metadata"]["ownerReferences"][0]["uid"] == uid
    # Another strategy is no other machine.
    kube.patch("vm/recorded", {"spec": {"runStrategy": "Manual"}})
    kube.wait("the strategy", lambda: kube.status_of("vm", "recorded").get("runStrategy") == "Manual")
    kube.wait("an instance as new as its machine", observes(kube, "recorded"))
    assert not kube.condition("vm", "recorded", "RestartRequired")
    change = {"spec": {"template": {"spec": {"domain": {"memory": {"guest": "160Mi"}}}}, "runStrategy": "Always"}}
    kube.patch("vm/recorded", change)
    assert kube.becomes("vm", "recorded", "RestartRequired")["reason"] == "TemplateChanged"
    instance = kube.uid("recorded")
    kube.has_shell("recorded")
    kube.kubectl("delete", "vmi/recorded", "--wait=false")
    kube.runs("recorded", not_this=instance)
    kube.becomes("vm", "recorded", "RestartRequired", None)
    generation = kube.present("vm", "recorded")["metadata"]["generation"]
    second = f"revision-start-vm-{uid}-{generation}"
    assert kube.reported("recorded", "virtualMachineRevisionName") == second
    kube.wait("the end of the first record", lambda: list(revisions(kube, uid)) == [second])
    kube.remove("recorded")
    kube.wait("the end of the second record", lambda: not revisions(kube, uid))


def test_the_life_of_a_machine_is_seen_in_its_events(kube: Kube) -> None:
    """Reasons that KubeVirt's users know, and no warning of a machine that is well."""
    client = virtctl(kube)
    kube.start(machine("eventful"))
    kube.wait("the events of a start", has_events(kube, "eventful", "SuccessfulCreate", "Created", "Started"))
    client.run("pause", "vm", "eventful")
    kube.becomes("vmi", "eventful", "Paused")
    kube.wait("the event of a pause", has_events(kube, "eventful", "Paused"))
    client.run("unpause", "vm", "eventful")
    kube.becomes("vmi", "eventful", "Paused", None)
    kube.wait("the event of its end", has_events(kube, "eventful", "Unpaused"))
    kube.has_shell("eventful")
    prompts = kube.serial("eventful").count(PROMPT)
    client.run("reset", "eventful")
    kube.wait("the event of a reset", has_events(kube, "eventful", "Reset"))
    kube.prints("eventful", PROMPT, times=prompts + 1)
    kube.patch("vm/eventful", {"spec": {"runStrategy": "Halted"}})
    kube.is_gone("eventful")
    kube.wait(
        "the events of the end",
        has_events(kube, "eventful", "ShuttingDown", "Stopped", "SuccessfulDelete", "Deleted"),
    )
    warnings = [reason for kind, reason in events(kube, "eventful") if kind != "Normal"]
    # On a machine whose KVM interprets guest code the guest asks for emulation, of which there is no event.
    assert not warnings, f"warnings of a machine that is well: {warnings}"
    of_machine = {reason for _, reason in events(kube, "eventful", "VirtualMachine")}
    assert {"SuccessfulCreate", "SuccessfulDelete"} <= of_machine, of_machine


def test_what_a_template_tells_a_descheduler_reaches_a_running_pod(kube: Kube) -> None:
    kube.start(machine("moveable"))
    uid, evict = kube.uid("moveable"), "descheduler.alpha.kubernetes.io/evict"
    marks = kube.present("vmi", "moveable")["metadata"]["annotations"]
    assert marks["kubevirt.io/latest-observed-api-version"] == "v1", marks

    def is_on_the_pod() -> bool:
        return evict in kube.pod("moveable")["metadata"].get("annotations", {})

    kube.patch("vm/moveable", {"spec": {"template": {"metadata": {"annotations": {evict: "true"}}}}})
    kube.wait("the pod's annotation", is_on_the_pod)
    kube.patch("vm/moveable", {"spec": {"template": {"metadata": {"annotations": {evict: None}}}}})
    kube.wait("a pod without it", lambda: not is_on_the_pod())
    assert kube.uid("moveable") == uid and not kube.condition("vm", "moveable", "RestartRequired")
