"""Running the functional tests, and reading what came out."""

import dataclasses
import json
import pathlib
import subprocess

from ..cluster.build import tools
from ..cluster.kube import Kube
from ..cluster.names import INSTALLED_IN
from ..outcome import Failure
from .preparation import PREFIX, STORAGE, TAG

# Seconds that one specification may take before ginkgo calls it stuck.
POLL_AFTER = "300s"
CLASSES = {"storageClassRhel": "rhel", "storageClassWindows": "windows", "storageRWOFileSystem": STORAGE}


@dataclasses.dataclass(frozen=True)
class Spec:
    """One specification, and how it ended."""

    text: str
    labels: tuple[str, ...]
    # passed, failed, skipped, pending, timedout, panicked, interrupted.
    state: str
    seconds: float
    failure: str


def run(kube: Kube, program: pathlib.Path, directory: pathlib.Path, label: str, focus: str, dry: bool) -> list[Spec]:
    """The specifications that a label filter and a regular expression select."""
    directory.mkdir(parents=True, exist_ok=True)
    settings, report = directory / "config.json", directory / "report.json"
    settings.write_text(json.dumps(CLASSES))
    command = [program, "-kubeconfig", kube.state / "kubeconfig", "-installed-namespace", INSTALLED_IN]
    command += ["-kubectl-path", tools() / "kubectl", "-config", settings, "-artifacts", directory / "artifacts"]
    command += ["-apply-default-e2e-configuration=false", "-deploy-testing-infra=false"]
    command += ["-container-prefix", PREFIX, "-container-tag", TAG]
    command += ["-utility-container-prefix", PREFIX, "-utility-container-tag", TAG]
    command += [f"--ginkgo.label-filter={label}", f"--ginkgo.json-report={report}", "--ginkgo.no-color"]
    command += [f"--ginkgo.poll-progress-after={POLL_AFTER}", "--ginkgo.timeout=3h"]
    command += [f"--ginkgo.focus={focus}"] if focus else []
    command += ["--ginkgo.dry-run"] if dry else []
    with (directory / "log").open("w") as log:
        subprocess.run([str(each) for each in command], stdout=log, stderr=subprocess.STDOUT, cwd=directory)
    if not report.exists():
        raise Failure(f"the suite made no report; see {directory / 'log'}")
    return read(report)


def read(report: pathlib.Path) -> list[Spec]:
    """What a report of ginkgo has of specifications that were selected, and of what comes before all of them."""
    specs = []
    for suite in json.loads(report.read_text()):
        for each in suite["SpecReports"] or []:
            is_spec = each["LeafNodeType"] == "It"
            if each["State"] == "skipped" or (not is_spec and each["State"] == "passed"):
                continue
            labels = [label for group in (each["ContainerHierarchyLabels"] or []) for label in group or []]
            text = " ".join([*(each["ContainerHierarchyTexts"] or []), each["LeafNodeText"] or each["LeafNodeType"]])
            message = (each.get("Failure") or {}).get("Message", "")
            labels += each["LeafNodeLabels"] or []
            specs.append(Spec(text, tuple(labels), each["State"], each["RunTime"] / 1e9, message))
    return specs
