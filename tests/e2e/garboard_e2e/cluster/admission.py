"""What the API server of a cluster with Garboard answers to manifests, and what `garboard validate` prints for them.
Nothing is stored: each is a dry run on the server."""

import dataclasses
import json
import pathlib
import re
import subprocess
from collections.abc import Sequence
from typing import Any

from ..answer import Answer
from ..places import EXAMPLES, REPOSITORY
from .api import Api, Post
from .names import INSTALLED_IN, Object
from .program import Cluster

CORPUS = REPOSITORY / "tests/conformance/corpus/admission.jsonl"
# What an answer has at most; the rest is counted.
MOST_CAUSES = 10
# Gates that are off by default: with them on, a cluster judges as the command does, which has no cluster's settings.
GATE = re.compile(r'\(Gate::\w+, "(\w+)", Usual::Off\)')
# What the command takes, for a bare host, and a cluster refuses: the case, and a part of the message.
BARE_HOST_ONLY = {"0200": "no guest with this binding starts in a cluster"}
SOUND = EXAMPLES / "vm-hello.yaml"
# What kubectl asks for with `apply --dry-run=server`.
DRY = "dryRun=All&fieldValidation=Strict"
PLURALS = {"VirtualMachine": "virtualmachines", "VirtualMachineInstance": "virtualmachineinstances"}
# Certificates that are renewed while other things are asked, after half of their lives. Twenty seconds of that of an
# authority are for its publication.
SHORT_LIVES = {
    "ca": {"duration": "80s", "renewBefore": "40s"},
    "server": {"duration": "60s", "renewBefore": "30s"},
}


def gates() -> list[str]:
    return GATE.findall((REPOSITORY / "api/src/cluster/gate.rs").read_text())


def settings(spec: Object, name: str = "kubevirt", namespace: str = INSTALLED_IN) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": metadata, "spec": spec}


def with_gates(names: list[str], lives: Object | None = None) -> Object:
    spec: Object = {"configuration": {"developerConfiguration": {"featureGates": names}}}
    return settings(spec | ({"certificateRotateStrategy": {"selfSigned": lives}} if lives else {}))


def dry_run(cluster: Cluster, given: Object | pathlib.Path) -> subprocess.CompletedProcess[str]:
    """kubectl's result for an object, a file of them, or a directory of files."""
    where, text = ("-", json.dumps(given)) if isinstance(given, dict) else (str(given), None)
    command = [cluster.tool, "apply", "--dry-run=server", "-f", where]
    return subprocess.run(command, env=cluster.environment, input=text, capture_output=True, text=True)


def posted(given: Object) -> Post:
    """The same of one machine, without kubectl."""
    place = f"/apis/{given['apiVersion']}/namespaces/{given['metadata']['namespace']}/{PLURALS[given['kind']]}"
    return Post(f"{place}?{DRY}", given)


def sound(cluster: Cluster, name: str = "sound") -> Post:
    """A machine that is taken."""
    given: Object = json.loads(cluster.kubectl("create", "--dry-run=client", "-o", "json", "-f", SOUND, namespace=None))
    return posted(given | {"metadata": {"name": name, "namespace": "default"}})


@dataclasses.dataclass(frozen=True)
class Case:
    """A manifest that KubeVirt was asked about, as it is given to a cluster."""

    # The name of its file.
    stem: str
    number: str
    title: str
    given: Object
    # The gates without which KubeVirt refuses it by fields.
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
        # The cases name namespaces that do not exist here.
        metadata = given.get("metadata", {}) | {"namespace": "default"}
        # kubectl itself does not send what has no name.
        if metadata.get("name") or metadata.get("generateName"):
            without = case.get("withoutGate") or {}
            needed = frozenset(without["gates"] if without.get("fields") else ())
            found.append(Case(f"c{len(found)}", case["id"], case["case"], given | {"metadata": metadata}, needed))
    return found


def ask(api: Api, cases: Sequence[Case]) -> dict[str, Answer]:
    """The API server's answer to each, by the names of their files."""
    answers = api.post_each([posted(case.given) for case in cases])
    return {case.stem: answer for case, answer in zip(cases, answers, strict=True)}


def verdicts(garboard: pathlib.Path, cases: Sequence[Case], directory: pathlib.Path) -> dict[str, list[str]]:
    """The command's messages to each, by the names of files that are written into the directory."""
    for case in cases:
        (directory / f"{case.stem}.json").write_text(json.dumps(case.given))
    done = subprocess.run([garboard, "validate", "-o", "json", directory], capture_output=True, text=True)
    messages = {
        pathlib.Path(verdict["origin"]).stem: [message_of(fault) for fault in verdict["faults"]]
        for verdict in json.loads(done.stdout)
    }
    for case in cases:
        if case.number in BARE_HOST_ONLY:
            messages[case.stem] = [BARE_HOST_ONLY[case.number]]
    return messages


def message_of(fault: dict[str, Any]) -> str:
    advice = f"; {fault['instead']}" if "instead" in fault else ""
    where = f"{fault['path']}: " if fault["path"] else ""
    return f"{where}{fault['message']}{advice}"


def difference(answer: Answer, messages: list[str]) -> str | None:
    """What an answer of the API server has, and should not, beside the messages of the command. Where a client of
    KubeVirt compares a text, the refusal has that, and a warning ours."""
    wanted = messages[:MOST_CAUSES]
    if answer.is_granted:
        return f"the API server takes it, the command does not: {wanted}" if wanted else None
    message = answer.message.strip()
    if not wanted:
        return f"the command takes it, the API server does not: {message}"
    missing = [each for each in wanted if not answer.shows(each)]
    return f"missing: {missing}; but: {message[:600]}, and {answer.warnings}" if missing else None
