"""The Prometheus that KubeVirt's functional tests of monitoring ask: what it is given of the objects of a cluster, and
when; and what is run with it."""

import argparse
import json
import pathlib
import re
from typing import Any

import pytest

from garboard_e2e.answer import Answer
from garboard_e2e.cluster import emptying
from garboard_e2e.cluster.build import Build
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, Object
from garboard_e2e.monitoring.rules import all_rules, of_kind
from garboard_e2e.outcome import Failure
from garboard_e2e.reference import __main__ as program
from garboard_e2e.reference import campaign, discovery, prometheus, results, scrapes
from garboard_e2e.reference.campaign import Campaign
from garboard_e2e.reference.preparation import OPERATOR
from garboard_e2e.reference.suite import Spec, Suite

MONITORS = [of_kind("ServiceMonitor"), of_kind("PodMonitor")]
OF_GARBOARD = {"app.kubernetes.io/name": "garboard"}


def there(kind: str, name: str, labels: dict[str, str] | None = None, **content: Any) -> Object:
    return {"kind": kind, "metadata": {"namespace": INSTALLED_IN, "name": name, "labels": labels or {}}} | content


def pod(name: str, address: str, component: str, **containers: Any) -> Object:
    return there(
        "Pod",
        name,
        OF_GARBOARD | {"app.kubernetes.io/component": component},
        spec={"nodeName": "node-1"} | containers,
        status={"podIP": address, "phase": "Running"},
    )


CONTROLLER = pod(
    "garboard-controller-1",
    "10.244.1.2",
    "controller",
    containers=[{"name": "controller", "ports": [{"name": "metrics", "containerPort": 8446}]}],
)
AGENT = pod("garboard-node-1", "10.244.1.3", "node", containers=[{"name": "node"}], initContainers=[{"name": "facts"}])
PENDING = there("Pod", "garboard-node-2", spec={"containers": [{"name": "node"}]}, status={"phase": "Pending"})
SERVICE = there("Service", "kubevirt-prometheus-metrics", OF_GARBOARD | {"prometheus.kubevirt.io": "true"})
ADDRESSES = there(
    "Endpoints",
    "kubevirt-prometheus-metrics",
    subsets=[
        {
            "addresses": [{"ip": "10.244.1.2", "targetRef": {"kind": "Pod", "name": "garboard-controller-1"}}],
            "ports": [{"name": "metrics", "port": 8446}],
        }
    ],
)
FOUND = [CONTROLLER, AGENT, PENDING, SERVICE, ADDRESSES]


def relabelled(target: dict[str, Any], rules: list[Object]) -> dict[str, str] | None:
    """What Prometheus makes of the labels of a target, or None where it drops it."""
    labels = {"__address__": target["targets"][0]} | target["labels"]
    for rule in rules:
        source = rule.get("separator", ";").join(labels.get(name, "") for name in rule.get("source_labels", []))
        matched = re.fullmatch(rule.get("regex", "(.*)"), source)
        action = rule.get("action", "replace")
        if action != "replace":
            if bool(matched) != (action == "keep"):
                return None
        elif matched:
            labels[rule["target_label"]] = re.sub(r"\$\{?1\}?", matched[1], rule.get("replacement", "$1"))
    return {name: value for name, value in labels.items() if value and not name.startswith("__meta_")}


def targets(kind: str) -> list[dict[str, str]]:
    (job,) = scrapes.scrapes(of_kind(kind))
    found = discovery.endpoints(FOUND) if kind == "ServiceMonitor" else discovery.pods(FOUND)
    every = [relabelled(target, job["relabel_configs"]) for target in found]
    return [labels for labels in every if labels is not None]


def test_a_target_has_the_labels_that_the_operator_gives_it() -> None:
    assert targets("ServiceMonitor") == [
        {
            "__address__": "10.244.1.2:8446",
            "namespace": INSTALLED_IN,
            "service": "kubevirt-prometheus-metrics",
            "pod": "garboard-controller-1",
            "container": "controller",
            "job": "kubevirt-prometheus-metrics",
            "endpoint": "metrics",
        }
    ]
    assert targets("PodMonitor") == [
        {
            "__address__": "garboard-metrics.garboard.svc:8446",
            "__metrics_path__": "/metrics/nodes/node-1",
            "instance": "node-1",
            "namespace": INSTALLED_IN,
            "pod": "garboard-node-1",
            "container": "node",
            "job": "garboard-node",
        }
    ]
    rules = {name for rule in all_rules() for name in re.findall(r'job="([\w-]+)"', rule["expr"])}
    assert rules | {scrapes.API_SERVERS_JOB} == prometheus.JOBS


def test_prometheus_reads_what_monitors_name_and_every_rule() -> None:
    token, authorities = scrapes.entries(MONITORS)
    assert (token.kind, token.name, authorities.kind) == ("secret", "garboard-metrics-token", "configmap")
    made = scrapes.files([*MONITORS, of_kind("PrometheusRule"), *FOUND], {token: "abc", authorities: "PEM"})
    assert made[token.file] == "abc"
    configuration = json.loads(made[scrapes.CONFIGURATION])
    read = [*re.findall(rf"{scrapes.DIRECTORY}/([\w.-]+)", made[scrapes.CONFIGURATION])]
    assert set(read) == set(made) - {scrapes.CONFIGURATION}
    assert [job["job_name"] for job in configuration["scrape_configs"]] == [
        "podMonitor/garboard/garboard-node/0",
        "serviceMonitor/garboard/garboard/0",
        scrapes.API_SERVERS_JOB,
    ]
    assert all(job["honor_labels"] for job in configuration["scrape_configs"][:2])
    groups = json.loads(made[scrapes.RULES])["groups"]
    assert [rule for group in groups for rule in group["rules"]] == all_rules()


def test_a_field_of_a_monitor_that_nothing_reads_is_refused() -> None:
    monitor = json.loads(json.dumps(of_kind("ServiceMonitor")))
    monitor["spec"]["endpoints"][0]["metricRelabelings"] = []
    with pytest.raises(Failure, match="metricRelabelings"):
        scrapes.scrapes(monitor)
    del monitor["spec"]["endpoints"][0]["metricRelabelings"]
    monitor["spec"]["selector"] = {"matchExpressions": []}
    with pytest.raises(Failure, match="matchExpressions"):
        scrapes.scrapes(monitor)


def test_it_is_called_as_the_suite_looks_for_it_and_goes_with_the_installation(tmp_path: pathlib.Path) -> None:
    service, deployment = prometheus.service(), prometheus.deployment(tmp_path)
    # tests/libmonitoring/prometheus.go
    assert (service["metadata"]["namespace"], service["metadata"]["name"]) == ("monitoring", "prometheus-k8s")
    assert service["spec"]["ports"][0]["port"] == 9090
    assert of_kind("PrometheusRule")["metadata"]["name"] == "prometheus-kubevirt-rules"
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    assert prometheus.NAMESPACE not in emptying.NAMESPACES
    for each in prometheus.rights():
        if "namespace" not in each["metadata"]:
            assert f"{each['kind'].lower()}s" in emptying.INSTALLED_KINDS
            label = "=".join(*each["metadata"]["labels"].items())
            assert ("-l", label) == emptying.OF_GARBOARD


class Played(Kube):
    """A cluster of which is known what is asked here."""

    def __init__(self, replicas: int) -> None:
        self.operator = there("Deployment", OPERATOR, spec={"replicas": replicas})
        self.applied: list[Object] = []
        self.shown: list[Object] = []

    def items(self, *arguments: Any, namespace: str | None = "") -> list[Object]:
        return [self.operator] if arguments == ("deployments",) else self.shown

    def apply(self, *objects: Object, **options: Any) -> str:
        self.applied += objects
        return ""


@pytest.fixture
def beside(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the files of Prometheus are put; they are whose the test is."""
    monkeypatch.setattr(prometheus, "PLACE", str(tmp_path))
    monkeypatch.setattr("os.chown", lambda *_: None)


@pytest.mark.usefixtures("beside")
def test_rules_that_a_test_has_changed_come_back_when_the_operator_does() -> None:
    ours = of_kind("PrometheusRule")
    changed = ours | {"spec": {"groups": []}}
    for replicas, present, expected in (
        (0, [changed], []),
        (0, [], []),
        (1, [ours], []),
        (1, [changed], [ours]),
        (1, [], [ours]),
    ):
        kube = Played(replicas)
        watches = prometheus.Prometheus(kube)
        watches.rules = prometheus.rewritten(ours)
        watches.restore([*present, SERVICE])
        assert [each["spec"] for each in kube.applied] == [each["spec"] for each in expected]


@pytest.mark.usefixtures("beside")
def test_only_a_change_of_what_is_no_target_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    kube, asked = Played(1), list[str]()
    watches = prometheus.Prometheus(kube)
    watches.rules = prometheus.rewritten(of_kind("PrometheusRule"))
    monkeypatch.setattr(watches, "read", lambda entry: f"of {entry.name}")

    def ask(method: str, path: str) -> Answer:
        asked.append(path)
        return Answer(200, "")

    monkeypatch.setattr(watches, "ask", ask)
    kube.shown = [*MONITORS, of_kind("PrometheusRule"), *FOUND]
    watches.look()
    assert asked == ["/-/reload"]
    assert (watches.place / "secret_garboard_garboard-metrics-token_token").read_text() == "of garboard-metrics-token"
    kube.shown = [*MONITORS, of_kind("PrometheusRule"), CONTROLLER, SERVICE]
    watches.look()
    assert asked == ["/-/reload"]
    assert json.loads((watches.place / scrapes.TARGETS["endpoints"]).read_text()) == []
    kube.operator["spec"]["replicas"] = 0
    kube.shown = [*MONITORS, of_kind("PrometheusRule") | {"spec": {"groups": []}}, *FOUND]
    watches.look()
    assert asked == ["/-/reload"] * 2
    assert json.loads((watches.place / scrapes.RULES).read_text()) == {"groups": []}


class Ordered(Suite):
    """A suite with an ordered container: of what is to be run the first one fails, and nothing after it is begun."""

    def run(self, kube: Kube, specs: Any, collect: bool) -> list[Spec]:
        held = "Spec skipped because an earlier spec in an ordered container failed"
        first, *rest = sorted(specs)
        return [Spec(first, (), "failed", 1, "no"), *(Spec(text, (), "skipped", 0, held) for text in rest)]


def test_what_an_ordered_container_does_not_begin_is_run_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "clear", lambda _: None)
    monkeypatch.setattr(results, "save", lambda _: None)
    ran = Campaign(Ordered(tmp_path, tmp_path), 16, 60, False, lambda _: None)
    outcome = ran.run(Played(0), ["third", "first", "second"])
    assert [(result.text, result.state) for result in outcome.found] == [
        ("first", "failed"),
        ("second", "failed"),
        ("third", "failed"),
    ]
    assert outcome.lost == []


@pytest.mark.parametrize("label", ["sig-monitoring", "sig-compute"])
def test_prometheus_is_there_for_those_that_want_it_alone(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[bool] = []

    class Begun(Exception):
        """Nothing is run here."""

    def prepared(shared: object, suite: object, is_monitored: bool) -> None:
        wanted.append(is_monitored)
        raise Begun

    monkeypatch.setattr(program, "prepared", prepared)
    monkeypatch.setattr(program, "Shared", lambda *_: None)
    monkeypatch.setattr(Build, "made", lambda _: None)
    listed = Suite(pathlib.Path("suite"), pathlib.Path())
    monkeypatch.setattr(Suite, "selected", lambda *_: [Spec("VM starts", (label,), "passed", 0, "")])
    chosen = argparse.Namespace(
        programs=pathlib.Path(), label=label, focus="", without_known=False, failures_first=False, new=False
    )
    chosen.portion, chosen.minutes, chosen.collect, chosen.keep_cluster = 16, 1, False, True
    with pytest.raises(Begun):
        program.run(chosen, listed, program.chosen_results(chosen, listed))
    assert wanted == [label == "sig-monitoring"]
