"""Older versions of the API: a machine of v1alpha2 is converted as it is written and read, by a webhook of ours."""

import json

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE, Object
from garboard_e2e.cluster.objects import machine
from garboard_e2e.guests import HELLO

FIRST = "kubevirt.io/v1alpha2"
PATH = f"/apis/{FIRST}/namespaces/{NAMESPACE}"


def with_disk(name: str, strategy: str) -> Object:
    return machine(name, strategy, volumes=[{"name": "root", "containerDisk": {"image": HELLO}}])


def of_2018(name: str, strategy: str) -> Object:
    """The hello guest as a manifest of v1alpha2: its disk has a name of its own, its image is a registryDisk."""
    made = with_disk(name, strategy) | {"apiVersion": FIRST}
    spec = made["spec"]["template"]["spec"]
    for disk in spec["domain"]["devices"]["disks"]:
        disk |= {"name": f"disk-{disk['name']}", "volumeName": disk["name"]}
    for volume in spec["volumes"]:
        if image := volume.pop("containerDisk", None):
            volume["registryDisk"] = image
    return made


def devices(made: Object) -> tuple[list[Object], list[Object]]:
    spec = made["spec"]["template"]["spec"]
    return spec["domain"]["devices"]["disks"], spec["volumes"]


def read(kube: Kube, path: str) -> Object:
    found: Object = json.loads(kube.kubectl("get", "--raw", f"{PATH}/{path}", namespace=None))
    return found


def test_a_machine_of_v1alpha2_runs_and_reads_back_as_it_was_written(kube: Kube) -> None:
    written = of_2018("old", "Always")
    # The deprecation is a warning, and no refusal.
    kube.start(written)
    kube.becomes("vm", "old", "Ready")
    stored = kube.get("virtualmachines.v1.kubevirt.io/old")
    disks, volumes = devices(stored)
    assert [disk["name"] for disk in disks] == [volume["name"] for volume in volumes], (disks, volumes)
    assert all("volumeName" not in disk for disk in disks) and "registryDisk" not in json.dumps(volumes)
    again = read(kube, "virtualmachines/old")
    shown = devices(again)
    for own, other in zip(devices(written), shown, strict=True):
        assert all(each.items() <= found.items() for each, found in zip(own, other, strict=True)), (own, other)
    assert [(disk["name"], disk["volumeName"]) for disk in shown[0]] == [
        (disk["name"], disk["volumeName"]) for disk in devices(written)[0]
    ]
    assert again["status"]["virtualMachine"] == "old", again["status"]
    instance = read(kube, "virtualmachineinstances/old")
    assert instance["apiVersion"] == FIRST and instance["spec"]["domain"]["devices"]["disks"][0]["volumeName"]


def test_an_old_client_changes_and_deletes_what_it_lists(kube: Kube) -> None:
    kube.apply(of_2018("listed", "Halted"))
    names = [each["metadata"]["name"] for each in read(kube, "virtualmachines")["items"]]
    assert "listed" in names, names
    changed = read(kube, "virtualmachines/listed")
    changed["metadata"]["labels"] = {"changed": "yes"}
    path = f"{PATH}/virtualmachines/listed"
    kube.kubectl("replace", "--raw", path, "-f", "-", text=json.dumps(changed), namespace=None)
    stored = kube.get("virtualmachines.v1.kubevirt.io/listed")
    assert stored["metadata"]["labels"] == {"changed": "yes"}
    assert devices(stored)[0][0]["name"] == devices(stored)[1][0]["name"], "the change of a label changed a disk"
    kube.will_go("listed")
    kube.kubectl("delete", "--raw", path, namespace=None)
    kube.is_removed("listed")


def test_what_is_wrong_in_an_old_manifest_is_named_in_the_stored_version(kube: Kube) -> None:
    wrong = of_2018("wrong", "Halted")
    devices(wrong)[0][0]["volumeName"] = "mypcv"
    refusal = kube.kubectl("apply", "-f", "-", text=json.dumps(wrong), code=1)
    assert "spec.template.spec.domain.devices.disks[0]" in refusal and "mypcv" in refusal, refusal


def test_the_other_old_version_has_the_same_fields(kube: Kube) -> None:
    made = with_disk("third", "Halted") | {"apiVersion": "kubevirt.io/v1alpha3"}
    kube.apply(made)
    path = f"/apis/kubevirt.io/v1alpha3/namespaces/{NAMESPACE}/virtualmachines/third"
    again = json.loads(kube.kubectl("get", "--raw", path, namespace=None))
    assert devices(again)[0][0]["name"] == devices(made)[0][0]["name"]
