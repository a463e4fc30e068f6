"""What a machine waits for before it starts, and what it is called meanwhile (KubeVirt's printableStatus)."""

import contextlib

import pytest

from garboard_e2e.cluster import volumes
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import Object
from garboard_e2e.cluster.objects import claim, machine

# As much of the importer's kind as is looked at; the importer itself is another project's, and this file plays it.
CRD = "datavolumes.cdi.kubevirt.io"
SCHEMA = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
VERSION = {"name": "v1beta1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": SCHEMA}
DATA_VOLUMES: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": CRD},
    "spec": {
        "group": "cdi.kubevirt.io",
        "scope": "Namespaced",
        "names": {"kind": "DataVolume", "plural": "datavolumes"},
        "versions": [VERSION],
    },
}
NOWHERE = "localhost:1/nothing:1"


def test_a_machine_waits_for_a_node_that_offers_its_cpu(kube: Kube) -> None:
    """A CPU that KVM of no node can give: the machine waits, and its status shows it. Under TCG every node gives what
    QEMU supports."""
    wanted = {"scarce": "Snowridge", "common": "qemu64"}
    machines = {name: machine(name) for name in wanted}
    for name, model in wanted.items():
        machines[name]["spec"]["template"]["spec"]["domain"]["cpu"]["model"] = model
    del machines["scarce"]["spec"]["template"]["metadata"]["annotations"]
    kube.apply(*machines.values())
    kube.shows("scarce", "ErrorUnschedulable")
    kube.runs("common")
    of_type, of_model = "machine-type.node.kubevirt.io/q35", "cpu-model.node.kubevirt.io/"
    for name, asks in (("scarce", True), ("common", False)):
        selector = kube.pod(name)["spec"]["nodeSelector"]
        is_asked = of_model + wanted[name] in selector
        assert of_type in selector and is_asked == asks, f"the pod of {name} asks for {selector}"


def test_a_machine_waits_for_its_claim_and_reports_an_image_that_does_not_come(
    kube: Kube, held: contextlib.ExitStack
) -> None:
    """A status while something is missing, and the start when it is there."""
    kept = {"name": "kept", "persistentVolumeClaim": {"claimName": "late"}}
    away = {"name": "away", "containerDisk": {"image": NOWHERE}}
    kube.apply(machine("claimless", volumes=[kept]), machine("imageless", volumes=[away]))
    kube.shows("claimless", "ErrorPvcNotFound")
    kube.shows("imageless", "ErrImagePull", "ImagePullBackOff")
    kube.says_of_itself("vmi", "imageless", "Synchronized", NOWHERE)
    held.enter_context(volumes.claimed(kube, "late"))
    kube.runs("claimless")


def importer_reaches(kube: Kube, phase: str) -> None:
    kube.patch("datavolume/brought", {"status": {"phase": phase}}, subresource="status")


def claim_of(kube: Kube, name: str) -> list[str | None]:
    """The claim of each volume in an instance's status."""
    volumes = kube.status_of("vmi", name).get("volumeStatus", [])
    return [each.get("persistentVolumeClaimInfo", {}).get("claimName") for each in volumes]


@pytest.fixture
def bringer(kube: Kube, held: contextlib.ExitStack) -> str:
    """A machine whose root is a DataVolume that is made with it, on a cluster that has no such kind."""
    held.callback(kube.kubectl, "delete", "crd", CRD, "--ignore-not-found", namespace=None)
    vm = machine("bringer", volumes=[{"name": "root", "dataVolume": {"name": "brought"}}])
    source = {"http": {"url": "https://example.org/disk.img"}}
    spec = {"source": source, "storage": {"resources": {"requests": {"storage": "64Mi"}}}}
    vm["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": "brought"}, "spec": spec}]
    kube.apply(vm)
    return "bringer"


def test_a_machine_waits_for_its_data_volume_which_goes_with_it(
    kube: Kube, bringer: str, held: contextlib.ExitStack
) -> None:
    kube.says_of_itself("vm", bringer, "Failure", "no Containerized Data Importer")
    kube.apply(DATA_VOLUMES, namespace=None)
    kube.ask_until("a DataVolume", lambda: kube.tried("get", "datavolume", "brought"))
    made = kube.get("datavolume", "brought")
    owner = made["metadata"]["ownerReferences"][0]["uid"]
    assert (owner, list(made["spec"]["source"])) == (kube.uid(bringer, "vm"), ["http"]), f"the DataVolume is {made}"
    importer_reaches(kube, "ImportInProgress")
    kube.shows(bringer, "Provisioning")
    kube.says_of_itself("vm", bringer, "DataVolumesReady", "ImportInProgress")
    importer_reaches(kube, "Failed")
    kube.shows(bringer, "DataVolumeError")
    path = held.enter_context(volumes.directory())
    held.callback(volumes.remove_claim, kube, "brought")
    kube.apply(*claim("brought", str(path)))
    importer_reaches(kube, "Succeeded")
    kube.runs(bringer)
    kube.wait("the claim in volumeStatus", lambda: claim_of(kube, bringer) == ["brought"])
    kube.remove(bringer)
    kube.kubectl("wait", "--for=delete", "datavolume/brought", "--timeout=180s")
