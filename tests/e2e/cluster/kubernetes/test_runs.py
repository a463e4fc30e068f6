"""Records of runs: one write for each when it is over, by the agent of its node; they outlive pods."""

import json

import pytest

from garboard_e2e.cluster import audit
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE, Object
from garboard_e2e.cluster.objects import machine

# Of a record, bytes of JSON (protocol/src/record).
LONGEST = 64 << 10
ENDS = {"StoppedGracefully", "ForceStopped", "GracePeriodExceeded"}


def records(kube: Kube, name: str) -> list[Object]:
    return kube.items("machineruns.garboard.dev", f"--field-selector=spec.machine={name}")


def halt(kube: Kube, name: str) -> None:
    kube.kubectl("patch", "vm", name, "--type=merge", "-p", json.dumps({"spec": {"runStrategy": "Halted"}}))
    kube.is_gone(name)


def test_a_run_is_one_more_write_when_it_is_over_and_none_before(kube: Kube) -> None:
    begin = kube.audit_log.stat().st_size
    kube.start(machine("recorded"))
    kube.becomes("vm", "recorded", "Ready")
    node = kube.status_of("vmi", "recorded")["nodeName"]
    pod = kube.pod("recorded")["metadata"]["uid"]
    kube.has_shell("recorded")
    assert records(kube, "recorded") == [], "a record was written while its machine ran"
    halt(kube, "recorded")
    [record] = kube.ask_until("the record", lambda: records(kube, "recorded"))
    spec = record["spec"]
    assert spec["reason"] in ENDS and spec["node"] == node and spec["podUID"] == pod, spec
    # Of the transcript the end is kept, and this is how the run ended.
    assert "garboard-hello: userspace" in spec["serial"] and "system_powerdown" in spec["transcript"], spec
    assert spec["argv"][0].endswith("qemu-system-x86_64") and spec["planDigest"].startswith("sha256:"), spec
    steps = [step["name"] for step in spec["steps"]]
    assert steps[-1] == "Ended" and "Running" in steps, steps
    assert len(json.dumps(spec)) < LONGEST
    # Others may end meanwhile.
    requests = audit.of_ours(audit.events(kube.audit_log, begin), NAMESPACE)
    own = [each for each in requests if audit.is_about(audit.name(each), "recorded")]
    of_runs = [audit.line_of(each) for each in own if audit.resource(each) == "machineruns"]
    assert of_runs == ["node: create machineruns"], of_runs


@pytest.mark.long
def test_a_record_is_never_changed_and_goes_with_its_machine(kube: Kube) -> None:
    kube.start(machine("forgotten"))
    kube.becomes("vm", "forgotten", "Ready")
    kube.has_shell("forgotten")
    halt(kube, "forgotten")
    [record] = kube.ask_until("the record", lambda: records(kube, "forgotten"))
    name = record["metadata"]["name"]
    change = json.dumps({"spec": {"reason": "GuestShutdown", "message": "another"}})
    refused = kube.kubectl("patch", "machinerun", name, "--type=merge", "-p", change, code=1)
    assert "a record is never changed" in refused, refused
    kube.remove("forgotten")
    kube.ask_until("nothing left", lambda: not records(kube, "forgotten"))


@pytest.mark.long
def test_an_instance_of_its_own_leaves_a_record_when_it_is_deleted(kube: Kube) -> None:
    template = machine("alone", "Always")["spec"]["template"]
    head = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
    kube.apply(head | {"metadata": template["metadata"] | {"name": "alone"}, "spec": template["spec"]})
    kube.runs("alone")
    kube.has_shell("alone")
    kube.kubectl("delete", "vmi", "alone")
    kube.is_gone("alone")
    [record] = kube.ask_until("the record", lambda: records(kube, "alone"))
    assert not record["metadata"].get("ownerReferences"), record["metadata"]
    kube.kubectl("delete", "machinerun", record["metadata"]["name"])
