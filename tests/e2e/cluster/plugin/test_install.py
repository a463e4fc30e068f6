"""`garboard cluster install`: what it makes, where it refuses, and what it switches."""

from collections.abc import Iterator

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, Object
from garboard_e2e.cluster.person import Before, Person, expect_refusal


def test_without_an_installation_status_and_why_say_so(before: Before) -> None:
    expect_refusal(before.status, 1, "Garboard is not installed here")
    expect_refusal(before.why, 1, "garboard cluster install")


def test_one_command_installs(person: Person, installed: None) -> None:
    person.cluster.prints("nodes +2 of 2 take machines", "status")


def test_who_may_not_install_is_refused(person: Person, installed: None, bob: str) -> None:
    person.cluster.of(bob).refuses(4, "you may not patch .*customresourcedefinitions", "install")


@pytest.fixture
def kubevirt(kube: Kube, installed: None) -> Iterator[None]:
    """A mark of KubeVirt's own installation."""
    deployment = "deployment/virt-operator"
    kube.kubectl("create", "deployment", "virt-operator", "--image=none", "--replicas=0")
    try:
        kube.kubectl("label", deployment, "kubevirt.io=virt-operator")
        yield
    finally:
        kube.kubectl("delete", deployment)


def test_beside_kubevirt_itself_nothing_is_installed(person: Person, kubevirt: None) -> None:
    person.cluster.refuses(4, "KubeVirt itself is installed here", "install")


def devices(person: Person, name: str) -> str:
    """What the containers of its launcher pod ask for."""

    def pod() -> Object | None:
        return next(iter(person.pods_of(name)), None)

    found = person.kube.ask_until(f"a pod of {name}", pod)
    return str([container["resources"] for container in found["spec"]["containers"]])


COMMON = "virtualmachineclusterinstancetypes,virtualmachineclusterpreferences"
MINE: Object = {
    "apiVersion": "instancetype.kubevirt.io/v1beta1",
    "kind": "VirtualMachineClusterInstancetype",
    "metadata": {"name": "mine"},
    "spec": {"cpu": {"guest": 1}, "memory": {"guest": "64Mi"}},
}


@pytest.fixture
def mine(kube: Kube, installed: None) -> Iterator[str]:
    """An instancetype that no installation has made."""
    kube.apply(MINE, namespace=None)
    yield "virtualmachineclusterinstancetype.instancetype.kubevirt.io/mine"
    kube.kubectl("delete", "virtualmachineclusterinstancetype", "mine", namespace=None)


def sizes(kube: Kube) -> list[str]:
    return kube.kubectl("get", COMMON, "-o", "name", namespace=None).split()


def test_common_instancetypes_come_and_go_with_an_option_and_others_stay(kube: Kube, person: Person, mine: str) -> None:
    assert sizes(kube) == [mine]
    person.install("--common-instancetypes")
    found = kube.get("virtualmachineclusterinstancetype", "u1.small", namespace=None)
    labels = found["metadata"]["labels"]
    assert labels["app.kubernetes.io/managed-by"] == "garboard"
    # A copy that a user makes of one, with all its labels.
    kube.apply(MINE | {"metadata": {"name": "mine", "labels": labels}}, namespace=None)
    all_of_them = sizes(kube)
    assert len(all_of_them) > 100 and mine in all_of_them, all_of_them
    person.install("--common-instancetypes=false")
    assert sizes(kube) == [mine]


# A third installation, of twenty seconds. What stays and what goes is a unit test, too (cli/plugin/src/operate).
@pytest.mark.long
def test_an_upgrade_keeps_the_choice_and_removes_what_a_later_version_has_not(
    kube: Kube, person: Person, mine: str
) -> None:
    person.install("--common-instancetypes")
    all_of_them = sizes(kube)
    labels = kube.get("virtualmachineclusterinstancetype", "u1.small", namespace=None)["metadata"]["labels"]
    gone = {"name": "u1.gone", "labels": labels | {"garboard.dev/made-as": "u1.gone"}}
    kube.apply(MINE | {"metadata": gone}, namespace=None)
    person.install()
    assert sizes(kube) == all_of_them
    person.install("--common-instancetypes=false")
    assert sizes(kube) == [mine]


# That they are made and removed is tried above by the option. Whether option or object counts is a unit test, too
# (cli/plugin/src/operate/catalogue.rs).
@pytest.mark.long
def test_common_instancetypes_are_installed_as_the_kubevirt_object_says(kube: Kube, person: Person, mine: str) -> None:
    def says(enabled: bool) -> None:
        metadata = {"name": "kubevirt", "namespace": INSTALLED_IN}
        spec = {"configuration": {"commonInstancetypesDeployment": {"enabled": enabled}}}
        kube.apply(
            {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": metadata, "spec": spec},
            namespace=INSTALLED_IN,
        )

    says(True)
    try:
        refused = "--common-instancetypes does not count here"
        person.cluster.refuses(4, refused, "install", "--common-instancetypes=false")
        person.install()
        assert len(sizes(kube)) > 100
        says(False)
        person.install()
        assert sizes(kube) == [mine]
    finally:
        kube.kubectl("delete", "kubevirt", "kubevirt", namespace=INSTALLED_IN)


KVM = "devices.kubevirt.io/kvm"


@pytest.fixture
def emulation(person: Person, installed: None) -> Iterator[None]:
    """The only place where the whole cluster is switched: guests without an annotation run under TCG or under KVM."""
    person.install("--emulation")
    try:
        yield
    finally:
        person.install("--emulation=false")
        assert "with emulation" not in person.cluster.run("status"), "emulation is still on"


def test_emulation_is_a_switch_of_the_cluster(kube: Kube, person: Person, emulation: None, image: None) -> None:
    # Again: an upgrade; what was chosen stays.
    person.install()
    person.cluster.prints("with emulation", "status")
    kube.apply(person.example("switched", "Always"))
    person.await_phase("switched")
    assert KVM not in devices(person, "switched"), "a guest under TCG asks for /dev/kvm"
    conditions = person.field("vmi/switched", "status", "conditions")
    reasons = [each["reason"] for each in conditions if each["type"] == "SoftwareEmulation"]
    assert reasons == ["NoKVM"], "it does not report that it is slow"
    person.await_boot("switched")
    person.delete_whole("switched")


def test_without_emulation_a_guest_asks_for_kvm(kube: Kube, person: Person, installed: None, image: None) -> None:
    kube.apply(person.example("unswitched", "Always"))
    assert KVM in devices(person, "unswitched"), "a guest under KVM does not ask for /dev/kvm"
    person.delete_whole("unswitched")
