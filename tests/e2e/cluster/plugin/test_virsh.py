"""`virsh` in a launcher pod, and a machine of the cluster as a domain."""

import json
import xml.etree.ElementTree as ElementTree

from garboard_e2e.cluster.names import NAMESPACE, SIDECAR
from garboard_e2e.cluster.person import Person


def virsh(person: Person, machine: str, *arguments: str, code: int = 0) -> str:
    """What it prints in the pod of the machine's guest; others of its pods may be leaving."""
    uid = person.field(f"vmi/{machine}", "metadata", "uid")
    labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in person.pods_of(machine)}
    (pod,) = [name for name, own in labels.items() if own["kubevirt.io/created-by"] == uid]
    return person.kube.kubectl("exec", pod, "-c", SIDECAR, "--", "virsh", *arguments, code=code)


def test_virsh_reads_the_machine_of_its_pod(person: Person, machine: str) -> None:
    name = f"{NAMESPACE}_{machine}"
    assert virsh(person, machine, "list").splitlines()[2].split() == ["1", name, "running"]
    assert virsh(person, machine, "domstate", name) == "running\n\n"
    assert "vda" in virsh(person, machine, "domblklist", name)
    domain = ElementTree.fromstring(virsh(person, machine, "dumpxml", name))
    macs = [mac.get("address") for mac in domain.iterfind("devices/interface/mac")]
    reported = person.field(f"vmi/{machine}", "status", "interfaces")
    assert macs == [interface["mac"] for interface in reported]
    answer = json.loads(virsh(person, machine, "qemu-monitor-command", name, '{"execute":"query-name"}'))
    assert answer["return"]["name"] == name


def test_virsh_changes_nothing(person: Person, machine: str) -> None:
    name = f"{NAMESPACE}_{machine}"
    refused = json.loads(virsh(person, machine, "qemu-monitor-command", name, '{"execute":"stop"}'))
    assert "error" in refused, refused
    refusal = virsh(person, machine, "destroy", name, code=1)
    assert "kubectl garboard stop" in refusal, refusal


def test_the_plugins_domain_is_that_of_the_pod(person: Person, machine: str) -> None:
    """Both are made of the plan that the launcher keeps."""
    inside = virsh(person, machine, "dumpxml", f"{NAMESPACE}_{machine}", "--inactive")
    assert person.plugin.run("explain", "--format", "domain-xml", machine).strip() == inside.strip()
