"""The rules and dashboards of deploy/, and promtool, which judges them."""

import functools
import json
import pathlib
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from ..chart import Object, objects
from ..places import REPOSITORY

MANIFEST = REPOSITORY / "deploy/base/monitoring.yaml"
DASHBOARDS = REPOSITORY / "deploy/monitoring/dashboards"
# What KubeVirt's dashboards ask for.
ASKED = REPOSITORY / "metrics/tests/kubevirt-dashboards.txt"
# Grafana's own variables, and what is chosen in a dashboard.
VARIABLE = re.compile(r"\$__\w+|\$\w+")
VALUES = {"$__rate_interval": "5m"}
# Names in PromQL that are metrics of this project, or made of them.
METRIC = re.compile(r"\b(?:node|namespace|cluster|vmi):kubevirt_\w+:\w+|\b(?:kubevirt|garboard)_\w+")
SUFFIXES = ("_bucket", "_sum", "_count")


def of_kind(kind: str) -> Object:
    (found,) = [each for each in objects(MANIFEST.read_text()) if each["kind"] == kind]
    return found


def groups() -> Object:
    """What a Prometheus without the operator has in a file of rules."""
    spec: Object = of_kind("PrometheusRule")["spec"]
    return spec


def all_rules() -> list[Object]:
    return [rule for group in groups()["groups"] for rule in group["rules"]]


def dashboards() -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in sorted(DASHBOARDS.glob("*.json"))}


def queries(dashboard: Any) -> list[str]:
    """Its PromQL, with something in the place of each variable."""
    lines = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [VARIABLE.sub(lambda found: VALUES.get(found[0], ".*"), line) for line in lines]


def asked_by_kubevirt() -> dict[str, list[str]]:
    """The metrics that KubeVirt's dashboards ask for, with the labels they use; without those that are not here."""
    lines = [line for line in ASKED.read_text().splitlines() if line and not line.startswith("#") and " # " not in line]
    return {name: labels for name, *labels in map(str.split, lines)}


def metrics_of(promql: str) -> set[str]:
    """The metrics that are named; of a part of a histogram its name."""
    return {whole(name) for name in METRIC.findall(promql)}


def whole(name: str) -> str:
    bases = [name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)]
    return next((base for base in bases if base in documented()), name)


@functools.cache
def documented() -> set[str]:
    """Every metric that docs/metrics.md has."""
    return set(re.findall(r"^\| `([\w:]+)` \|", (REPOSITORY / "docs/metrics.md").read_text(), re.M))


@functools.cache
def promtool() -> str:
    """Debian's `promtool`, of the package prometheus."""
    found = shutil.which("promtool")
    if not found:
        pytest.skip("no promtool here: apt-get install prometheus")
    return found


def judged(*arguments: str | pathlib.Path) -> str:
    done = subprocess.run([promtool(), *map(str, arguments)], text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def written(path: pathlib.Path, content: Any) -> pathlib.Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path
