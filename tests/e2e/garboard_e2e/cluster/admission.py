"""What the API server of a cluster with Garboard answers to manifests, and what `garboard validate` says to the same.
Nothing is stored: each is a dry run on the server."""

import dataclasses
import json
import pathlib
import re
import subprocess
import time
from collections.abc import Callable, Iterable
from typing import Any

from ..outcome import Failure
from ..patience import PATIENCE
from ..places import EXAMPLES, REPOSITORY
from .names import INSTALLED_IN, Object
from .program import Cluster

CORPUS = REPOSITORY / "tests/conformance/corpus/admission.jsonl"
# What an answer has at most; the rest is counted.
MOST_CAUSES = 10
# Gates that are off by themselves: with them on, a cluster judges as the command does, which knows no cluster.
GATE = re.compile(r'\(Gate::\w+, "(\w+)", Usual::Off\)')
# What the command takes, which knows no cluster, and a cluster refuses: the case, and a part of the sentence.
BARE_HOST_ONLY = {"0200": "no guest with this binding starts in a cluster"}
SOUND = EXAMPLES / "vm-hello.yaml"


def gates() -> list[str]:
    return GATE.findall((REPOSITORY / "api/src/cluster/gate.rs").read_text())


def settings(spec: Object, name: str = "kubevirt", namespace: str = INSTALLED_IN) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": metadata, "spec": spec}


def with_gates(names: list[str]) -> Object:
    return settings({"configuration": {"developerConfiguration": {"featureGates": names}}})


def dry_run(cluster: Cluster, given: Object | pathlib.Path) -> subprocess.CompletedProcess[str]:
    """What kubectl says to an object, to a file of them, or to a directory of files."""
    where, text = ("-", json.dumps(given)) if isinstance(given, dict) else (str(given), None)
    command = [cluster.tool, "apply", "--dry-run=server", "-f", where]
    return subprocess.run(command, env=cluster.environment, input=text, capture_output=True, text=True)


@dataclasses.dataclass(frozen=True)
class Case:
    """A manifest that the reference was asked about, as it is given to a cluster."""

    # The name of its file.
    stem: str
    number: str
    title: str
    given: Object
    # The gates without which the reference refuses it by fields.
    gates: frozenset[str]

    @property
    def name(self) -> str:
        return f"{self.number} ({self.title})"


def cases() -> list[Case]:
    found: list[Case] = []
    for line in CORPUS.read_text().splitlines():
        case = json.loads(line)
        given = {key: value for key, value in case["object"].items() if key != "status"}
        if given.get("kind") not in ("VirtualMachine", "VirtualMachineInstance"):
            continue
        # Who asked the reference chose namespaces that do not exist here.
        metadata = given.get("metadata", {}) | {"namespace": "default"}
        # kubectl itself does not send what has no name.
        if metadata.get("name") or metadata.get("generateName"):
            without = case.get("withoutGate") or {}
            needed = frozenset(without["gates"] if without.get("fields") else ())
            found.append(Case(f"c{len(found)}", case["id"], case["case"], given | {"metadata": metadata}, needed))
    return found


def write(cases: Iterable[Case], directory: pathlib.Path) -> pathlib.Path:
    """A file for each."""
    directory.mkdir()
    for case in cases:
        (directory / f"{case.stem}.json").write_text(json.dumps(case.given))
    return directory


Answers = dict[str, str | None]


def answers(cluster: Cluster, directory: pathlib.Path) -> Answers:
    """What the API server says to each file of a directory: None if it takes it, or the text of the refusal."""
    done = dry_run(cluster, directory)
    refused = {}
    for part in re.split(r"^(?=Error from server)", done.stderr, flags=re.M)[1:]:
        named = re.search(r'"[^"]*/(c\d+)\.json"', part)
        if named is None:
            raise Failure(f"kubectl refuses a file that it does not name: {part}")
        refused[named.group(1)] = part
    return {path.stem: refused.get(path.stem) for path in directory.iterdir()}


def await_answers(cluster: Cluster, directory: pathlib.Path, settled: Callable[[Answers], bool]) -> Answers:
    """Settings reach every replica a moment after they are written. The last answers, settled or not: each of them is
    judged by itself."""
    end = time.monotonic() + PATIENCE
    while True:
        said = answers(cluster, directory)
        if settled(said) or time.monotonic() > end:
            return said


def verdicts(garboard: pathlib.Path, directory: pathlib.Path) -> dict[str, list[str]]:
    """What the command says: the sentences to each file."""
    done = subprocess.run([garboard, "validate", "-o", "json", directory], capture_output=True, text=True)
    return {
        pathlib.Path(verdict["origin"]).stem: [sentence(fault) for fault in verdict["faults"]]
        for verdict in json.loads(done.stdout)
    }


def sentence(fault: dict[str, Any]) -> str:
    advice = f"; {fault['instead']}" if "instead" in fault else ""
    where = f"{fault['path']}: " if fault["path"] else ""
    return f"{where}{fault['message']}{advice}"


def difference(answer: str | None, sentences: list[str]) -> str | None:
    """What an answer of the API server has, and should not, beside the sentences of the command."""
    wanted = sentences[:MOST_CAUSES]
    if answer is None:
        return f"the API server takes it, the command does not: {wanted}" if wanted else None
    if not wanted:
        return f"the command takes it, the API server does not: {answer.strip()}"
    missing = [each for each in wanted if each not in answer]
    return f"not said: {missing}; but: {answer.strip()[:600]}" if missing else None
