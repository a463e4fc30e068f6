"""Nodes hang, are cut off, or die: what runs there may run nowhere else until it is known to have ended."""

import pytest

from garboard_e2e.cluster.faults import broken, cut_off, fault, frozen, node_is
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NODE_1, NODE_2, Object
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.storm import DISK, ROCK, WAVE, Storm, ids
from garboard_e2e.outcome import Failure

pytestmark = pytest.mark.long

# A pod that cannot be asked for this long is to go, and not after five minutes as usual.
IMPATIENT = [
    {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    for taint in ("unreachable", "not-ready")
]
# The launcher's error for an image that another QEMU has.
LOCKED = "is in use by another running VM"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"


def prefers(node: str) -> Object:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    preferred = [{"weight": 100, "preference": term}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def is_lost(kube: Kube, node: str) -> None:
    """Waits for it."""
    kube.ask_until(f"{node} lost", lambda: node_is(kube, node, "Unknown"))


def is_to_go(kube: Kube, name: str) -> None:
    """Waits for the order to its pod."""
    kube.wait("the order to go", lambda: "deletionTimestamp" in kube.pod(name)["metadata"])


def is_admitted(kube: Kube, vm: Object) -> bool:
    try:
        kube.apply(vm)
    except Failure as failure:
        if "failed calling webhook" not in str(failure):
            raise
        return False
    return True


def a_witness_starts(kube: Kube) -> None:
    """On the other node, and goes again: time for a controller that has stale objects. The API server keeps its
    connection to a webhook on a node that hangs for up to 45 seconds, and refuses what it cannot ask about
    (docs/failures.md)."""
    vm = machine("witness", node=NODE_1)
    kube.ask_until("the webhooks", lambda: is_admitted(kube, vm))
    kube.runs("witness")
    kube.remove("witness")


def test_a_claim_has_one_writer_when_a_pod_is_deleted_by_force_while_its_node_is_cut_off(
    kube: Kube, storm: Storm
) -> None:
    """An operator reports a pod as gone, and is wrong. Its QEMU has the claim, and no other gets it."""
    for _ in storm.rarely():
        uid, old = kube.runs(DISK), kube.qemus(DISK)
        node = old[0]["node"]
        with cut_off(kube, node), fault(kube, "a wrong operator", forced=[DISK]):
            is_lost(kube, node)
            storm.delete_pod_by_force(DISK)
            kube.says_of_itself("vmi", DISK, "garboard.dev/Ended", LOCKED)
            assert kube.uid(DISK) != uid, "the old instance was refused its own disk"
            assert ids(kube.qemus(DISK)) == ids(old), "the old QEMU is gone, or there is another one"
        kube.runs(DISK, not_this=uid)


def test_a_node_that_hangs_and_goes_on_keeps_its_machines(kube: Kube, storm: Storm) -> None:
    """Until it is taken for lost, but not until its pods are evicted."""
    for _ in storm.rarely():
        with storm.undisturbed(ROCK, WAVE), frozen(kube, NODE_2):
            is_lost(kube, NODE_2)
            kube.becomes("vmi", WAVE, "Ready", "False")


@pytest.mark.parametrize("verb, back", [("freeze", "thaw"), ("partition", "heal")], ids=["hangs", "is_cut_off"])
def test_nothing_runs_twice_when_a_node_is_evicted_while_it(kube: Kube, storm: Storm, verb: str, back: str) -> None:
    """Its pods are evicted, and its kubelet does not learn of it: their machines stay, until the node is back."""
    for number in storm.rarely():
        name = f"{verb}{number}"
        kube.apply(machine(name, tolerations=IMPATIENT, affinity=prefers(NODE_2)))
        uid = kube.runs(name)
        before = kube.qemus(name)
        assert before[0]["node"] == NODE_2, f"{name} is on {before[0]['node']}"
        with broken(kube, NODE_2, verb, back):
            is_to_go(kube, name)
            a_witness_starts(kube)
            is_alone = kube.uid(name) == uid and kube.qemus(name) == before
            assert is_alone, "it was started elsewhere although it runs"
        kube.runs(name, not_this=uid)
        kube.remove(name)


@pytest.mark.parametrize("by_taint", [True, False], ids=["by_a_taint", "by_deleting_it"])
def test_machines_of_a_node_that_died_go_elsewhere_when_an_operator_says_so(
    kube: Kube, storm: Storm, by_taint: bool
) -> None:
    """And not before."""
    for number in storm.rarely():
        name = f"dead{number}"
        kube.apply(machine(name, tolerations=IMPATIENT, affinity=prefers(NODE_2)))
        uid = kube.runs(name)
        with fault(kube, f"{NODE_2} killed"):
            kube.cluster("kill", NODE_2)
            is_to_go(kube, name)
            kube.becomes("vmi", name, "Ready", "False")
            a_witness_starts(kube)
            is_nowhere = kube.uid(name) == uid and not kube.qemus(name)
            assert is_nowhere, "it was started elsewhere before an operator reported its node as gone"
            kube.kubectl(*(["taint", "node", NODE_2, OUT_OF_SERVICE] if by_taint else ["delete", "node", NODE_2]))
            kube.runs(name, not_this=uid)
            assert kube.qemus(name)[0]["node"] == NODE_1, "it runs on the dead node"
            comes_back(kube, by_taint)
        kube.runs(WAVE)
        kube.remove(name)


def comes_back(kube: Kube, by_taint: bool) -> None:
    """The node, with its agent."""
    kube.cluster("start", NODE_2)
    if by_taint:
        kube.kubectl("taint", "node", NODE_2, f"{OUT_OF_SERVICE}-")
    kube.ask_until(f"{NODE_2} Ready", lambda: node_is(kube, NODE_2, "True"))
    kube.ask_until(f"the agent of {NODE_2}", kube.offers_devices)
