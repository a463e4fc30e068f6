"""`virsh` in a launcher pod, and a machine of the cluster as a domain."""

import json
import xml.etree.ElementTree as ElementTree

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE, SIDECAR
from garboard_e2e.cluster.person import Person


def virsh(kube: Kube, machine: str, *arguments: str) -> str:
    return kube.kubectl("exec", kube.pod_name(machine), "-c", SIDECAR, "--", "virsh", *arguments)


def test_virsh_reads_the_machine_of_its_pod(kube: Kube, person: Person, machine: str) -> None:
    name = f"{NAMESPACE}_{machine}"
    assert virsh(kube, machine, "list").splitlines()[2].split() == ["1", name, "running"]
    assert virsh(kube, machine, "domstate", name) == "running\n\n"
    assert "vda" in virsh(kube, machine, "domblklist", name)
    domain = ElementTree.fromstring(virsh(kube, machine, "dumpxml", name))
    macs = [mac.get("address") for mac in domain.iterfind("devices/interface/mac")]
    reported = person.field(f"vmi/{machine}", "status", "interfaces")
    assert macs == [interface["mac"] for interface in reported]
    answer = json.loads(virsh(kube, machine, "qemu-monitor-command", name, '{"execute":"query-name"}'))
    assert answer["return"]["name"] == name


def test_virsh_changes_nothing(kube: Kube, machine: str) -> None:
    name = f"{NAMESPACE}_{machine}"
    refused = json.loads(virsh(kube, machine, "qemu-monitor-command", name, '{"execute":"stop"}'))
    assert "error" in refused, refused
    pod = kube.pod_name(machine)
    refusal = kube.kubectl("exec", pod, "-c", SIDECAR, "--", "virsh", "destroy", name, code=1)
    assert "kubectl garboard stop" in refusal, refusal


def test_the_plugins_domain_is_that_of_the_pod(kube: Kube, person: Person, machine: str) -> None:
    """The planner in the plugin has the input of the one in the pod, so there is one domain."""
    inside = virsh(kube, machine, "dumpxml", f"{NAMESPACE}_{machine}", "--inactive")
    assert person.plugin.run("explain", "--format", "domain-xml", machine).strip() == inside.strip()
