"""`garboard cluster uninstall` leaves no trace. The last of these tests: nothing is installed afterwards."""

import re

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, NAMESPACE
from garboard_e2e.cluster.person import SECONDS, Person

from .test_install import MINE

# Of which nothing with the name of Garboard or KubeVirt may be left.
KINDS = (
    "crd",
    "clusterrole",
    "clusterrolebinding",
    "validatingadmissionpolicy",
    "validatingadmissionpolicybinding",
    "priorityclass",
)
MARKS = re.compile(r"kubevirt\.io/|[a-z-]*\.node\.kubevirt\.io/|garboard\.dev/connected-controllers")


def test_nothing_is_removed_while_there_are_machines(person: Person, machine: str) -> None:
    person.cluster.refuses(4, rf"there are machines \(.*{NAMESPACE}/{machine}", "uninstall")


def test_with_machines_everything_is_removed_without_a_trace(kube: Kube, person: Person, machine: str) -> None:
    kube.apply(MINE, namespace=None)
    printed = person.cluster.run("uninstall", "--and-delete-machines", "--timeout", SECONDS)
    # All of a kind go with its definition: those of users have to be removed by their own hand.
    assert "1 instancetypes and preferences that no installation has made are left" in printed, printed
    definitions = kube.kubectl("get", "crd", "-o", "name", namespace=None).split()
    of_sizes = [name for name in definitions if name.endswith(".instancetype.kubevirt.io")]
    assert len(of_sizes) == 4 and kube.get("virtualmachineclusterinstancetype", "mine", namespace=None)["spec"]
    kube.kubectl("delete", *of_sizes, namespace=None)
    names = kube.kubectl("get", ",".join(KINDS), "-o", "name", namespace=None).split()
    left = [name for name in names if re.search("garboard|kubevirt", name)]
    assert not left, f"left: {left}"
    namespace = kube.kubectl("get", "namespace", INSTALLED_IN, "--ignore-not-found", "-o", "name", namespace=None)
    assert not namespace, "the namespace is left"
    for node in kube.items("nodes", namespace=None):
        metadata = node["metadata"]
        marks = [key for kind in ("labels", "annotations") for key in metadata.get(kind, {}) if MARKS.match(key)]
        assert not marks, f"{metadata['name']} is still marked: {marks}"
    person.cluster.prints("not installed here", "uninstall")
    person.cluster.refuses(1, "not installed here", "status")
