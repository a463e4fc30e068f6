"""The installation itself, and what it makes of its nodes."""

import os

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import AGENT, CONTROLLER, INSTALLED_IN


def test_garboard_is_installed_with_one_file_and_says_that_it_is(kube: Kube) -> None:
    """The fixture has applied the file and the KubeVirt object, and nothing else."""
    found = kube.get("kubevirt/kubevirt", namespace=INSTALLED_IN)["status"]
    conditions = {each["type"]: each["status"] for each in found["conditions"]}
    assert conditions["Available"] == "True", found
    ready = kube.get(f"deployment/{CONTROLLER}", namespace=INSTALLED_IN)["status"]["readyReplicas"]
    agents = kube.get(f"daemonset/{AGENT}", namespace=INSTALLED_IN)["status"]["numberReady"]
    assert (ready, agents) == (2, 2), f"{ready} controllers and {agents} agents are ready"


def test_nodes_offer_kvm_exactly_where_this_machine_has_it(kube: Kube) -> None:
    """The nodes of the test cluster are this machine."""

    def offered() -> list[str]:
        nodes = kube.items("nodes", namespace=None)
        return [node["status"]["allocatable"].get("devices.kubevirt.io/kvm", "0") for node in nodes]

    if os.path.exists("/dev/kvm"):
        # A kubelet reports one kind of device after the other.
        kube.ask_until("nodes that offer /dev/kvm, which is there", lambda: "0" not in offered())
    else:
        assert set(found := offered()) == {"0"}, f"there is no /dev/kvm, and the nodes offer {found}"
        pytest.skip("this machine has no /dev/kvm: no node offers one")
