"""A release of Helm: installed, upgraded, removed and installed again, while a machine runs."""

import json

from garboard_e2e.chart import CHART, call
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import AGENT, CONTROLLER, INSTALLED_IN, NAMESPACE, Object
from garboard_e2e.cluster.settings import is_followed

from .conftest import MACHINE, Release, ratio

DEFINITION = "virtualmachines.kubevirt.io"


def settings(kube: Kube) -> Object:
    """The KubeVirt object, once the controllers follow it."""
    kube.ask_until("settings that are followed", lambda: is_followed(kube))
    return kube.get("kubevirt/kubevirt", namespace=INSTALLED_IN)


def webhook(kube: Kube) -> Object:
    """The webhooks that the API server asks about machines, without what changes when it is written."""
    found = kube.get("validatingwebhookconfiguration/garboard", namespace=None)
    clients: Object = {each["name"]: each["clientConfig"] for each in found["webhooks"]}
    return clients


def test_one_command_installs_with_settings(kube: Kube, release: Release) -> None:
    assert "STATUS: deployed" in release.helm("status", "garboard")
    assert settings(kube)["spec"] == ratio(8)["spec"]
    assert kube.get(f"deployment/{CONTROLLER}", namespace=INSTALLED_IN)["status"]["readyReplicas"] == 2


def sizes(kube: Kube) -> list[str]:
    """Instancetypes and preferences of the cluster, by their names."""
    kinds = "virtualmachineclusterinstancetypes,virtualmachineclusterpreferences"
    return [str(each["metadata"]["name"]) for each in kube.items(kinds, namespace=None)]


def test_common_instancetypes_are_made_with_it(kube: Kube, release: Release) -> None:
    """Although no webhook answered yet."""
    found = sizes(kube)
    assert len(found) > 100 and {"u1.small", "fedora"} <= set(found), found


def test_a_machine_runs(kube: Kube, runs: str) -> None:
    kube.has_shell(MACHINE)


def test_an_upgrade_changes_parts_and_settings_and_no_guest(kube: Kube, release: Release, runs: str) -> None:
    qemu, before, asked = kube.qemu(MACHINE), settings(kube), webhook(kube)
    mine = {"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineClusterInstancetype"}
    size = {"metadata": {"name": "mine"}, "spec": {"cpu": {"guest": 1}, "memory": {"guest": "64Mi"}}}
    kube.apply(mine | size, namespace=None)
    release.values |= {
        "kubevirt": ratio(5),
        "commonInstancetypes": {"enabled": False},
        "controller": {"resources": {"limits": {"memory": "900Mi"}}},
        "node": {"resources": {"limits": {"memory": "200Mi"}}},
    }
    release.put("upgrade")
    after = settings(kube)
    assert after["spec"] == ratio(5)["spec"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert sizes(kube) == ["mine"]
    agents = kube.get(f"daemonset/{AGENT}", namespace=INSTALLED_IN)["spec"]["template"]["spec"]
    assert agents["containers"][0]["resources"]["limits"] == {"memory": "200Mi"}
    # What the controller has written is left to it.
    assert webhook(kube) == asked
    assert all(client.get("caBundle") for client in asked.values())
    kube.ask_until("nodes that take machines", kube.offers_devices)
    assert (kube.is_running(MACHINE), kube.qemu(MACHINE)) == (runs, qemu)
    kube.ask_until("an answer of the machine", lambda: kube.is_answered(MACHINE))


def test_beside_definitions_of_another_version_nothing_is_upgraded(kube: Kube, release: Release) -> None:
    path = "/spec/versions/0/schema/openAPIV3Schema/description"
    kube.kubectl("patch", "crd", DEFINITION, "--type=json", "-p", json.dumps(add(path)), namespace=None)
    output = release.put("upgrade", code=1)
    assert f"the definition {DEFINITION} is of another version than this chart" in output
    # As in the error message.
    definitions = call("show", "crds", str(CHART)).stdout
    kube.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=definitions, namespace=None)
    release.put("upgrade")


def add(path: str) -> list[Object]:
    return [{"op": "add", "path": path, "value": "of another version"}]


def test_without_the_release_machines_are_left_and_the_next_one_takes_them_over(
    kube: Kube, release: Release, runs: str
) -> None:
    qemu = kube.qemu(MACHINE)
    release.uninstall()
    left = kube.kubectl("get", "deployments,daemonsets,serviceaccounts", "-o", "name", namespace=INSTALLED_IN)
    assert "garboard" not in left, left
    assert kube.get(f"vmi/{MACHINE}")["metadata"]["uid"] == runs
    release.values["kubevirt"] = ratio(6)
    release.put("install")
    assert settings(kube)["spec"] == ratio(6)["spec"]
    kube.ask_until("nodes that take machines", kube.offers_devices)
    assert (kube.is_running(MACHINE), kube.qemu(MACHINE)) == (runs, qemu)
    kube.ask_until("an answer of the machine", lambda: kube.is_answered(MACHINE))


def test_what_helm_has_not_made_is_not_taken_over(kube: Kube, release: Release) -> None:
    """A second release of another name: a cluster has one installation."""
    kube.kubectl("create", "namespace", "other", namespace=None)
    try:
        arguments = ["install", "second", str(CHART), "--namespace", "other"]
        done = call(*arguments, environment=kube.environment)
        assert done.returncode == 1 and "invalid ownership metadata" in done.stderr, done.stderr
    finally:
        kube.kubectl("delete", "namespace", "other", "--wait=false", namespace=None)


def test_when_its_machines_are_gone_the_release_goes(kube: Kube, release: Release) -> None:
    kube.remove(MACHINE)
    release.uninstall()
    kube.ask_until("the end of all pods of Garboard", lambda: not kube.items("pods", namespace=INSTALLED_IN))
    assert DEFINITION in kube.kubectl("get", "crd", "-o", "name", namespace=None)
    assert not kube.kubectl("get", "vm,vmi", "-o", "name", namespace=NAMESPACE)
