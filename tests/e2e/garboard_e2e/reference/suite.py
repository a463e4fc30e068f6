"""Running the functional tests, and reading what came out."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
from collections.abc import Sequence

from ..cluster import virtctl
from ..cluster.build import tools
from ..cluster.kube import Kube
from ..cluster.names import INSTALLED_IN
from ..outcome import Failure
from . import dns
from .preparation import PREFIX, TAG
from .storage import CONFIGURATION

# A specification that takes so long shows where it is.
POLL_AFTER = "300s"
# What the suite asks for where it would reach the Internet.
OUTSIDE = ("-conn-check-ipv4-address", dns.ADDRESS, "-conn-check-dns", dns.OUTSIDE)

Option = str | pathlib.Path


@dataclasses.dataclass(frozen=True)
class Spec:
    """One specification, and how it ended."""

    text: str
    labels: tuple[str, ...]
    # passed, failed, skipped, pending, timedout, panicked, interrupted; of a list, passed or pending.
    state: str
    seconds: float
    failure: str


@dataclasses.dataclass(frozen=True)
class Suite:
    """The compiled tests, and where their log, report and artifacts go."""

    program: pathlib.Path
    directory: pathlib.Path
    # So many run specifications side by side, each in namespaces of its own. Most of a specification's time is cleaning
    # up, in which the suite waits for the rate limit of its own client.
    processes: int = 1

    def selected(self, label: str, focus: str) -> list[Spec]:
        """What a label filter and a regular expression select, in the order of the suite; without a cluster. With
        neither of them it is all that the suite has, pending ones too, which nothing selects."""
        ginkgo = [f"label-filter={label}", "dry-run", *([f"focus={focus}"] if focus else [])]
        left_out = {"skipped", "pending"} if label or focus else {"skipped"}
        alone = dataclasses.replace(self, processes=1)
        return [spec for spec in alone.ginkgo("list", ginkgo, []) if spec.state not in left_out]

    def run(self, kube: Kube, specs: Sequence[str], collect: bool) -> list[Spec]:
        """Specifications by their texts. With `collect` a failure leaves the cluster's objects and logs among the
        artifacts, which takes a minute each."""
        # The suite joins texts of which some end with a space.
        texts = "|".join(re.escape(text).replace(r"\ ", r"\s+") for text in specs)
        ginkgo = [rf"focus=(?:{texts})\s*$", f"poll-progress-after={POLL_AFTER}", "timeout=4h"]
        own: list[Option] = ["-kubeconfig", kube.state / "kubeconfig", "-installed-namespace", INSTALLED_IN]
        own += ["-kubectl-path", tools() / "kubectl", "-virtctl-path", virtctl.fetched(), *OUTSIDE]
        environment = {"REPORTER_MAX_FAILS": "10" if collect else "-1"}
        # What was not to be run is skipped without a reason; pending ones are in every report.
        found = [spec for spec in self.ginkgo("run", ginkgo, own, environment) if spec.state != "pending"]
        return [spec for spec in found if spec.state != "skipped" or spec.failure]

    def ginkgo(
        self, name: str, ginkgo: Sequence[str], own: Sequence[Option], environment: dict[str, str] | None = None
    ) -> list[Spec]:
        """`ginkgo` are options of Ginkgo, `own` of the tests."""
        self.directory.mkdir(parents=True, exist_ok=True)
        settings, report = self.directory / "config.json", self.directory / f"{name}.json"
        settings.write_text(json.dumps(CONFIGURATION))
        report.unlink(missing_ok=True)
        options: list[Option] = ["-config", settings, "-artifacts", self.directory / "artifacts", *own]
        options += ["-apply-default-e2e-configuration=false", "-deploy-testing-infra=false"]
        options += ["-container-prefix", PREFIX, "-container-tag", TAG]
        command = self.command([*ginkgo, "no-color", "seed=1", "v"], report, options)
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

    def command(self, ginkgo: Sequence[str], report: pathlib.Path, own: Sequence[Option]) -> list[Option]:
        """The tests themselves, or for several processes Ginkgo's program, which starts them and joins their reports.
        It knows compiled tests by the ending of their name, and works where they are."""
        if self.processes == 1:
            return [self.program, *(f"--ginkgo.{option}" for option in (*ginkgo, f"json-report={report}")), *own]
        link = self.directory / "suite.test"
        link.unlink(missing_ok=True)
        link.symlink_to(self.program.resolve())
        options = [*ginkgo, f"procs={self.processes}", f"output-dir={report.parent}", f"json-report={report.name}"]
        return [self.program.parent / "ginkgo", "run", *(f"--{option}" for option in options), link, "--", *own]


def read(report: pathlib.Path) -> list[Spec]:
    """What a report of ginkgo has of its specifications. What fails before all of them, or after, is an error."""
    suites, specs = json.loads(report.read_text()), []
    if not suites:
        raise Failure(f"{report} is empty: a process of the suite ended too early")
    for suite in suites:
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
