"""What a machine waits for before it starts, and what it is called meanwhile (KubeVirt's printableStatus)."""

import contextlib

import pytest

from garboard_e2e.cluster import importer, volumes
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.objects import claim, machine

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


def claim_of(kube: Kube, name: str) -> list[str | None]:
    """The claim of each volume in an instance's status."""
    volumes = kube.status_of("vmi", name).get("volumeStatus", [])
    return [each.get("persistentVolumeClaimInfo", {}).get("claimName") for each in volumes]


@pytest.fixture
def bringer(kube: Kube, held: contextlib.ExitStack) -> str:
    """A machine whose root is a DataVolume that is made with it, on a cluster that has no such kind."""
    importer.goes(kube, held)
    vm = machine("bringer", volumes=[{"name": "root", "dataVolume": {"name": "brought"}}])
    vm["spec"]["dataVolumeTemplates"] = [importer.template("brought")]
    kube.apply(vm)
    return "bringer"


def test_a_machine_waits_for_its_data_volume_which_goes_with_it(
    kube: Kube, bringer: str, held: contextlib.ExitStack
) -> None:
    kube.says_of_itself("vm", bringer, "Failure", "no Containerized Data Importer")
    importer.comes(kube)
    owner = importer.made(kube, "brought")["ownerReferences"][0]["uid"]
    source = kube.get("datavolume", "brought")["spec"]["source"]
    assert (owner, list(source)) == (kube.uid(bringer, "vm"), ["http"]), f"the DataVolume is of {owner}, from {source}"
    importer.reaches(kube, "brought", "ImportInProgress")
    kube.shows(bringer, "Provisioning")
    kube.says_of_itself("vm", bringer, "DataVolumesReady", "ImportInProgress")
    importer.reaches(kube, "brought", "Failed")
    kube.shows(bringer, "DataVolumeError")
    path = held.enter_context(volumes.directory())
    held.callback(volumes.remove_claim, kube, "brought")
    kube.apply(*claim("brought", str(path)))
    importer.reaches(kube, "brought", "Succeeded")
    kube.runs(bringer)
    kube.wait("the claim in volumeStatus", lambda: claim_of(kube, bringer) == ["brought"])
    kube.remove(bringer)
    kube.kubectl("wait", "--for=delete", "datavolume/brought", "--timeout=180s")
