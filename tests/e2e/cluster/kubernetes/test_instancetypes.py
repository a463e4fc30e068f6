"""Instancetypes and preferences: machines have their size, keep copies of them, and find them by labels of a claim."""

import contextlib
import json
from collections.abc import Iterator

import pytest
import yaml

from garboard_e2e.cluster import volumes
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE, Object
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.person import Tool
from garboard_e2e.cluster.virtctl import virtctl as client
from garboard_e2e.places import REPOSITORY

VERSION = "instancetype.kubevirt.io/v1beta1"
OBJECT = "instancetype.kubevirt.io/object"


@pytest.fixture(scope="module")
def virtctl(kube: Kube) -> Tool:
    return client(kube)


def size(name: str, vcpus: int, memory: str = "128Mi", kind: str = "VirtualMachineInstancetype") -> Object:
    spec = {"cpu": {"guest": vcpus}, "memory": {"guest": memory}}
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def preference(name: str, spec: Object) -> Object:
    return {"apiVersion": VERSION, "kind": "VirtualMachinePreference", "metadata": {"name": name}, "spec": spec}


def named(name: str, strategy: str = "Always", **matchers: Object) -> Object:
    """A machine without a size of its own."""
    wanted = machine(name, strategy)
    domain = wanted["spec"]["template"]["spec"]["domain"]
    del domain["cpu"], domain["memory"]
    wanted["spec"] |= matchers
    return wanted


def of_namespace(name: str) -> Object:
    return {"name": name, "kind": "VirtualMachineInstancetype"}


@pytest.fixture(scope="module")
def sizes(kube: Kube) -> Iterator[None]:
    wishes = {"devices": {"preferredDiskBus": "virtio"}, "cpu": {"preferredCPUTopology": "cores"}}
    objects = [size("two", 2), size("one", 1), preference("cores", wishes)]
    for each in objects:
        kube.apply(each)
    yield
    for each in objects:
        kube.kubectl("delete", str(each["kind"]), str(each["metadata"]["name"]), "--ignore-not-found")


def copies(kube: Kube, machine: str) -> dict[str, Object]:
    """The copies that a machine keeps, by the names of the objects."""
    found = json.loads(kube.kubectl("get", "controllerrevisions", "-l", f"{OBJECT}-name", "-o", "json"))["items"]
    own = [each for each in found if each["metadata"]["ownerReferences"][0]["name"] == machine]
    return {str(each["metadata"]["labels"][f"{OBJECT}-name"]): each for each in own}


def reference(kube: Kube, name: str, which: str = "instancetypeRef") -> str | None:
    found = kube.status_of("vm", name).get(which, {}).get("controllerRevisionRef", {}).get("name")
    return None if found is None else str(found)


@pytest.mark.usefixtures("sizes")
def test_a_machine_has_the_size_of_its_instancetype_and_keeps_a_copy(kube: Kube) -> None:
    wishes = {"name": "cores", "kind": "VirtualMachinePreference"}
    kube.start(named("sized", instancetype=of_namespace("two"), preference=wishes))
    vmi = kube.get("vmi", "sized")
    cpu = vmi["spec"]["domain"]["cpu"]
    assert (cpu["sockets"], cpu["cores"], cpu["threads"]) == (1, 2, 1), cpu
    assert vmi["spec"]["domain"]["memory"]["guest"] == "128Mi"
    annotations = vmi["metadata"]["annotations"]
    assert annotations["kubevirt.io/instancetype-name"] == "two"
    assert annotations["kubevirt.io/preference-name"] == "cores"
    kept = copies(kube, "sized")
    assert set(kept) == {"two", "cores"}
    uid = kube.get("vminstancetype", "two")["metadata"]["uid"]
    assert reference(kube, "sized") == kept["two"]["metadata"]["name"] == f"sized-two-v1beta1-{uid}-1"
    assert reference(kube, "sized", "preferenceRef") == kept["cores"]["metadata"]["name"]
    assert kept["two"]["data"]["spec"]["cpu"]["guest"] == 2
    # What is stored of the machine names both, and has no size.
    stored = kube.get("vm", "sized")["spec"]
    assert stored["instancetype"] == of_namespace("two") and "cpu" not in stored["template"]["spec"]["domain"]
    kube.remove("sized")
    kube.ask_until("no copy is left", lambda: copies(kube, "sized") == {})


@pytest.mark.long
@pytest.mark.usefixtures("sizes")
def test_a_change_of_an_instancetype_reaches_no_machine_that_has_a_copy(kube: Kube) -> None:
    kube.apply(size("moving", 1))
    kube.apply(named("copied", "Halted", instancetype=of_namespace("moving")))
    kube.wait("a copy", lambda: reference(kube, "copied") is not None)
    first = reference(kube, "copied")
    kube.patch("vminstancetype/moving", {"spec": {"cpu": {"guest": 2}}})
    kube.patch("vm/copied", {"spec": {"runStrategy": "Always"}})
    kube.runs("copied")
    assert kube.get("vmi", "copied")["spec"]["domain"]["cpu"]["sockets"] == 1
    assert reference(kube, "copied") == first
    # Another name is another copy; the guest keeps what it has until it is restarted.
    kube.patch("vm/copied", {"spec": {"instancetype": {"name": "two"}}})
    kube.wait("another copy", lambda: reference(kube, "copied") not in (None, first))
    kube.becomes("vm", "copied", "RestartRequired")
    kube.remove("copied")
    kube.kubectl("delete", "vminstancetype", "moving")


@pytest.mark.usefixtures("sizes")
def test_conflicts_are_refused_with_both_places(kube: Kube) -> None:
    both = named("conflicting", "Halted", instancetype=of_namespace("two"))
    both["spec"]["template"]["spec"]["domain"]["cpu"] = {"cores": 1}
    refused = kube.kubectl("create", "-f", "-", text=json.dumps(both), code=1)
    place = "spec.template.spec.domain.cpu.cores"
    assert f"VM field(s) {place} conflicts with selected instance type" in refused, "clients compare it"
    assert f"{place}: the instancetype sets this too, in its `spec.cpu.guest`" in refused, refused
    kube.apply(preference("large", {"requirements": {"cpu": {"guest": 4}}}))
    wishes = {"name": "large", "kind": "VirtualMachinePreference"}
    lacking = named("lacking", "Halted", instancetype=of_namespace("two"), preference=wishes)
    refused = kube.kubectl("create", "-f", "-", text=json.dumps(lacking), code=1)
    assert "spec.instancetype" in refused and "4 vCPUs" in refused, refused
    assert "failure checking preference requirements: insufficient CPU resources" in refused, refused
    kube.kubectl("delete", "vmpref", "large")


@pytest.mark.long
def test_a_machine_waits_for_an_instancetype_that_comes_later(kube: Kube) -> None:
    kube.apply(named("early-bird", instancetype=of_namespace("later")))

    def reason() -> str | None:
        found = kube.status_of("vm", "early-bird").get("conditions", [])
        return next((str(each["reason"]) for each in found if each["type"] == "Failure"), None)

    kube.wait("a reason", lambda: reason() == "FailedFindInstancetype")
    kube.apply(size("later", 1))
    kube.runs("early-bird")
    kube.remove("early-bird")
    kube.kubectl("delete", "vminstancetype", "later")


@pytest.mark.usefixtures("sizes")
def test_labels_of_a_claim_name_the_instancetype(kube: Kube) -> None:
    with volumes.claimed(kube, "labelled"):
        labels = {
            "instancetype.kubevirt.io/default-instancetype": "one",
            "instancetype.kubevirt.io/default-instancetype-kind": "VirtualMachineInstancetype",
        }
        kube.patch("pvc/labelled", {"metadata": {"labels": labels}})
        inferring = named("inferring", "Halted", instancetype={"inferFromVolume": "kept"})
        claim = {"name": "kept", "persistentVolumeClaim": {"claimName": "labelled"}}
        inferring["spec"]["template"]["spec"]["volumes"] = [claim]
        kube.apply(inferring)
        assert kube.get("vm", "inferring")["spec"]["instancetype"] == of_namespace("one")
        inferring["metadata"]["name"] = "unlabelled"
        inferring["spec"]["preference"] = {"inferFromVolume": "kept"}
        refused = kube.kubectl("create", "-f", "-", text=json.dumps(inferring), code=1)
        assert "spec.preference.inferFromVolume" in refused, refused
        inferring["spec"]["preference"]["inferFromVolumeFailurePolicy"] = "Ignore"
        kube.apply(inferring)
        assert "preference" not in kube.get("vm", "unlabelled")["spec"]
        for name in ("inferring", "unlabelled"):
            kube.remove(name)


SNAPSHOTS = "volumesnapshots.snapshot.storage.k8s.io"
# As much of the kind as is looked at; nothing in the test cluster takes snapshots.
SNAPSHOT_DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": SNAPSHOTS, "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
    "spec": {
        "group": "snapshot.storage.k8s.io",
        "scope": "Namespaced",
        "names": {"kind": "VolumeSnapshot", "plural": "volumesnapshots"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.mark.usefixtures("sizes")
def test_labels_of_a_snapshot_name_the_instancetype_of_what_is_copied_from_it(
    kube: Kube, held: contextlib.ExitStack
) -> None:
    held.callback(kube.kubectl, "delete", "crd", SNAPSHOTS, "--ignore-not-found", namespace=None)
    copying = named("of-snapshot", "Halted", instancetype={"inferFromVolume": "root"})
    copying["spec"]["template"]["spec"]["volumes"] = [{"name": "root", "dataVolume": {"name": "of-snapshot"}}]
    source = {"snapshot": {"name": "golden", "namespace": NAMESPACE}}
    storage = {"resources": {"requests": {"storage": "64Mi"}}}
    template = {"metadata": {"name": "of-snapshot"}, "spec": {"source": source, "storage": storage}}
    copying["spec"]["dataVolumeTemplates"] = [template]

    def refused() -> str:
        return kube.kubectl("create", "-f", "-", text=json.dumps(copying), code=1)

    unserved = refused()
    assert "spec.instancetype.inferFromVolume" in unserved and f"no definition {SNAPSHOTS}" in unserved, unserved
    kube.apply(SNAPSHOT_DEFINITION, namespace=None)
    kube.kubectl("wait", "--for=condition=Established", f"crd/{SNAPSHOTS}", "--timeout=60s", namespace=None)
    absent = refused()
    assert f"VolumeSnapshot {NAMESPACE}/golden does not exist" in absent, absent
    labels = {
        "instancetype.kubevirt.io/default-instancetype": "one",
        "instancetype.kubevirt.io/default-instancetype-kind": "VirtualMachineInstancetype",
    }
    snapshot: Object = {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "spec": {}}
    kube.apply(snapshot | {"metadata": {"name": "golden", "labels": labels}})
    kube.apply(copying)
    assert kube.get("vm", "of-snapshot")["spec"]["instancetype"] == of_namespace("one")
    kube.remove("of-snapshot")


# ---- virtctl


@pytest.mark.usefixtures("sizes")
def test_virtctl_writes_a_machine_of_an_instancetype_and_expands_it(kube: Kube, virtctl: Tool) -> None:
    options = ["--instancetype=virtualmachineinstancetype/two", "--preference=virtualmachinepreference/cores"]
    manifest = virtctl.run("create", "vm", "--name=typed", "--run-strategy=Halted", *options)
    kube.kubectl("create", "-f", "-", text=manifest)
    printed = yaml.safe_load(virtctl.run("expand", "--vm", "typed"))
    domain = printed["spec"]["template"]["spec"]["domain"]
    assert (domain["cpu"]["cores"], domain["memory"]["guest"]) == (2, "128Mi"), domain
    assert "instancetype" not in printed["spec"] and "preference" not in printed["spec"], printed["spec"]
    done = virtctl.call("expand", "--file", "-", text=manifest)
    assert done.returncode == 0, done.stderr
    carried = yaml.safe_load(done.stdout)
    assert carried["spec"]["template"]["spec"]["domain"]["cpu"] == {"sockets": 1, "cores": 2, "threads": 1}
    done = virtctl.call("expand", "--file", "-", text=manifest.replace("name: two", "name: three"))
    assert 'virtualmachineinstancetypes.instancetype.kubevirt.io "three" not found' in done.stderr, done.stderr
    kube.remove("typed")


def test_sizes_of_nothing_are_taken_and_an_earlier_copy_is_made_anew_for_a_machine_that_rests(kube: Kube) -> None:
    kube.apply(size("weightless", 2, memory="0"), size("rested", 1))
    kube.apply(named("weightless", "Halted", instancetype=of_namespace("weightless")))
    kube.apply(named("rested", "Halted", instancetype=of_namespace("rested")))
    kube.wait("a copy", lambda: reference(kube, "rested") is not None)
    now = reference(kube, "rested")
    # As KubeVirt made them before it had versions: without one in name and labels.
    old = kube.get("controllerrevision", str(now))
    owners = old["metadata"]["ownerReferences"]
    earlier = old | {"metadata": {"name": "rested-rested-7f-1", "ownerReferences": owners}}
    kube.kubectl("create", "-f", "-", text=json.dumps(earlier))
    kube.kubectl("delete", "controllerrevision", str(now))
    status = {"status": {"instancetypeRef": {"controllerRevisionRef": {"name": "rested-rested-7f-1"}}}}
    kube.patch("vm/rested", status, subresource="status")
    kube.wait("the copy anew", lambda: reference(kube, "rested") == now)
    kube.kubectl("wait", "--for=delete", "controllerrevision/rested-rested-7f-1", "--timeout=60s")
    for name in ("weightless", "rested"):
        kube.remove(name)
        kube.kubectl("delete", "vminstancetype", name)


def test_what_virtctl_writes_of_both_kinds_is_taken_and_read_back(kube: Kube, virtctl: Tool) -> None:
    written = {
        "vminstancetype": virtctl.run(
            "create", "instancetype", "--name=trip", "--namespaced", "--cpu=2", "--memory=256Mi"
        ),
        "vmpref": virtctl.run("create", "preference", "--name=trip", "--namespaced", "--cpu-topology=spread"),
    }
    for kind, manifest in written.items():
        kube.kubectl("create", "-f", "-", text=manifest)
        stored = kube.get(kind, "trip")
        assert stored["spec"] == yaml.safe_load(manifest)["spec"], stored
        kube.kubectl("delete", kind, "trip")


def test_both_versions_are_served_and_wrong_objects_refused(kube: Kube) -> None:
    newer = size("newer", 1) | {"apiVersion": "instancetype.kubevirt.io/v1"}
    kube.apply(newer)
    for version in ("v1", "v1beta1"):
        found = json.loads(
            kube.kubectl("get", f"virtualmachineinstancetypes.{version}.instancetype.kubevirt.io/newer", "-o=json")
        )
        assert found["spec"]["cpu"]["guest"] == 1
    kube.kubectl("delete", "vminstancetype", "newer")
    wrong = size("wrong", 1)
    wrong["spec"]["memory"]["overcommitPercent"] = 101
    wrong["spec"]["cpu"]["gust"] = 2
    refused = kube.kubectl("create", "-f", "-", text=json.dumps(wrong), code=1)
    assert "spec.memory.overcommitPercent" in refused and "spec.cpu.gust" in refused, refused


def test_the_common_ones_are_installed_beside_garboard(kube: Kube) -> None:
    manifest = str(REPOSITORY / "deploy/common-instancetypes.yaml")
    kube.kubectl("apply", "-f", manifest)
    try:
        kube.apply(named("common", "Halted", instancetype={"name": "u1.nano"}, preference={"name": "cirros"}))
        kube.ask_until("both copies", lambda: set(copies(kube, "common")) == {"u1.nano", "cirros"})
        path = f"/apis/subresources.kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachines/common/expand-spec"
        printed = json.loads(kube.kubectl("get", "--raw", path))
        assert printed["spec"]["template"]["spec"]["domain"]["memory"]["guest"] == "512Mi"
        kube.remove("common")
    finally:
        kube.kubectl("delete", "-f", manifest, "--wait=false")
