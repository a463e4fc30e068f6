"""VirtualMachinePools: scaled, replaced, updated, healed, adopted, released, paused and refused."""

import contextlib
import functools
import json
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.cluster import importer, volumes
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, NAMESPACE, Object
from garboard_e2e.cluster.objects import claim, machine
from garboard_e2e.cluster.pools import GROUP, VERSION, Pool, guest, newest_go, pool

Make = Callable[..., Pool]
COLUMNS = ["NAME", "DESIRED", "CURRENT", "READY", "AGE"]
REVISION = "kubevirt.io/vm-pool-revision-name"
CONTROLLER = f"--as=system:serviceaccount:{INSTALLED_IN}:garboard-controller"


@pytest.fixture
def make(kube: Kube) -> Iterator[Make]:
    """Applies pools, which go before their machines are removed: they would make others."""
    with contextlib.ExitStack() as made:

        def apply(name: str, replicas: int | None, strategy: str = "Halted", **more: object) -> Pool:
            kube.apply(pool(name, replicas, strategy, **more))
            found = Pool(kube, name)
            made.callback(found.delete)
            return found

        yield apply


def test_a_pool_is_scaled_by_kubectl_and_shows_how_many_there_are(kube: Kube, make: Make) -> None:
    machines = make("scaled", None, "Always", scaleInStrategy=newest_go())
    first = machines.comes_to(1, ready=1)
    assert list(first) == ["scaled-0"], f"named {first}"
    machines.scale(3)
    three = machines.comes_to(3, ready=3)
    assert sorted(three) == ["scaled-0", "scaled-1", "scaled-2"], f"named {three}"
    assert first.items() <= three.items(), "a scale to more replaced what was there"
    head, row = (line.split() for line in kube.kubectl("get", "vmpool/scaled").splitlines())
    assert (head, row[:4]) == (COLUMNS, ["scaled", "3", "3", "3"]), f"kubectl shows {head} {row}"
    scale = machines.read_scale()
    assert (scale["spec"], scale["status"]) == ({"replicas": 3}, {"replicas": 3, "selector": "app=scaled"})
    (record,) = machines.records()
    assert kube.present("vm", "scaled-2")["metadata"]["labels"][REVISION] == record
    assert kube.present("vmi", "scaled-2")["metadata"]["labels"][REVISION] == record
    machines.scale(1)
    assert machines.comes_to(1, ready=1) == first, "not those with the highest numbers are gone"
    machines.scale(0)
    machines.comes_to(0)
    assert {"SuccessfulCreate", "SuccessfulDelete"} <= machines.reasons()


def is_replaced(machines: Pool, name: str, uid: str) -> bool:
    return machines.machines().get(name, uid) != uid


def test_a_machine_that_is_deleted_is_made_again_under_its_name(kube: Kube, make: Make) -> None:
    machines = make("replaced", 2)
    before = machines.comes_to(2)
    kube.kubectl("delete", "vm/replaced-0", "--wait=false")
    kube.ask_until("another machine", functools.partial(is_replaced, machines, "replaced-0", before["replaced-0"]))
    now = machines.comes_to(2)
    assert now["replaced-1"] == before["replaced-1"], "the other one was replaced, too"
    assert len(machines.records()) == 1


def has_pause(machines: Pool, wanted: bool) -> bool:
    return ("ReplicaPaused" in machines.conditions()) == wanted


def test_a_paused_pool_creates_nothing_until_it_goes_on(kube: Kube, make: Make) -> None:
    machines = make("paused", 0, paused=True)
    kube.ask_until("the condition ReplicaPaused", functools.partial(has_pause, machines, True))
    machines.scale(1)
    # The controller has seen the change once it has written what belongs to another change after it.
    make("beside", 1).comes_to(1)
    assert machines.machines() == {}, "a paused pool has made a machine"
    machines.patch({"spec": {"paused": False}})
    machines.comes_to(1)
    kube.ask_until("no condition", functools.partial(has_pause, machines, False))
    assert {"SuccessfulPaused", "SuccessfulResume"} <= machines.reasons()


def memory_of_machine(kube: Kube, name: str) -> str:
    return str(kube.present("vm", name)["spec"]["template"]["spec"]["domain"]["memory"]["guest"])


def memory(kube: Kube, name: str) -> str:
    """What the instance has; empty where there is none."""
    found = kube.there("vmi", name)
    return str(found["spec"]["domain"]["memory"]["guest"]) if found else ""


def is_ready(kube: Kube, name: str) -> bool:
    return bool(kube.condition("vmi", name, "Ready").get("status") == "True")


def test_a_change_of_the_template_restarts_one_after_the_other(kube: Kube, make: Make) -> None:
    machines = make("updated", 2, "Always", maxUnavailable=1)
    before = machines.comes_to(2, ready=2)
    (first,) = machines.records()
    instances = {name: kube.uid(name) for name in before}
    fewest = 2

    def both_follow() -> bool:
        nonlocal fewest
        ready = [name for name in before if is_ready(kube, name)]
        fewest = min(fewest, len(ready))
        return len(ready) == 2 and all(memory(kube, name) == "144Mi" for name in before)

    machines.patch(guest("144Mi"))
    kube.wait("guests of the new template", both_follow)
    assert fewest == 1, f"at one time {fewest} guests were ready"
    assert machines.comes_to(2, ready=2) == before, "machines were replaced"
    assert all(kube.uid(name) != uid for name, uid in instances.items())
    assert "SuccessfulUpdate" in machines.reasons()
    # Labels of machines are no reason to restart a guest.
    instances = {name: kube.uid(name) for name in before}
    machines.patch({"spec": {"virtualMachineTemplate": {"metadata": {"labels": {"more": "1"}}}}})
    for name in before:
        kube.wait("the label and the new record's name", functools.partial(follows, kube, name, first))
    assert {name: kube.uid(name) for name in before} == instances
    kube.ask_until("the end of a record that nothing names", lambda: first not in machines.records())


def follows(kube: Kube, name: str, first: str) -> bool:
    """Whether a machine has the label `more` and, as its instance, the name of a record that is not the first."""
    of_machine, of_instance = (kube.present(kind, name)["metadata"]["labels"] for kind in ("vm", "vmi"))
    return "more" in of_machine and of_machine[REVISION] == of_instance[REVISION] != first


@pytest.mark.long
def test_a_machine_that_its_user_starts_is_restarted_by_a_request(kube: Kube, make: Make) -> None:
    machines = make("asked", 1, "RerunOnFailure")
    machines.comes_to(1, ready=1)
    before = kube.uid("asked-0")
    machines.patch(guest("144Mi"))
    kube.runs("asked-0", not_this=before)
    assert memory(kube, "asked-0") == "144Mi"


@pytest.mark.long
def test_updates_are_left_to_restarts_or_to_users(kube: Kube, make: Make) -> None:
    left = make("untouched", 1, updateStrategy={"unmanaged": {}})
    machines = make("later", 1, "Always", updateStrategy={"opportunistic": {}})
    left.comes_to(1)
    machines.comes_to(1, ready=1)
    instance = kube.uid("later-0")
    left.patch(guest("144Mi"))
    machines.patch(guest("144Mi"))
    kube.wait("the machine's new memory", lambda: memory_of_machine(kube, "later-0") == "144Mi")
    kube.becomes("vm", "later-0", "RestartRequired")
    assert memory_of_machine(kube, "untouched-0") == "128Mi", "a machine was changed that is unmanaged"
    assert kube.uid("later-0") == instance, "the guest was restarted"
    kube.kubectl("delete", "vmi/later-0", "--wait=false")
    kube.runs("later-0", not_this=instance)
    assert memory(kube, "later-0") == "144Mi"


def test_a_pool_whose_scale_in_is_unmanaged_deletes_none(kube: Kube, make: Make) -> None:
    machines = make("many", 2, scaleInStrategy={"unmanaged": {}})
    before = machines.comes_to(2)
    machines.scale(1)
    make("beside", 1).comes_to(1)
    assert machines.machines() == before, "a machine was deleted"
    kube.kubectl("delete", "vm/many-0", "--wait=false")
    kube.wait("the end of the machine", lambda: not kube.there("vm", "many-0"))
    one = machines.comes_to(1)
    assert one == {"many-1": before["many-1"]}


def claim_of(name: str, uid: str) -> Object:
    """A claim that goes with this machine; no volume is bound to it."""
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name, "uid": uid}
    request = {"resources": {"requests": {"storage": "1Mi"}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE, "ownerReferences": [owner]},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": ""} | request,
    }


@pytest.mark.long
def test_what_scaled_in_machines_own_stays_where_the_pool_keeps_it(kube: Kube, make: Make) -> None:
    machines = make("kept", 1, "Always", scaleInStrategy=newest_go(statePreservation="Offline"))
    (uid,) = machines.comes_to(1, ready=1).values()
    kube.apply(claim_of("kept-0", uid))
    try:
        machines.scale(0)
        kube.is_removed("kept-0")
        claim = kube.get("pvc/kept-0")["metadata"]
        assert "ownerReferences" not in claim and "deletionTimestamp" not in claim, claim
        assert not kube.items("controllerrevisions", "-l", f"garboard.dev/revision-of={uid}")
        kube.kubectl("delete", "pvc/kept-0")
        machines.patch({"spec": {"replicas": 1, "scaleInStrategy": newest_go(statePreservation="Disabled")}})
        (uid,) = machines.comes_to(1, ready=1).values()
        kube.apply(claim_of("kept-0", uid))
        machines.scale(0)
        kube.is_removed("kept-0")
        kube.ask_until(
            "the end of the claim", lambda: not kube.items("pvc", "--field-selector", "metadata.name=kept-0")
        )
    finally:
        kube.kubectl("delete", "pvc/kept-0", "--ignore-not-found")


def with_disk(name: str, strategy: str, disk: str) -> Object:
    """The template of a pool whose machines bring a DataVolume each, of this name and their number."""
    spec = machine(name, strategy, volumes=[{"name": "root", "dataVolume": {"name": disk}}])["spec"]
    spec["dataVolumeTemplates"] = [importer.template(disk)]
    return {"metadata": {"labels": {"app": name}}, "spec": spec}


# Whose DataVolume it is, is a unit test too (controller/src/vm/tests/owners.rs).
@pytest.mark.long
def test_pools_whose_templates_name_the_same_disk_do_not_share_it(
    kube: Kube, make: Make, held: contextlib.ExitStack
) -> None:
    importer.goes(kube, held)
    importer.comes(kube)
    first = make("first", 1, virtualMachineTemplate=with_disk("first", "Halted", "disk"))
    (owner,) = first.comes_to(1).values()
    disk = importer.made(kube, "disk-0")
    assert [each["uid"] for each in disk["ownerReferences"]] == [owner], disk
    assert disk["annotations"]["garboard.dev/pool"] == "first", disk
    importer.reaches(kube, "disk-0", "Succeeded")
    second = make("second", 1, virtualMachineTemplate=with_disk("second", "Always", "disk"))
    (uid,) = second.comes_to(1).values()
    path = "spec.virtualMachineTemplate.spec.dataVolumeTemplates[0].metadata.name of the VirtualMachinePool second"
    failure = kube.says_of_itself("vm", "second-0", "Failure", path)
    assert failure["reason"] == "FailedDataVolumeCreate" and "the VirtualMachine first-0" in failure["message"], failure
    kube.shows("second-0", "Provisioning")
    assert not kube.there("vmi", "second-0"), "a guest was started on the disk of another pool"
    kube.kubectl("delete", "vm/second-0", "--wait=false")
    kube.ask_until("another machine", functools.partial(is_replaced, second, "second-0", uid))
    kube.says_of_itself("vm", "second-0", "Failure", path)
    now = kube.get("datavolume/disk-0")["metadata"]
    assert (now["uid"], "deletionTimestamp" in now) == (disk["uid"], False), "it went with a machine of another pool"
    # A name as the message asks for it.
    second.patch({"spec": {"virtualMachineTemplate": with_disk("second", "Always", "second-disk")}})
    own = importer.made(kube, "second-disk-0")
    directory = held.enter_context(volumes.directory())
    held.callback(volumes.remove_claim, kube, "second-disk-0")
    kube.apply(*claim("second-disk-0", str(directory)))
    importer.reaches(kube, "second-disk-0", "Succeeded")
    kube.runs("second-0")
    # Each goes with its own machine, and not before.
    first.scale(0)
    kube.is_removed("first-0")
    kube.kubectl("wait", "--for=delete", "datavolume/disk-0", "--timeout=180s")
    left = kube.get("datavolume/second-disk-0")["metadata"]
    assert (left["uid"], "deletionTimestamp" in left) == (own["uid"], False), "a disk of another pool is gone"


def size(name: str, memory: str) -> Object:
    spec = {"cpu": {"guest": 1}, "memory": {"guest": memory}}
    head = {"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype"}
    return head | {"metadata": {"name": name}, "spec": spec}


def test_machines_have_the_size_of_the_instancetype_that_the_template_names(kube: Kube, make: Make) -> None:
    sizes = {"pool-small": "128Mi", "pool-large": "144Mi"}
    for each, guests in sizes.items():
        kube.apply(size(each, guests))
    template = pool("measured", 1, "Always")["spec"]["virtualMachineTemplate"]
    domain = template["spec"]["template"]["spec"]["domain"]
    del domain["cpu"], domain["memory"]
    template["spec"]["instancetype"] = {"name": "pool-small", "kind": "VirtualMachineInstancetype"}
    kept = newest_go(statePreservation="Offline")
    try:
        machines = make("measured", 1, virtualMachineTemplate=template, scaleInStrategy=kept)
        before = machines.comes_to(1, ready=1)
        assert memory(kube, "measured-0") == "128Mi"
        first = kube.uid("measured-0")
        kube.has_shell("measured-0")
        named = {"instancetype": {"name": "pool-large"}}
        machines.patch({"spec": {"virtualMachineTemplate": {"spec": named}}})
        kube.runs("measured-0", not_this=first)
        assert memory(kube, "measured-0") == "144Mi"
        assert machines.machines() == before, "the machine was replaced"
        copies = ("controllerrevisions", "-l", f"garboard.dev/copy-for={before['measured-0']}")
        assert len(kube.items(*copies)) == 2, "a copy of each instancetype is kept"
        # Of one that is let go with its volumes left, they go too.
        kube.has_shell("measured-0")
        machines.scale(0)
        kube.is_removed("measured-0")
        assert not kube.items(*copies)
    finally:
        kube.kubectl("delete", "vminstancetype", *sizes)


def test_a_machine_that_does_not_start_is_made_again(kube: Kube, make: Make) -> None:
    wanted = pool("healed", 1, "Always", autohealing={"minFailingToStartDuration": "5s"})
    template = wanted["spec"]["virtualMachineTemplate"]["spec"]["template"]["spec"]
    template["volumes"].append({"name": "none", "persistentVolumeClaim": {"claimName": "none"}})
    template["domain"]["devices"]["disks"].append({"name": "none", "disk": {"bus": "virtio"}})
    machines = make("healed", 1, virtualMachineTemplate=wanted["spec"]["virtualMachineTemplate"])
    (uid,) = machines.comes_to(1).values()
    kube.shows("healed-0", "ErrorPvcNotFound")
    assert not is_replaced(machines, "healed-0", uid), "replaced, and no pool has asked for it"
    machines.patch({"spec": {"autohealing": wanted["spec"]["autohealing"]}})
    kube.ask_until("another machine", functools.partial(is_replaced, machines, "healed-0", uid))


def is_alone(kube: Kube, name: str) -> bool:
    found = kube.there("vm", name)
    return found is not None and not found["metadata"].get("ownerReferences")


def test_a_machine_is_released_by_its_labels_and_its_name_stays_its_own(kube: Kube, make: Make) -> None:
    machines = make("claims", 1)
    machines.comes_to(1)
    kube.kubectl("label", "vm/claims-0", "app-")
    kube.wait("a machine without an owner", functools.partial(is_alone, kube, "claims-0"))
    assert list(machines.comes_to(1)) == ["claims-1"]
    kube.kubectl("label", "vm/claims-0", "app=claims")
    # It is one too many now, and taken back.
    kube.ask_until("one machine of two", lambda: len(machines.machines()) == 1)


def test_a_pool_that_is_deleted_takes_its_machines_along_or_leaves_them(kube: Kube, make: Make) -> None:
    machines = make("family", 2)
    before = machines.comes_to(2)
    machines.delete("--cascade=orphan")
    for name in before:
        kube.wait("a machine without an owner", functools.partial(is_alone, kube, name))
    again = make("family", 2)
    assert again.comes_to(2) == before, "a pool of the same name has not adopted what the first one left"
    again.delete()
    for name in before:
        kube.is_removed(name)


def autoscaler(name: str, replicas: int) -> Object:
    """One that wants this number, whatever it measures: no metrics are served here."""
    target = {"apiVersion": VERSION, "kind": "VirtualMachinePool", "name": name}
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"scaleTargetRef": target, "minReplicas": replicas, "maxReplicas": replicas},
    }


@pytest.mark.long
def test_an_autoscaler_reads_and_sets_how_many_there_are(kube: Kube, make: Make) -> None:
    machines = make("elastic", 1)
    machines.comes_to(1)
    kube.apply(autoscaler("elastic", 3))
    try:
        machines.comes_to(3)
        kube.apply(autoscaler("elastic", 1))
        machines.comes_to(1)
    finally:
        kube.kubectl("delete", "hpa/elastic")


def test_names_in_the_template_get_the_number_of_a_machine(kube: Kube, make: Make) -> None:
    wanted = pool("numbered", 2)["spec"]["virtualMachineTemplate"]
    template = wanted["spec"]["template"]["spec"]
    sources = [
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "keys", "secret": {"secretName": "keys"}},
    ]
    template["volumes"] += sources
    template["domain"]["devices"]["disks"] += [{"name": each["name"], "disk": {"bus": "virtio"}} for each in sources]
    names = {"appendIndexToConfigMapRefs": True, "appendIndexToSecretRefs": True}
    make("numbered", 2, virtualMachineTemplate=wanted, nameGeneration=names).comes_to(2)
    for number in range(2):
        volumes = kube.present("vm", f"numbered-{number}")["spec"]["template"]["spec"]["volumes"]
        found = [each.get("configMap", {}).get("name") or each["secret"]["secretName"] for each in volumes]
        assert found == [f"settings-{number}", f"keys-{number}"], found


def test_the_old_version_is_served(kube: Kube, make: Make) -> None:
    machines = make("former", 1)
    machines.comes_to(1)
    old = json.loads(kube.kubectl("get", f"virtualmachinepools.v1alpha1.{GROUP}/former", "-o", "json"))
    assert old["apiVersion"] == f"{GROUP}/v1alpha1" and old["status"]["replicas"] == 1
    kube.apply(pool("former", 2) | {"apiVersion": f"{GROUP}/v1alpha1"})
    machines.comes_to(2)


def refusal(kube: Kube, wanted: Object) -> str:
    return kube.kubectl("apply", "-f", "-", text=json.dumps(wanted), code=1)


def test_what_cannot_work_is_refused_with_its_field(kube: Kube, make: Make) -> None:
    output = refusal(kube, pool("astray", 1, selector={"matchLabels": {"app": "other"}}))
    assert "spec.selector: the selector does not match labels of the template" in output, output
    bad = pool("bad", 1)
    template = bad["spec"]["virtualMachineTemplate"]["spec"]["template"]["spec"]
    template["domain"]["devices"]["disks"].append({"name": "none", "disk": {"bus": "virtio"}})
    output = refusal(kube, bad)
    assert "spec.virtualMachineTemplate.spec.template.spec.domain.devices.disks[0].name" in output, output
    template["domian"] = {}
    output = refusal(kube, bad)
    assert "spec.virtualMachineTemplate.spec.template.spec.domian" in output and "domain" in output, output
    for strategy, field in (
        (newest_go(statePreservation="Online"), "proactive.statePreservation"),
        ({"opportunistic": {"statePreservation": "Offline"}}, "opportunistic.statePreservation"),
    ):
        output = refusal(kube, pool("kept", 1, scaleInStrategy=strategy))
        assert f"spec.scaleInStrategy.{field}" in output and "proactive" in output, output
    output = refusal(kube, pool("much", 1, maxUnavailable="0%"))
    assert "spec.maxUnavailable" in output, output
    machines = make("fixed", 0)
    other = {"app": "other"}
    change = {"spec": {"selector": {"matchLabels": other}, "virtualMachineTemplate": {"metadata": {"labels": other}}}}
    output = kube.kubectl("patch", f"vmpool/{machines.name}", "--type=merge", "-p", json.dumps(change), code=1)
    assert "spec.selector" in output, output


def test_the_controller_makes_machines_of_pools_alone(kube: Kube) -> None:
    """The policy; what it says of deletions is in tests/e2e/cluster/rights/test_pools.py."""
    create, alone = ("create", "-f", "-", "--dry-run=server", CONTROLLER), machine("any", "Halted")
    output = kube.kubectl(*create, text=json.dumps(alone), code=1)
    assert "no VirtualMachines but those that a VirtualMachinePool controls" in output, output
    owner = {"apiVersion": VERSION, "kind": "VirtualMachinePool", "name": "any", "uid": "9c", "controller": True}
    alone["metadata"]["ownerReferences"] = [owner]
    kube.kubectl(*create, text=json.dumps(alone))
