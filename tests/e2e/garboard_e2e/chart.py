"""The Helm chart, and what Helm makes of it."""

import functools
import pathlib
import subprocess
from typing import Any

import yaml

from .places import REPOSITORY, SCRIPTS

CHART = REPOSITORY / "deploy/helm/garboard"
Object = dict[str, Any]


@functools.cache
def helm() -> pathlib.Path:
    """Helm's program; one that is not in the cache is built."""
    fetched = subprocess.run([SCRIPTS / "fetch-helm"], check=True, stdout=subprocess.PIPE, text=True)
    return pathlib.Path(fetched.stdout.strip())


def call(
    *arguments: str, environment: dict[str, str] | None = None, seconds: float = 120
) -> subprocess.CompletedProcess[str]:
    """The ended command `helm`."""
    command = [str(helm()), *arguments]
    return subprocess.run(
        command, env=environment, text=True, capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL
    )


def rendered(*options: str, chart: pathlib.Path = CHART) -> list[Object]:
    """The objects of the chart with these options, definitions among them."""
    done = call("template", "garboard", str(chart), "--include-crds", *options)
    assert done.returncode == 0, done.stderr
    return objects(done.stdout)


def objects(text: str) -> list[Object]:
    """Every object of a manifest."""
    return [found for found in yaml.load_all(text, Loader=yaml.CSafeLoader) if found]


def by_name(found: list[Object]) -> dict[str, Object]:
    """Objects by their kind, namespace and name, each of which there may be once."""
    named = {name_of(each): each for each in found}
    assert len(named) == len(found), sorted(map(name_of, found))
    return named


def name_of(each: Object) -> str:
    metadata = each["metadata"]
    return f"{each['kind']} {metadata.get('namespace', '')}/{metadata['name']}"


def differences(ours: list[Object], theirs: list[Object]) -> list[str]:
    """What is in one of two installations alone, or not the same in both."""
    first, second = by_name(ours), by_name(theirs)
    return [name for name in sorted(first.keys() | second.keys()) if first.get(name) != second.get(name)]
