"""The Helm chart installs what deploy/garboard.yaml and `garboard cluster install` do, and refuses wrong values."""

import json
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from garboard_e2e import names
from garboard_e2e.chart import CHART, Object, by_name, call, differences, objects, rendered
from garboard_e2e.places import REPOSITORY

WITH_NAMESPACE = ("--set", "namespace.create=true")
DIGESTS = {name: f"sha256:{digit * 64}" for name, digit in (("controller", "a"), ("node", "b"), ("launcher", "c"))}


def test_lint_finds_nothing() -> None:
    done = call("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 chart(s) linted, 0 chart(s) failed" in done.stdout


def test_without_values_it_is_the_manifest() -> None:
    manifest = objects((REPOSITORY / "deploy/garboard.yaml").read_text())
    assert differences(rendered("--namespace", "garboard", *WITH_NAMESPACE), manifest) == []
    # Helm makes the namespace of a release itself.
    without = [each for each in manifest if each["kind"] != "Namespace"]
    assert differences(rendered("--namespace", "garboard"), without) == []


@pytest.mark.parametrize(
    "namespace,values,options",
    [
        ("vms", (), ()),
        ("garboard", ("image.registry=r.example/team",), ("--image-registry=r.example/team",)),
        (
            "vms",
            ("image.registry=r.example:5000", "image.tag=7", "image.pullPolicy=Always"),
            ("--image-registry=r.example:5000", "--image-tag=7", "--image-pull-policy=Always"),
        ),
        (
            "vms",
            tuple(f"image.digests.{name}={digest}" for name, digest in DIGESTS.items()),
            tuple(f"--image-digest={name}={digest}" for name, digest in DIGESTS.items()),
        ),
        ("vms", ("dashboard.enabled=true", "image.registry=r.example"), ("--dashboard", "--image-registry=r.example")),
        (
            "garboard",
            ("dashboard.enabled=true", "dashboard.hosts={vms.example.com,b.example}", "dashboard.tlsSecret=mine"),
            ("--dashboard-host=vms.example.com", "--dashboard-host=b.example", "--dashboard-tls-secret=mine"),
        ),
    ],
    ids=["another_namespace", "another_registry", "another_tag_and_policy", "digests", "dashboard", "own_dashboard"],
)
def test_with_the_same_choices_it_is_what_the_command_installs(
    programs: pathlib.Path, namespace: str, values: tuple[str, ...], options: tuple[str, ...]
) -> None:
    # Else the command's are of its own version, which a build for tests has from git.
    options = options if any("image-tag" in option for option in options) else (*options, "--image-tag=1")
    values = values if any("image.tag" in value for value in values) else (*values, "image.tag=1")
    command = [str(programs / names.COMMAND), "cluster", "install", "--print", f"--garboard-namespace={namespace}"]
    printed = subprocess.run([*command, *options], check=True, stdout=subprocess.PIPE, text=True).stdout
    # A switch is no text.
    chosen = [option for value in values for option in (f"--set{'' if value.endswith('=true') else '-string'}", value)]
    assert differences(rendered("--namespace", namespace, *WITH_NAMESPACE, *chosen), objects(printed)) == []


def deployed(found: list[Object], kind: str) -> Object:
    workload = next(each for each in found if each["kind"] == kind)
    spec: Object = workload["spec"]
    return spec


def test_what_is_chosen_for_the_parts_is_in_their_pods(tmp_path: pathlib.Path) -> None:
    tolerations = [{"key": "machines", "operator": "Exists", "effect": "NoSchedule"}]
    values = {
        "imagePullSecrets": [{"name": "key"}],
        "controller": {"replicas": 3, "resources": {"limits": {"memory": "2Gi"}}},
        "node": {
            "nodeSelector": {"machines": "yes"},
            "tolerations": tolerations,
            "resources": {"requests": {"cpu": "1"}},
        },
        "facts": {"resources": {"limits": {"memory": "1Gi"}}},
    }
    found = rendered("--values", str(written(tmp_path, values)))
    controller, node = deployed(found, "Deployment"), deployed(found, "DaemonSet")
    assert controller["replicas"] == 3
    assert controller["template"]["spec"]["containers"][0]["resources"]["limits"] == {"memory": "2Gi"}
    pod = node["template"]["spec"]
    usual = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    assert pod["nodeSelector"] == usual | {"machines": "yes"}
    assert pod["tolerations"] == tolerations
    assert pod["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "32Mi"}
    assert pod["initContainers"][0]["resources"]["limits"] == {"memory": "1Gi"}
    for each in (controller, node):
        assert each["template"]["spec"]["imagePullSecrets"] == [{"name": "key"}]


# Other values than the usual ones, where those do not follow from the kind of value.
OTHERS: dict[str, Any] = {
    "image.registry": "r.example/team",
    "image.pullPolicy": "Always",
    **{f"image.digests.{name}": digest for name, digest in DIGESTS.items()},
    "imagePullSecrets": [{"name": "key"}],
    "dashboard.hosts": ["vms.example.com"],
    "tracing.environment": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}],
    "kubevirt.annotations": {"garboard.dev/launcher-update": "Disabled"},
    "kubevirt.spec": {"configuration": {"developerConfiguration": {"useEmulation": True}}},
}
# Values that only a cluster's answers give an effect.
OF_A_CLUSTER = {"checkDefinitions"}


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value that has none below it; a list is one value."""
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from leaves(below, (*path, key))
    else:
        yield path, value


def another(path: tuple[str, ...], usual: Any) -> Any:
    if (name := ".".join(path)) in OTHERS:
        return OTHERS[name]
    match usual:
        case bool():
            return not usual
        case int():
            return usual + 1
        case list():
            return [{"key": "machines", "operator": "Exists", "effect": "NoSchedule"}]
        case str() if path[-1] in ("cpu", "memory"):
            return "77Mi" if path[-1] == "memory" else "77m"
    return "another"


def test_each_value_changes_what_is_installed(tmp_path: pathlib.Path) -> None:
    # Else the dashboard's values have no effect.
    with_dashboard = ("--set", "dashboard.enabled=true")
    plain = rendered(*with_dashboard)
    without_effect = set()
    found = list(leaves(yaml.safe_load((CHART / "values.yaml").read_text())))
    assert len(found) > 20, found
    for path, usual in found:
        is_switch = path == ("dashboard", "enabled")
        value: Any = False if is_switch else another(path, usual)
        for key in reversed(path):
            value = {key: value}
        switch = () if is_switch else with_dashboard
        if not differences(rendered("--values", str(written(tmp_path, value)), *switch), plain):
            without_effect.add(".".join(path))
    assert without_effect == OF_A_CLUSTER


def test_the_dashboard_is_optional_and_its_pod_as_restricted_as_pods_can_be() -> None:
    assert not [each for each in rendered() if each["metadata"]["name"] == "garboard-dashboard"]
    found = by_name(rendered("--namespace", "vms", "--set", "dashboard.enabled=true"))
    pod = found["Deployment vms/garboard-dashboard"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert found["ServiceAccount vms/garboard-dashboard"]["automountServiceAccountToken"] is False
    assert found["Service vms/garboard-dashboard"]["spec"]["type"] == "ClusterIP"
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"] == {
        "type": "RuntimeDefault"
    }
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    # Nothing gives it a right.
    subjects = [subject["name"] for each in found.values() for subject in each.get("subjects") or []]
    assert "garboard-dashboard" not in subjects


def test_settings_are_a_kubevirt_object(tmp_path: pathlib.Path) -> None:
    spec = {"configuration": {"developerConfiguration": {"useEmulation": True}}}
    annotations = {"garboard.dev/launcher-update": "Disabled"}
    values = written(tmp_path, {"kubevirt": {"spec": spec, "annotations": annotations}})
    plain = rendered("--namespace", "vms")
    found = rendered("--namespace", "vms", "--values", str(values))
    settings = by_name(found)["KubeVirt vms/kubevirt"]
    assert settings["spec"] == spec and settings["metadata"]["annotations"] == annotations
    # Besides it, only the webhooks for it are others: they leave its creation out.
    webhooks = [f"{kind}WebhookConfiguration /garboard" for kind in ("Mutating", "Validating")]
    assert differences(found, plain) == ["KubeVirt vms/kubevirt", *webhooks]
    for name in webhooks:
        before, after = by_name(plain)[name]["webhooks"], by_name(found)[name]["webhooks"]
        changed = [new["name"] for old, new in zip(before, after, strict=True) if old != new]
        assert [each.partition("-")[2] for each in changed] == ["kubevirts.kubevirt.io"]


def common(found: list[Object]) -> list[Object]:
    """Instancetypes and preferences, without what says who manages them."""
    chosen = [each for each in found if each["apiVersion"].startswith("instancetype.kubevirt.io/")]
    for each in chosen:
        assert each["metadata"]["labels"].pop("app.kubernetes.io/managed-by") == "Helm", each
    return chosen


def deployment(**fields: bool) -> Object:
    """Settings of whether there are common instancetypes."""
    return {"spec": {"configuration": {"commonInstancetypesDeployment": fields}}}


@pytest.mark.parametrize(
    "values,are_there",
    [
        ({}, False),
        ({"commonInstancetypes": {"enabled": True}}, True),
        ({"kubevirt": deployment(enabled=True)}, True),
        ({"kubevirt": deployment()}, True),
        ({"kubevirt": deployment(enabled=False)}, False),
    ],
    ids=["by itself", "value", "settings", "settings that leave it open", "settings against it"],
)
def test_common_instancetypes_are_there_where_value_or_settings_want_them(
    tmp_path: pathlib.Path, values: Object, are_there: bool
) -> None:
    file = objects((REPOSITORY / "deploy/common-instancetypes.yaml").read_text())
    found = rendered("--values", str(written(tmp_path, values)))
    assert differences(common(found), file if are_there else []) == []
    # Their creation is not judged, because no webhook answers yet.
    webhooks = by_name(found)["ValidatingWebhookConfiguration /garboard"]["webhooks"]
    of_sizes = next(each for each in webhooks if each["name"] == "validate-sizes.instancetype.kubevirt.io")
    assert len(of_sizes["matchConditions"]) == (2 if are_there else 1)


def test_a_value_that_contradicts_the_settings_is_refused(tmp_path: pathlib.Path) -> None:
    values = {"commonInstancetypes": {"enabled": True}, "kubevirt": deployment(enabled=False)}
    done = call("template", "garboard", str(CHART), "--values", str(written(tmp_path, values)))
    assert done.returncode != 0 and "set both alike" in done.stderr, done.stderr


@pytest.mark.parametrize(
    "values,refused",
    [
        ({"replicas": 3}, "replicas"),
        ({"controller": {"replicas": "many"}}, "/controller/replicas"),
        ({"controller": {"replicas": 0}}, "/controller/replicas"),
        ({"controller": {"image": "mine"}}, "image"),
        ({"image": {"registry": "r.example/"}}, "/image/registry"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"image": {"digests": {"node": "sha256:abc"}}}, "/image/digests/node"),
        ({"image": {"digests": {"virt-handler": ""}}}, "virt-handler"),
        ({"imagePullSecrets": ["key"]}, "/imagePullSecrets/0"),
        ({"dashboard": {"hosts": ["https://vms.example.com"]}}, "/dashboard/hosts/0"),
        ({"dashboard": {"tlsSecret": "Mine"}}, "/dashboard/tlsSecret"),
        ({"dashboard": True}, "/dashboard"),
        ({"node": {"tolerations": [{"effect": "Sometimes"}]}}, "/node/tolerations/0/effect"),
        ({"node": {"resources": {"limit": {}}}}, "limit"),
        ({"kubevirt": {"spec": []}}, "kubevirt"),
        ({"commonInstancetypes": {"enabled": "yes"}}, "/commonInstancetypes/enabled"),
        ({"tracing": {"environment": [{"name": "PATH", "value": "x"}]}}, "/tracing/environment/0/name"),
    ],
    ids=lambda value: value.strip("/").replace("/", "-") if isinstance(value, str) else "",
)
def test_a_value_that_is_wrong_is_refused_by_its_place(tmp_path: pathlib.Path, values: Object, refused: str) -> None:
    done = call("template", "garboard", str(CHART), "--values", str(written(tmp_path, values)))
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr
    assert refused in done.stderr, done.stderr


def test_a_packed_chart_is_the_same_with_images_of_its_version(tmp_path: pathlib.Path) -> None:
    archive, version = tmp_path / "garboard.tgz", "7.8.9-dev.1.gabc"
    subprocess.run([REPOSITORY / "deploy/render", "--chart", archive, version], check=True)
    assert differences(rendered(chart=archive), rendered("--set-string", f"image.tag={version}")) == []
    shown = call("show", "chart", str(archive)).stdout
    assert f"\nversion: {version}\n" in shown and f"appVersion: {version}\n" in shown


def test_another_version_of_kubernetes_is_refused() -> None:
    done = call("template", "garboard", str(CHART), "--kube-version", "1.32.0")
    assert done.returncode != 0 and "kubeVersion: >=1.33.0-0" in done.stderr, done.stderr


def written(directory: pathlib.Path, values: Object) -> pathlib.Path:
    file = directory / "values.json"
    file.write_text(json.dumps(values))
    return file
