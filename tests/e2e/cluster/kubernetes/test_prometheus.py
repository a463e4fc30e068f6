"""Debian's Prometheus scrapes the cluster, evaluates our rules, and has data for every query of our dashboards and for
what KubeVirt's ask for."""

import json
import pathlib
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NODE_1, NODE_2
from garboard_e2e.cluster.objects import machine
from garboard_e2e.monitoring.rules import all_rules, asked_by_kubevirt, dashboards, groups, queries, written
from garboard_e2e.monitoring.scrape import SERVER_NAME, Scraper
from garboard_e2e.patience import wait_until
from garboard_e2e.processes import free_port

INTERVAL = "5s"
# What kube-state-metrics or the API server has, which are not scraped here.
OF_OTHERS = ("kube_node", "allocatable_nodes", "deprecated")
# Without kube-state-metrics no node has KVM, as far as this one knows (docs/monitoring.md).
OF_NODES = {"KubeVirtNoAvailableNodesToRunVMs", "LowKVMNodesCount"}
# A machine of which there is everything, and one that has come and gone.
WATCHED, PASSING = "watched-closely", "passing"


class Prometheus:
    """One that runs, until it is stopped."""

    def __init__(self, program: str, directory: pathlib.Path, config: Any) -> None:
        self.port = free_port()
        file = written(directory / "prometheus.yml", config)
        self.log = (directory / "prometheus.log").open("wb")
        storage = f"--storage.tsdb.path={directory / 'data'}"
        listens = f"--web.listen-address=127.0.0.1:{self.port}"
        command = [program, f"--config.file={file}", storage, listens]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def api(self, path: str, **parameters: str) -> Any:
        address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=15) as answer:
            return json.load(answer)["data"]

    def has(self, query: str) -> list[Any]:
        found: list[Any] = self.api("query", query=query)["result"]
        return found

    def targets(self) -> list[Any]:
        try:
            found: list[Any] = self.api("targets")["activeTargets"]
        except OSError:
            return []
        return found

    def scrapes(self) -> None:
        def are_up() -> bool:
            found = self.targets()
            return len(found) == 3 and all(each["health"] == "up" for each in found)

        def problems() -> str:
            return str([(each["scrapeUrl"], each["lastError"]) for each in self.targets()])

        wait_until("three targets that are up", are_up, circumstances=problems)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self.log.close()


def scrape(job: str, scraper: Scraper, token: str, authorities: pathlib.Path, paths: list[str]) -> Any:
    target = f"127.0.0.1:{scraper.forwarded.port}"
    return {
        "job_name": job,
        "scheme": "https",
        "honor_labels": True,
        "authorization": {"credentials": token},
        "tls_config": {"ca_file": str(authorities), "server_name": SERVER_NAME},
        "static_configs": [{"targets": [target], "labels": {"__metrics_path__": path}} for path in paths],
        # As the PodMonitor has it: a target for each node.
        "relabel_configs": [
            {"source_labels": ["__metrics_path__"], "regex": "/metrics/nodes/(.*)", "target_label": "instance"}
        ],
    }


@pytest.fixture(scope="module")
def prometheus(scraper: Scraper, token: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    program = shutil.which("prometheus")
    if not program:
        pytest.skip("no prometheus here: apt-get install prometheus")
    directory = tmp_path_factory.mktemp("prometheus")
    authorities = directory / "ca.crt"
    authorities.write_text(scraper.authorities)
    nodes = [f"/metrics/nodes/{node}" for node in (NODE_1, NODE_2)]
    config = {
        "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": [str(written(directory / "rules.yml", groups()))],
        "scrape_configs": [
            scrape("kubevirt-prometheus-metrics", scraper, token, authorities, ["/metrics"]),
            scrape("garboard-node", scraper, token, authorities, nodes),
        ],
    }
    running = Prometheus(program, directory, config)
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def watched(kube: Kube, prometheus: Prometheus) -> Iterator[str]:
    """A machine with a disk, whose guest has an agent and a driver for its balloon, and which says what is in it."""
    closely = machine(WATCHED, tests="agent", volumes=[{"name": "root", "emptyDisk": {"capacity": "16Mi"}}])
    described = {f"vm.kubevirt.io/{label}": "hello" for label in ("os", "workload", "flavor")}
    closely["spec"]["template"]["metadata"]["annotations"] |= described
    kube.start(closely, machine(PASSING))
    kube.becomes("vmi", WATCHED, "AgentConnected")
    kube.has_shell(PASSING)
    kube.remove(PASSING)
    yield WATCHED
    kube.remove(WATCHED)


def test_every_query_of_a_dashboard_has_data(prometheus: Prometheus, watched: str, pair: dict[str, str]) -> None:
    prometheus.scrapes()
    lines = [query for each in dashboards().values() for query in queries(each)]
    wanted = [line for line in lines if not any(part in line for part in OF_OTHERS)]
    assert len(wanted) > 30
    for line in wanted:
        wait_until(f"data for {line}", lambda line=line: prometheus.has(line))  # type: ignore[misc]


def test_what_kubevirts_dashboards_ask_for_has_data_by_each_label(prometheus: Prometheus, watched: str) -> None:
    prometheus.scrapes()
    asked = asked_by_kubevirt()
    assert len(asked) > 25
    for name, labels in asked.items():
        chosen = ",".join(f'{label}!=""' for label in labels)
        query = f"{name}{{{chosen}}}"
        wait_until(f"data for {query}", lambda query=query: prometheus.has(query))  # type: ignore[misc]


def test_rules_are_evaluated_without_an_error(prometheus: Prometheus, watched: str, pair: dict[str, str]) -> None:
    prometheus.scrapes()
    for rule in all_rules():
        if "record" in rule and not any(part in rule["record"] for part in OF_OTHERS):
            wait_until(f"the rule {rule['record']}", lambda rule=rule: prometheus.has(rule["record"]))  # type: ignore[misc]
    wrong = [
        (rule["name"], rule["lastError"])
        for group in prometheus.api("rules")["groups"]
        for rule in group["rules"]
        if rule["health"] == "err"
    ]
    assert not wrong
    firing = {each["labels"]["alertname"] for each in prometheus.api("alerts")["alerts"] if each["state"] == "firing"}
    assert firing <= OF_NODES, "nothing is wrong with this cluster"
