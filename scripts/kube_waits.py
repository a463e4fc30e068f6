"""What a machine waits for before it starts, and what it is called meanwhile (inventory of KubeVirt, printableStatus)."""

import json

from kube import Failure, claim, machine
from kube_volumes import places

# As much of the importer's kind as is looked at; the importer itself is another project's, and this file plays it.
DATA_VOLUMES = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "datavolumes.cdi.kubevirt.io"},
    "spec": {"group": "cdi.kubevirt.io", "scope": "Namespaced", "names": {"kind": "DataVolume", "plural": "datavolumes"},
             "versions": [{"name": "v1beta1", "served": True, "storage": True, "subresources": {"status": {}},
                           "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}


def nodes_have_what_is_asked(kube):
    """A CPU that KVM of no node can give: the machine waits, and is told so. Under TCG every node gives what QEMU knows."""
    wanted = {"scarce": "Snowridge", "common": "qemu64"}
    machines = {name: machine(name) for name in wanted}
    for name, model in wanted.items():
        machines[name]["spec"]["template"]["spec"]["domain"]["cpu"]["model"] = model
    del machines["scarce"]["spec"]["template"]["metadata"]["annotations"]
    kube.apply(*machines.values())
    kube.wait("ErrorUnschedulable", lambda: kube.printed("scarce") == "ErrorUnschedulable")
    kube.runs("common")
    of_type, of_model = "machine-type.node.kubevirt.io/q35", "cpu-model.node.kubevirt.io/"
    for name, asks in (("scarce", True), ("common", False)):
        selector = kube.pod(name)["spec"]["nodeSelector"]
        if of_type not in selector or (of_model + wanted[name] in selector) != asks:
            raise Failure(f"the pod of {name} asks for {selector}")
    kube.remove(*wanted)


def claims_and_images_come(kube):
    """Each word while something is missing, and the start when it is there."""
    kept = {"name": "kept", "persistentVolumeClaim": {"claimName": "late"}}
    away = {"name": "away", "containerDisk": {"image": "localhost:1/nothing:1"}}
    kube.apply(machine("claimless", volumes=[kept]), machine("imageless", volumes=[away]))
    kube.wait("ErrorPvcNotFound", lambda: kube.printed("claimless") == "ErrorPvcNotFound")
    kube.wait("an error of the image", lambda: kube.printed("imageless") in ("ErrImagePull", "ImagePullBackOff"))
    kube.wait("a word about the image", lambda: "localhost:1/nothing:1" in kube.condition("vmi", "imageless", "Synchronized").get("message", ""))
    with places() as (directory, _):
        kube.apply(*claim("late", path=str(directory)))
        try:
            kube.runs("claimless")
        finally:
            kube.remove("claimless", "imageless")
            remove_claim(kube, "late")


def remove_claim(kube, name):
    kube.kubectl("delete", "pvc", name)
    kube.kubectl("delete", "pv", name)


def data_volumes_are_filled(kube):
    """Made with the machine, waited for, and gone with it."""
    volume = {"name": "root", "dataVolume": {"name": "brought"}}
    vm = machine("bringer", volumes=[volume])
    vm["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": "brought"}, "spec": {
        "source": {"http": {"url": "https://example.org/disk.img"}}, "storage": {"resources": {"requests": {"storage": "64Mi"}}}}}]
    kube.apply(vm)
    try:
        kube.wait("a word about the importer", lambda: "no Containerized Data Importer" in kube.condition("vm", "bringer", "Failure").get("message", ""))
        kube.apply(DATA_VOLUMES, namespace=None)
        made = json.loads(kube.ask_until("a DataVolume", lambda: kube.kubectl(
            "get", "datavolume", "brought", "--ignore-not-found", "-o", "json")))
        if (made["metadata"]["ownerReferences"][0]["uid"], list(made["spec"]["source"])) != (kube.uid("bringer", "vm"), ["http"]):
            raise Failure(f"the DataVolume is {made}")
        is_filled(kube, "ImportInProgress")
        kube.wait("Provisioning", lambda: kube.printed("bringer") == "Provisioning" and "ImportInProgress"
                  in kube.condition("vm", "bringer", "DataVolumesReady").get("message", ""))
        is_filled(kube, "Failed")
        kube.wait("DataVolumeError", lambda: kube.printed("bringer") == "DataVolumeError")
        with places() as (directory, _):
            kube.apply(*claim("brought", path=str(directory)))
            is_filled(kube, "Succeeded")
            kube.runs("bringer")
            kube.wait("the claim in volumeStatus", lambda: ["brought"] == [
                each.get("persistentVolumeClaimInfo", {}).get("claimName") for each in kube.there("vmi", "bringer")["status"]["volumeStatus"]])
            kube.remove("bringer")
            kube.kubectl("wait", "--for=delete", "datavolume/brought", "--timeout=180s")
            remove_claim(kube, "brought")
    finally:
        kube.remove("bringer")
        kube.kubectl("delete", "crd", "datavolumes.cdi.kubevirt.io", "--ignore-not-found", namespace=None)


def is_filled(kube, phase):
    """What the importer says."""
    kube.kubectl("patch", "datavolume", "brought", "--subresource=status", "--type=merge", "-p", json.dumps({"status": {"phase": phase}}))


SCENES = [
    ("waits: for nodes that offer the CPU", nodes_have_what_is_asked),
    ("waits: for claims and images", claims_and_images_come),
    ("waits: for DataVolumes", data_volumes_are_filled),
]
