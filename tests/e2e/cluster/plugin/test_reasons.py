"""`why`: what keeps a machine from running, how a run ended badly, what does not end, and what is broken around it."""

import dataclasses
import json
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, NAMESPACE, NODE_1, NODE_2, Object
from garboard_e2e.cluster.objects import TCG
from garboard_e2e.cluster.person import Person
from garboard_e2e.cluster.replica_sets import replica_set


@dataclasses.dataclass(frozen=True)
class Reason:
    """A change of a sound machine, and its diagnosis then."""

    verdict: str
    pattern: str
    change: Callable[[Object], object] = lambda spec: None
    strategy: str = "Always"


def of_domain(**fields: Object) -> Callable[[Object], None]:
    def change(spec: Object) -> None:
        for field, values in fields.items():
            spec["domain"][field] |= values

    return change


# At a registry that refuses connections at once: a name that no server knows takes a node most of a minute.
NO_IMAGE = "localhost:1/none:1"


def of_another_image(spec: Object) -> None:
    spec["volumes"][0]["containerDisk"]["image"] = NO_IMAGE
    spec["domain"]["firmware"]["kernelBoot"]["container"]["image"] = NO_IMAGE


def of_a_claim(spec: Object) -> None:
    spec["volumes"][0] = {"name": "root", "persistentVolumeClaim": {"claimName": "data"}}


def of_a_seed(spec: Object) -> None:
    spec["domain"]["devices"]["disks"].append({"name": "seed", "disk": {"bus": "virtio"}})
    spec["volumes"].append({"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "nowhere"}}})


def of_another_path(spec: Object) -> None:
    spec["volumes"][0]["containerDisk"]["path"] = "/disk/none.img"


# Why a machine does not run, by docs/why.md; no guest is needed for it.
REASONS = {
    "halted": Reason("halted", "it is not to run", strategy="Halted"),
    "large": Reason("noRoom", "MiB of memory", of_domain(memory={"guest": "9000Gi"})),
    "picky": Reason("noNodeMatches", "nodeSelector: disk=ssd", lambda spec: spec.update(nodeSelector={"disk": "ssd"})),
    "imageless": Reason("imagePull", f"{NO_IMAGE} cannot be had", of_another_image),
    "modelless": Reason("fieldRefused", "Nonesuch", of_domain(cpu={"model": "Nonesuch"})),
    "paged": Reason("noRoom", "hugepages-2Mi left", of_domain(memory={"hugepages": {"pageSize": "2Mi"}})),
    "accountless": Reason(
        "podRefused", 'serviceaccount "nobody" not found', lambda spec: spec.update(serviceAccountName="nobody")
    ),
    "classless": Reason(
        "podRefused", "no PriorityClass with name gold", lambda spec: spec.update(priorityClassName="gold")
    ),
    "seedless": Reason("volumeMount", "the Secret nowhere, of which its volume .* is made, is not there", of_a_seed),
}

# The same of guests that are started, or nearly.
REASONS_OF_GUESTS = {
    "pathless": Reason("backOff", r"there is no \S+/disk/none\.img", of_another_path),
    "held": Reason("paused", "it was started paused", lambda spec: spec.update(startStrategy="Paused")),
}


UNSEEN = "unseen"


@pytest.fixture(scope="module", autouse=True)
def unseen(kube: Kube, person: Person, installed: None) -> Iterator[None]:
    """A machine whose scheduler does not run. A scheduler has half a minute for a pod, in which other tests run."""
    person.apply(UNSEEN, "Always", lambda spec: spec.update(schedulerName="night-shift"))
    yield
    kube.kubectl("delete", "vm", UNSEEN, "--ignore-not-found", "--wait=false")


@pytest.fixture
def goes(kube: Kube, installed: None) -> Iterator[None]:
    """Every machine but the one that runs and the unseen one is deleted afterwards; their ends are not awaited."""
    yield
    names = [each["metadata"]["name"] for each in kube.items("vm")]
    if others := [name for name in names if name not in ("hello", UNSEEN)]:
        kube.kubectl("delete", "vm", *others, "--wait=false")


@pytest.mark.parametrize("name", REASONS)
def test_why_says_why_a_machine_does_not_run(person: Person, goes: None, name: str) -> None:
    reason = REASONS[name]
    person.apply(name, reason.strategy, reason.change)
    person.why(name, reason.verdict, reason.pattern)


@pytest.fixture
def picky_set(kube: Kube, installed: None) -> Iterator[str]:
    """A set whose instance no node takes."""
    made = replica_set("picky-set", 1)
    made["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
    kube.apply(made)
    yield "vmirs/picky-set"
    kube.kubectl("delete", "vmirs/picky-set", "--wait=false")


def test_why_of_a_set_names_the_instance_that_is_not_well(person: Person, picky_set: str) -> None:
    # No situation is recorded: those in tests/situations are of machines.
    person.await_verdict(picky_set, "noNodeMatches")
    begin = f"^{NAMESPACE}/{picky_set}: 0 of 1 ready.*"
    person.plugin.prints(begin + r"\nwrong +its instance picky-set\w+: ", "why", picky_set)


@pytest.mark.parametrize("name", REASONS_OF_GUESTS)
def test_why_says_why_a_guest_does_not_run(person: Person, goes: None, image: None, name: str) -> None:
    reason = REASONS_OF_GUESTS[name]
    person.apply(name, reason.strategy, reason.change)
    person.why(name, reason.verdict, reason.pattern)


def test_why_names_an_instancetype_that_is_missing(kube: Kube, person: Person, goes: None) -> None:
    machine = person.example("sizeless", "Always")
    domain = machine["spec"]["template"]["spec"]["domain"]
    del domain["cpu"], domain["memory"]
    machine["spec"]["instancetype"] = {"name": "gone", "kind": "VirtualMachineInstancetype"}
    kube.apply(machine)
    person.why("sizeless", "instancetype", "VirtualMachineInstancetype gone does not exist")


@pytest.fixture
def presets(kube: Kube, goes: None) -> Iterator[Object]:
    """The labels by which two presets select a machine that contradict each other."""
    labels = {"size": "disputed"}
    for name, cores in {"big": 4, "small": 1}.items():
        spec = {"selector": {"matchLabels": labels}, "domain": {"devices": {}, "cpu": {"cores": cores}}}
        head = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstancePreset", "metadata": {"name": name}}
        kube.apply(head | {"spec": spec})
    yield labels
    kube.kubectl("delete", "vmipreset", "big", "small")


def test_why_names_presets_that_contradict_each_other(kube: Kube, person: Person, presets: Object) -> None:
    machine = person.example("disputed", "Manual")
    template = machine["spec"]["template"]
    template["metadata"] = {"annotations": dict(TCG), "labels": presets}
    instance = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "spec": template["spec"]}
    instance["metadata"] = template["metadata"] | {"name": "probe"}

    def is_admitted() -> bool:
        return bool(kube.tried("create", "--dry-run=server", "-f", "-", text=json.dumps(instance)))

    # Each replica of the controller learns of presets by its own watch.
    kube.ask_until("replicas that know both", lambda: not any(is_admitted() for _ in range(8)))
    machine["spec"]["runStrategy"] = "Always"
    kube.apply(machine)
    pattern = r"the presets big and small both select it, and differ in spec\.domain\.cpu"
    person.why("disputed", "presetConflict", pattern)


@pytest.fixture
def cordoned(kube: Kube, goes: None) -> Iterator[None]:
    """No node takes a new pod."""
    kube.kubectl("cordon", NODE_1, NODE_2, namespace=None)
    yield
    kube.kubectl("uncordon", NODE_1, NODE_2, namespace=None)


def test_why_names_nodes_that_are_cordoned(person: Person, cordoned: None) -> None:
    person.apply("waiting", "Always")
    person.why("waiting", "unschedulable", "because nodes are cordoned")


def test_a_halted_machine_has_no_console(person: Person, goes: None) -> None:
    person.apply("idle", "Halted")
    person.await_field("vm/idle", "Stopped", "status", "printableStatus")
    person.plugin.refuses(4, r"does not run \(Stopped\)", "console", "idle")


@pytest.fixture
def no_claim(kube: Kube, goes: None) -> Iterator[None]:
    """None that a test has made is left."""
    yield
    kube.kubectl("delete", "pvc", "data", "--ignore-not-found", "--wait=false")


def test_why_names_a_claim_that_is_missing_and_one_without_a_volume(kube: Kube, person: Person, no_claim: None) -> None:
    person.apply("diskless", "Always", of_a_claim)
    person.why("diskless", "claimMissing", "data")
    size = {"requests": {"storage": "64Mi"}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    kube.apply(claim | {"spec": {"accessModes": ["ReadWriteOnce"], "resources": size}})
    person.why("diskless", "claimUnbound", "its claim data has no volume")


@pytest.fixture
def small_quota(kube: Kube, goes: None) -> Iterator[None]:
    kube.kubectl("create", "quota", "small", "--hard=requests.memory=1Mi")
    yield
    kube.kubectl("delete", "quota", "small")


def test_why_names_a_quota_that_is_exceeded(person: Person, small_quota: None) -> None:
    person.apply("costly", "Always")
    person.why("costly", "quotaExceeded", "exceeded quota: small")


def test_why_names_the_signal_that_ended_qemu_also_when_the_instance_is_gone(
    kube: Kube, person: Person, goes: None, image: None
) -> None:
    # Manual: an instance that is deleted is not made again.
    person.apply("killed", "Manual")
    person.plugin.run("start", "killed")
    person.await_phase("killed")
    pattern = f"^/usr/bin/qemu-system-x86_64 .*guest={NAMESPACE}_killed"
    kube.inside(person.node_of("killed"), "pkill", "-KILL", "-f", pattern)
    person.why("killed", "qemuKilled", "signal 9")
    kube.kubectl("delete", "vmi/killed")
    kube.ask_until("the end of the instance", lambda: not person.field("vmi/killed", "metadata", "uid"))
    person.why("killed", "qemuKilled", "signal 9")


def test_why_says_that_a_machine_fails_to_start_again_and_again(person: Person, goes: None) -> None:
    def without_kernel(spec: Object) -> None:
        spec["domain"]["firmware"]["kernelBoot"]["container"]["kernelPath"] = "/boot/none"

    person.apply("crashing", "Always", without_kernel)
    person.why("crashing", "backOff", "failed to start")


@pytest.fixture
def kept(kube: Kube, person: Person, goes: None) -> Iterator[str]:
    """A machine that a finalizer keeps which is not Garboard's."""
    person.apply("kept", "Halted")
    kube.patch("vm/kept", {"metadata": {"finalizers": ["example.com/keep"]}})
    yield "kept"
    kube.patch("vm/kept", {"metadata": {"finalizers": None}})


def test_why_names_the_finalizer_that_keeps_a_machine(kube: Kube, person: Person, kept: str) -> None:
    kube.kubectl("delete", f"vm/{kept}", "--wait=false")
    person.why(kept, "deletionStuck", "example.com/keep")


@pytest.fixture
def without_controllers(kube: Kube, person: Person, goes: None, image: None) -> Iterator[str]:
    """A machine that began to run before the controllers were taken away; they come back."""
    person.apply("ignored", "Always")
    person.await_phase("ignored")
    scale = ["scale", "deployment/garboard-controller"]
    try:
        kube.kubectl(*scale, "--replicas=0", namespace=INSTALLED_IN)
        # Not one that is just leaving either: it would make another instance.
        kube.ask_until("the end of the controllers", lambda: not kube.controllers())
        yield "ignored"
    finally:
        kube.kubectl(*scale, "--replicas=2", namespace=INSTALLED_IN)
        kube.ask_until("the controller again", lambda: person.cluster.call("status").returncode == 0)


def test_why_and_status_say_that_no_controller_works(kube: Kube, person: Person, without_controllers: str) -> None:
    person.cluster.refuses(1, "scaled to nothing", "status")
    # Nothing new is admitted now; what is there may go, and no controller makes another instance.
    kube.kubectl("delete", f"vmi/{without_controllers}", "--wait=false")
    kube.patch(f"vmi/{without_controllers}", {"metadata": {"finalizers": None}})
    person.why(without_controllers, "controllerDown", "no controller works")


def test_why_says_that_no_scheduler_has_looked_at_a_pod(person: Person) -> None:
    person.why(UNSEEN, "unschedulable", "no scheduler has looked at its pod")


@pytest.fixture
def silent_node(kube: Kube, person: Person, machine: str) -> Iterator[str]:
    """The node of the machine that runs, whose kubelet hangs."""
    node = person.node_of(machine)
    kube.cluster("freeze", f"{node}/kubelet")
    try:
        yield node
    finally:
        kube.cluster("thaw", f"{node}/kubelet")
        person.await_verdict(machine, "running")


def test_why_and_status_name_a_node_that_does_not_answer(person: Person, silent_node: str, machine: str) -> None:
    person.why(machine, "nodeNotReady", f"its node {silent_node} does not answer")
    person.cluster.refuses(1, f"{silent_node} is not ready", "status")
