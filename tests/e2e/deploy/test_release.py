"""A release of Helm at an API server alone: what is made, changed, left and refused. Nothing of it runs."""

import json
import pathlib
from collections.abc import Iterator

import pytest

from garboard_e2e.api_server import ADMINISTRATOR, ApiServer
from garboard_e2e.chart import CHART, Object, call
from garboard_e2e.outcome import Failure
from garboard_e2e.places import temporary_directory

NAMESPACE, DEFINITION = "vms", "virtualmachines.kubevirt.io"
SETTINGS = {"configuration": {"developerConfiguration": {"cpuAllocationRatio": 4}}}


class Releases:
    """Helm, with this API server."""

    def __init__(self, server: ApiServer, directory: pathlib.Path) -> None:
        self.server, self.directory = server, directory
        self.kubeconfig = directory / "kubeconfig"
        cluster = {"server": f"https://127.0.0.1:{server.port}", "insecure-skip-tls-verify": True}
        named = {
            "clusters": [{"name": "alone", "cluster": cluster}],
            "users": [{"name": "alone", "user": {"token": server.tokens[ADMINISTRATOR]}}],
            "contexts": [{"name": "alone", "context": {"cluster": "alone", "user": "alone"}}],
        }
        self.kubeconfig.write_text(json.dumps({"current-context": "alone", **named}))
        self.kubeconfig.chmod(0o600)

    def helm(self, *arguments: str, code: int = 0, **values: object) -> str:
        """What helm prints; it must end with this code."""
        file = self.directory / "values.json"
        file.write_text(json.dumps(values))
        chosen = ["--values", str(file)] if values else []
        done = call(*arguments, *chosen, f"--kubeconfig={self.kubeconfig}", "--namespace", NAMESPACE)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def get(self, *arguments: str) -> Object:
        found: Object = json.loads(self.server.kubectl("get", *arguments, "-n", NAMESPACE, "-o", "json"))
        return found

    def put(self, command: str, code: int = 0, **values: object) -> str:
        return self.helm(command, "garboard", str(CHART), code=code, **values)


@pytest.fixture(scope="module")
def releases() -> Iterator[Releases]:
    with temporary_directory() as directory:
        server = ApiServer(directory, {})
        try:
            server.start()
            server.kubectl("create", "namespace", NAMESPACE)
            yield Releases(server, directory)
        finally:
            server.stop()


@pytest.fixture(scope="module")
def installed(releases: Releases) -> str:
    """What Helm prints of the first release, which has settings and the common instancetypes."""
    return releases.put("install", kubevirt={"spec": SETTINGS}, commonInstancetypes={"enabled": True})


def test_the_notes_say_what_is_left_to_do(installed: str) -> None:
    assert f"kubectl label namespace {NAMESPACE} pod-security.kubernetes.io/enforce=privileged" in installed
    assert "load them on every node" in installed
    assert f"garboard cluster status --garboard-namespace {NAMESPACE}" in installed


def test_common_instancetypes_are_made_while_no_webhook_answers_and_go_again(
    releases: Releases, installed: str
) -> None:
    kinds = "virtualmachineclusterinstancetypes,virtualmachineclusterpreferences"
    names = releases.server.kubectl("get", kinds, "-o", "name").split()
    assert len(names) > 100, names
    mine = {
        "apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": "VirtualMachineClusterInstancetype",
        "metadata": {"name": "mine"},
        "spec": {"cpu": {"guest": 1}, "memory": {"guest": "64Mi"}},
    }
    # All others are judged.
    with pytest.raises(Failure, match="failed calling webhook"):
        releases.server.apply(mine)
    releases.put("upgrade", kubevirt={"spec": SETTINGS})
    assert releases.server.kubectl("get", kinds, "-o", "name") == ""


def test_settings_are_made_while_no_webhook_answers(releases: Releases, installed: str) -> None:
    assert releases.get("kubevirt/kubevirt")["spec"] == SETTINGS
    # They judge all others, and every change.
    metadata = {"name": "other", "namespace": NAMESPACE}
    other = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": metadata, "spec": {}}
    with pytest.raises(Failure, match="failed calling webhook"):
        releases.server.apply(other)
    changed = {"configuration": {"developerConfiguration": {"cpuAllocationRatio": 5}}}
    assert "failed calling webhook" in releases.put("upgrade", code=1, kubevirt={"spec": changed})


def test_an_upgrade_changes_settings_and_parts(releases: Releases, installed: str) -> None:
    before = releases.get("kubevirt/kubevirt")
    # Annotations are nothing to judge.
    changed = {"spec": SETTINGS, "annotations": {"garboard.dev/launcher-update": "Disabled"}}
    releases.put("upgrade", kubevirt=changed, controller={"replicas": 3})
    after = releases.get("kubevirt/kubevirt")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["annotations"]["garboard.dev/launcher-update"] == "Disabled"
    assert releases.get("deployment/garboard-controller")["spec"]["replicas"] == 3


def test_beside_definitions_of_another_version_nothing_is_upgraded(releases: Releases, installed: str) -> None:
    change = {"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/description", "value": "another"}
    releases.server.kubectl("patch", "crd", DEFINITION, "--type=json", "-p", json.dumps([change]))
    output = releases.put("upgrade", code=1, kubevirt={"spec": SETTINGS})
    assert f"the definition {DEFINITION} is of another version than this chart" in output
    # As in the error message.
    definitions = call("show", "crds", str(CHART)).stdout
    releases.server.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=definitions)
    releases.put("upgrade", kubevirt={"spec": SETTINGS})


def test_a_second_release_is_refused(releases: Releases, installed: str) -> None:
    assert "invalid ownership metadata" in releases.helm("install", "second", str(CHART), code=1)


def test_an_uninstall_leaves_definitions_and_machines(releases: Releases, installed: str) -> None:
    machine = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "left", "namespace": NAMESPACE},
        "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}},
    }
    for kind in ("mutating", "validating"):
        releases.server.kubectl("delete", f"{kind}webhookconfiguration", "garboard")
    releases.server.apply(machine)
    releases.helm("uninstall", "garboard")
    assert releases.get("vm/left")["spec"]["runStrategy"] == "Halted"
    left = releases.server.kubectl("get", "clusterroles,deployments,priorityclasses", "-A", "-o", "name")
    assert "garboard" not in left
    # And the next one finds them.
    releases.put("install", kubevirt={"spec": {}, "annotations": {"example": "yes"}})
    assert releases.get("kubevirt/kubevirt")["spec"] == {}
    assert releases.get("vm/left")["metadata"]["name"] == "left"


def test_beside_definitions_of_kubevirt_nothing_is_installed(releases: Releases, installed: str) -> None:
    releases.helm("uninstall", "garboard")
    releases.server.kubectl("label", "crd", DEFINITION, "app.kubernetes.io/part-of-")
    output = releases.put("install", code=1)
    assert f"the definition {DEFINITION} is not Garboard's" in output
