"""A backup of a machine without its status, as a backup tool makes it: restored, it is the machine that it was."""

import json

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import Object
from garboard_e2e.cluster.objects import machine

KEPT = "garboard.dev/stored-machine"
# No machine has it by its names, so only the backup can have brought it.
MAC = "02:00:00:c0:ff:ee"


def kept(kube: Kube, name: str) -> Object | None:
    """What the annotation of a machine has."""
    text = kube.present("vm", name)["metadata"].get("annotations", {}).get(KEPT)
    return json.loads(text) if text else None


def saved(vm: Object, name: str) -> Object:
    """The object without what a restore leaves out, under a name."""
    metadata = {"name": name, "namespace": vm["metadata"]["namespace"], "annotations": vm["metadata"]["annotations"]}
    return {"apiVersion": vm["apiVersion"], "kind": vm["kind"], "metadata": metadata, "spec": vm["spec"]}


def firmware(kube: Kube, name: str) -> Object:
    found: Object = kube.present("vm", name)["spec"]["template"]["spec"]["domain"]["firmware"]
    return {key: found[key] for key in ("uuid", "serial")}


def mac(kube: Kube, name: str) -> object:
    """As QEMU has it, by its supervisor's report."""
    return kube.wait("its interface", lambda: kube.status_of("vmi", name).get("interfaces"))[0]["mac"]


def test_a_restored_machine_is_the_one_that_it_was_and_a_copy_is_another(kube: Kube) -> None:
    volume = {"name": "root", "emptyDisk": {"capacity": "16Mi"}}
    kube.start(machine("kept", volumes=[volume]))
    kube.has_shell("kept")
    kube.patch("vm/kept", {"spec": {"runStrategy": "Halted"}})
    kube.is_gone("kept")
    first = kube.wait("the annotation", lambda: kept(kube, "kept"))
    stored = kube.status_of("vm", "kept")["storedMachine"]
    assert first["machine"] == stored, "the annotation has something else than the status"
    names = firmware(kube, "kept")
    assert first["firmware"] == names

    backup = kube.present("vm", "kept")
    first["machine"]["macs"]["default"] = MAC
    backup["metadata"]["annotations"][KEPT] = json.dumps(first)
    backup["spec"]["runStrategy"] = "Always"
    kube.remove("kept")
    kube.start(saved(backup, "kept"), saved(backup, "copy"))
    assert (mac(kube, "kept"), firmware(kube, "kept")) == (MAC, names)
    reported = kube.reported("kept", "storedMachine")
    assert isinstance(reported, dict)
    same = ("machineType", "macs", "diskSerials", "pci", "cpu")
    assert {key: reported[key] for key in same} == {key: first["machine"][key] for key in same}
    assert mac(kube, "copy") != MAC
    assert firmware(kube, "copy")["uuid"] != names["uuid"]
    assert kept(kube, "copy") is None


def test_a_kept_machine_with_what_no_manifest_may_have_is_refused(kube: Kube) -> None:
    wrong = machine("wrong", "Halted")
    stored = {"version": 2, "machineType": "q35", "cpu": "max", "pci": {"ports": [], "devices": {}}, "diskSerials": {}}
    value = {
        "namespace": wrong["metadata"]["namespace"],
        "name": "wrong",
        "machine": stored | {"macs": {"default": "x"}},
    }
    wrong["metadata"]["annotations"] = {KEPT: json.dumps(value)}
    output = kube.kubectl("apply", "-f", "-", text=json.dumps(wrong), code=1)
    assert f"metadata.annotations[{KEPT}].machine.macs[default]" in output, output
    kube.apply(machine("wrong", "Halted"))
    # Also alone, in an object that is there.
    output = kube.kubectl("annotate", "vm/wrong", f"{KEPT}={json.dumps(value)}", code=1)
    assert "is no MAC address" in output, output
