"""The configuration of kube-state-metrics: each path is in our definitions, and leads to what its metric can show."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from garboard_e2e.places import REPOSITORY

CONFIGURATION = REPOSITORY / "deploy/monitoring/kube-state-metrics.yaml"
CRDS = REPOSITORY / "deploy/base/crds"
PREFIX = "kube_customresource_kubevirt_vm"
Schema = dict[str, Any]

# What kube-state-metrics reads (its pkg/customresourcestate): what else is written, it passes over in silence.
OF_RESOURCE = {"groupVersionKind", "metricNamePrefix", "labelsFromPath", "metrics"}
OF_METRIC = {"name", "help", "each"}
# By the type of a metric: where the rest is, and what it may have.
OF_EACH = {
    "Gauge": ("gauge", {"path", "labelsFromPath", "nilIsZero"}),
    "Info": ("info", {"path", "labelsFromPath"}),
    "StateSet": ("stateSet", {"path", "labelsFromPath", "labelName", "valueFrom", "list"}),
}
SCALARS = {"string", "integer", "number", "boolean"}
TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}
# Of every object, and in no definition.
METADATA: Schema = {
    "type": "object",
    "properties": {"name": TEXT, "namespace": TEXT, "labels": TEXTS, "annotations": TEXTS},
}


def configuration() -> list[Any]:
    document = yaml.safe_load(CONFIGURATION.read_text())
    assert document["kind"] == "CustomResourceStateMetrics"
    resources: list[Any] = document["spec"]["resources"]
    return resources


def definition(group: str, version: str, kind: str) -> Schema:
    """The schema of a version that is served."""
    for file in sorted(CRDS.glob(f"*.{group}.yaml")):
        spec = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)["spec"]
        if spec["names"]["kind"] == kind:
            (found,) = [each for each in spec["versions"] if each["name"] == version and each["served"]]
            schema: Schema = copy.deepcopy(found["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = METADATA
            return schema
    raise AssertionError(f"no definition of {group}/{version} {kind}")


def at(schema: Schema, path: list[str]) -> Schema | None:
    """What a path leads to; nothing where a part of it is no field."""
    for part in path:
        found = schema.get("properties", {}).get(part) or schema.get("additionalProperties")
        if not isinstance(found, dict):
            return None
        schema = found
    return schema


def is_scalar(schema: Schema) -> bool:
    return schema.get("type") in SCALARS or bool(schema.get("x-kubernetes-int-or-string"))


def is_of_texts(schema: Schema) -> bool:
    values = schema.get("additionalProperties")
    return isinstance(values, dict) and is_scalar(values)


def wrong_labels(schema: Schema, labels: dict[str, list[str]]) -> Iterator[str]:
    for label, path in labels.items():
        found = at(schema, path)
        fits = is_of_texts if label.endswith("*") else is_scalar
        if found is None or not fits(found):
            yield f"the label {label} by {path}"


def wrong_each(schema: Schema, each: Any) -> Iterator[str]:
    """What kube-state-metrics could not show of such an object."""
    key, known = OF_EACH[each["type"]]
    body = each[key]
    if surplus := (set(body) - known) | (set(each) - {"type", key}):
        yield f"unknown: {sorted(surplus)}"
    path = body.get("path", [])
    found = at(schema, path)
    if found is None:
        yield f"the path {path}"
        return
    if each["type"] == "Gauge":
        if not is_scalar(found):
            yield f"the path {path} of a gauge leads to no value"
        return
    # Each element of a list is a sample of its own.
    element = found["items"] if found.get("type") == "array" else found
    yield from wrong_labels(element, body.get("labelsFromPath", {}))
    if each["type"] == "StateSet":
        value = at(element, body["valueFrom"])
        if value is None or value.get("type") != "string" or not body["list"] or not body["labelName"]:
            yield f"the value {body['valueFrom']}"


def wrong(resources: list[Any]) -> list[str]:
    """Everything that does not fit, by the metric that it is of."""
    found: list[str] = []
    for resource in resources:
        schema = definition(**resource["groupVersionKind"])
        prefix = resource["metricNamePrefix"]
        found += [f"{prefix}: unknown: {each}" for each in sorted(set(resource) - OF_RESOURCE)]
        found += [f"{prefix}: {each}" for each in wrong_labels(schema, resource["labelsFromPath"])]
        for metric in resource["metrics"]:
            name = f"{prefix}_{metric['name']}"
            found += [f"{name}: unknown: {each}" for each in sorted(set(metric) - OF_METRIC)]
            found += [f"{name}: {each}" for each in wrong_each(schema, metric["each"])]
    return found


def names(resources: list[Any]) -> list[str]:
    return [f"{each['metricNamePrefix']}_{metric['name']}" for each in resources for metric in each["metrics"]]


def test_each_path_is_in_the_definitions_and_leads_to_what_its_metric_shows() -> None:
    assert wrong(configuration()) == []


def test_names_are_unique_and_each_has_a_help() -> None:
    found = names(configuration())
    assert len(set(found)) == len(found) > 8
    assert all(name.startswith(PREFIX) for name in found)
    for resource in configuration():
        assert set(resource["labelsFromPath"]) == {"name", "namespace"}
        assert all(metric["help"].endswith(".") for metric in resource["metrics"])


MACHINE_SPEC = ["spec", "template", "spec"]
CONDITIONS = {"path": ["status", "conditions"], "labelName": "status", "valueFrom": ["status"], "list": ["True"]}


@pytest.mark.parametrize(
    "each",
    [
        # A field that there is not, below an object, a list and a map.
        {"type": "Gauge", "gauge": {"path": [*MACHINE_SPEC, "domain", "cpu", "kernels"]}},
        {"type": "Info", "info": {"path": [*MACHINE_SPEC, "volumes"], "labelsFromPath": {"volume": ["title"]}}},
        {"type": "Info", "info": {"labelsFromPath": {"app": ["metadata", "labels", "app", "name"]}}},
        # An object, of which a gauge would have a sample for each key.
        {"type": "Gauge", "gauge": {"path": [*MACHINE_SPEC, "domain", "resources", "requests"]}},
        {"type": "Gauge", "gauge": {"path": [*MACHINE_SPEC, "domain", "cpu"], "valueFrom": ["cores"]}},
        # All of a map, which is a value; and the other way round.
        {"type": "Info", "info": {"labelsFromPath": {"label_*": ["metadata", "name"]}}},
        {"type": "Info", "info": {"labelsFromPath": {"label": ["metadata", "labels"]}}},
        {"type": "StateSet", "stateSet": CONDITIONS | {"valueFrom": ["state"]}},
        {"type": "StateSet", "stateSet": CONDITIONS | {"list": []}},
        {"type": "StateSet", "stateSet": CONDITIONS | {"nilIsZero": True}},
    ],
)
def test_what_does_not_fit_is_found(each: Any) -> None:
    machines = definition("kubevirt.io", "v1", "VirtualMachine")
    assert list(wrong_each(machines, each))
