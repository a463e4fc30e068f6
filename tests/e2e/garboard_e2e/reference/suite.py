"""Running the functional tests, and reading what came out."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
from collections.abc import Sequence

from ..cluster.build import tools
from ..cluster.kube import Kube
from ..cluster.names import INSTALLED_IN
from ..outcome import Failure
from .preparation import PREFIX, TAG
from .storage import CONFIGURATION

# A specification that takes so long shows where it is.
POLL_AFTER = "300s"


@dataclasses.dataclass(frozen=True)
class Spec:
    """One specification, and how it ended."""

    text: str
    labels: tuple[str, ...]
    # passed, failed, skipped, pending, timedout, panicked, interrupted; of a list alone, passed.
    state: str
    seconds: float
    failure: str


@dataclasses.dataclass(frozen=True)
class Suite:
    """The compiled tests, and where their log, report and artifacts go."""

    program: pathlib.Path
    directory: pathlib.Path

    def selected(self, label: str, focus: str) -> list[Spec]:
        """What a label filter and a regular expression select, in the order of the suite; without a cluster."""
        options: list[str | pathlib.Path] = [f"--ginkgo.label-filter={label}", "--ginkgo.dry-run"]
        options += [f"--ginkgo.focus={focus}"] if focus else []
        return [spec for spec in self.ginkgo("list", options) if spec.state != "skipped"]

    def run(self, kube: Kube, specs: Sequence[str], collect: bool) -> list[Spec]:
        """Specifications by their texts. With `collect` a failure leaves the cluster's objects and logs among the
        artifacts, which takes a minute each."""
        # The suite joins texts of which some end with a space.
        texts = "|".join(re.escape(text).replace(r"\ ", r"\s+") for text in specs)
        options: list[str | pathlib.Path] = [
            "-kubeconfig",
            kube.state / "kubeconfig",
            "-installed-namespace",
            INSTALLED_IN,
        ]
        options += ["-kubectl-path", tools() / "kubectl", rf"--ginkgo.focus=(?:{texts})\s*$"]
        options += [f"--ginkgo.poll-progress-after={POLL_AFTER}", "--ginkgo.timeout=4h"]
        environment = {"REPORTER_MAX_FAILS": "10" if collect else "-1"}
        return [spec for spec in self.ginkgo("run", options, environment) if spec.state != "skipped" or spec.failure]

    def ginkgo(
        self, name: str, options: Sequence[str | pathlib.Path], environment: dict[str, str] | None = None
    ) -> list[Spec]:
        self.directory.mkdir(parents=True, exist_ok=True)
        settings, report = self.directory / "config.json", self.directory / f"{name}.json"
        settings.write_text(json.dumps(CONFIGURATION))
        report.unlink(missing_ok=True)
        command = [self.program, "-config", settings, "-artifacts", self.directory / "artifacts", *options]
        command += ["-apply-default-e2e-configuration=false", "-deploy-testing-infra=false"]
        command += ["-container-prefix", PREFIX, "-container-tag", TAG]
        command += [f"--ginkgo.json-report={report}", "--ginkgo.no-color", "--ginkgo.seed=1", "--ginkgo.v"]
        with (self.directory / f"{name}.log").open("a") as log:
            subprocess.run(
                [str(each) for each in command],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env=os.environ | (environment or {}),
            )
        if not report.exists():
            raise Failure(f"the suite made no report; see {self.directory / name}.log")
        return read(report)


def read(report: pathlib.Path) -> list[Spec]:
    """What a report of ginkgo has of its specifications. What fails before all of them, or after, is an error."""
    specs = []
    for suite in json.loads(report.read_text()):
        for each in suite["SpecReports"] or []:
            message = (each.get("Failure") or {}).get("Message", "")
            if each["LeafNodeType"] == "It":
                groups = [*(each["ContainerHierarchyLabels"] or []), each["LeafNodeLabels"]]
                labels = sorted({label for group in groups for label in group or []})
                texts = [*(each["ContainerHierarchyTexts"] or []), each["LeafNodeText"]]
                text = " ".join(text for text in texts if text)
                specs.append(Spec(text, tuple(labels), each["State"], each["RunTime"] / 1e9, message))
            elif each["State"] in ("failed", "panicked", "timedout") and "Before" in each["LeafNodeType"]:
                raise Failure(f"{each['LeafNodeType']} of the suite: {message[:600]}")
    return specs
