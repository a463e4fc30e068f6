"""Rules, dashboards and what Prometheus' operator gets: they name metrics that there are, and promtool takes them."""

import pathlib
from typing import Any

import pytest

from garboard_e2e.chart import rendered
from garboard_e2e.monitoring.rules import (
    METRIC,
    all_rules,
    dashboards,
    documented,
    groups,
    judged,
    metrics_of,
    of_kind,
    queries,
    written,
)
from garboard_e2e.places import REPOSITORY

VM = 'namespace="ns",name="vm"'


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in all_rules() if "alert" in rule]


def test_every_alert_has_a_page_a_severity_and_metrics_that_there_are() -> None:
    pages = {page.stem for page in (REPOSITORY / "docs/runbooks").glob("*.md")} - {"README"}
    assert {alert["alert"] for alert in alerts()} == pages
    for alert in alerts():
        assert alert["annotations"]["runbook"] == f"docs/runbooks/{alert['alert']}.md"
        assert alert["labels"]["severity"] in ("critical", "warning", "info")
        assert alert["annotations"]["summary"].endswith(".")


def test_rules_and_dashboards_name_metrics_that_there_are() -> None:
    recorded = {rule["record"] for rule in all_rules() if "record" in rule}
    texts = [rule["expr"] for rule in all_rules()]
    texts += [query for each in dashboards().values() for query in queries(each)]
    for text in texts:
        assert METRIC.search(text) or "kube_" in text or "up{" in text, text
        assert metrics_of(text) <= documented(), text
    assert recorded <= documented()


def test_dashboards_are_whole() -> None:
    found = dashboards()
    assert set(found) == {"machines.json", "cluster.json"}
    for name, each in found.items():
        ids = [panel["id"] for panel in each["panels"]]
        assert len(set(ids)) == len(ids), name
        assert all(panel["datasource"]["uid"] == "${datasource}" for panel in each["panels"]), name
        assert each["templating"]["list"][0]["type"] == "datasource", name
    assert len({each["uid"] for each in found.values()}) == len(found)


def test_both_scrape_with_a_token_and_keep_the_labels_of_machines() -> None:
    (controllers,) = of_kind("ServiceMonitor")["spec"]["endpoints"]
    (nodes,) = of_kind("PodMonitor")["spec"]["podMetricsEndpoints"]
    for each in (controllers, nodes):
        assert each["honorLabels"] is True and each["scheme"] == "https"
        assert each["authorization"]["credentials"] == {"name": "garboard-metrics-token", "key": "token"}
        assert "insecureSkipVerify" not in each["tlsConfig"]
    for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule"):
        assert of_kind(kind)["metadata"]["labels"]["prometheus.kubevirt.io"] == "true"


@pytest.mark.parametrize("namespace", ["garboard", "vms"])
def test_the_chart_has_it_where_it_is_wanted_and_in_its_own_namespace(namespace: str) -> None:
    kinds = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
    assert not [each for each in rendered("--namespace", namespace) if each["kind"] in kinds]
    found = [
        each for each in rendered("--namespace", namespace, "--set", "monitoring.enabled=true") if each["kind"] in kinds
    ]
    assert [each["metadata"]["namespace"] for each in found] == [namespace] * 3
    monitors = {each["kind"]: each["spec"] for each in found}
    (nodes,) = monitors["PodMonitor"]["podMetricsEndpoints"]
    assert nodes["tlsConfig"]["serverName"] == f"garboard-webhook.{namespace}.svc"
    assert nodes["relabelings"][-1]["replacement"] == f"garboard-metrics.{namespace}.svc:8446"


def test_promtool_takes_every_rule_and_every_query_of_a_dashboard(tmp_path: pathlib.Path) -> None:
    judged("check", "rules", written(tmp_path / "rules.yml", groups()))
    lines = [query for each in dashboards().values() for query in queries(each)]
    rules = [{"record": f"query:{number}", "expr": line} for number, line in enumerate(lines)]
    assert len(rules) > 30
    judged("check", "rules", written(tmp_path / "queries.yml", {"groups": [{"name": "queries", "rules": rules}]}))


# What is scraped, and whether the alert fires after its time: one case that fires and one that does not, of each.
CONTROLLERS, NODES = 'up{job="kubevirt-prometheus-metrics",instance="%s"}', 'up{job="garboard-node",instance="%s"}'
NODE = 'kube_node_status_allocatable{node="%s",resource="devices_kubevirt_io_kvm"}'
TWO_NODES: dict[str, float] = {NODE % "a": 110, NODE % "b": 110}
CASES: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "VirtControllerDown": ({CONTROLLERS % "a": 0}, {CONTROLLERS % "a": 1}),
    "LowVirtControllersCount": (
        TWO_NODES | {"kubevirt_virt_controller_ready_status": 1},
        {NODE % "a": 110, "kubevirt_virt_controller_ready_status": 1},
    ),
    "NoReadyVirtController": (
        {"kubevirt_virt_controller_ready_status": 0},
        {"kubevirt_virt_controller_ready_status": 1},
    ),
    "LowReadyVirtControllersCount": (
        {CONTROLLERS % "a": 1, CONTROLLERS % "b": 1, "kubevirt_virt_controller_ready_status": 1},
        {CONTROLLERS % "a": 1, "kubevirt_virt_controller_ready_status": 1},
    ),
    "VirtAPIDown": ({CONTROLLERS % "a": 0}, {CONTROLLERS % "a": 1}),
    "VirtHandlerDown": ({NODES % "a": 1, NODES % "b": 0}, {NODES % "a": 1, NODES % "b": 1}),
    "OrphanedVirtualMachineInstances": (
        {f'kubevirt_vmi_info{{node="a",phase="running",{VM}}}': 1},
        {f'kubevirt_vmi_info{{node="a",phase="running",{VM}}}': 1, 'garboard_node_machines{node="a"}': 1},
    ),
    "VMCannotBeEvicted": (
        {f'kubevirt_vmi_non_evictable{{node="a",{VM}}}': 1, f'kubevirt_vmi_info{{phase="running",{VM}}}': 1},
        {f'kubevirt_vmi_non_evictable{{node="a",{VM}}}': 0, f'kubevirt_vmi_info{{phase="running",{VM}}}': 1},
    ),
    "OutdatedVirtualMachineInstanceWorkloads": (
        {"kubevirt_vmi_number_of_outdated": 1},
        {"kubevirt_vmi_number_of_outdated": 0},
    ),
    "VirtualMachineStuckInUnhealthyState": (
        {f'kubevirt_vm_info{{status="starting",status_group="starting",{VM}}}': 1},
        {
            f'kubevirt_vm_info{{status="starting",status_group="starting",{VM}}}': 1,
            f'kubevirt_vmi_info{{phase="scheduling",{VM}}}': 1,
        },
    ),
    "VirtualMachineStuckOnNode": (
        {
            f'kubevirt_vm_info{{status="stopping",status_group="non_running",{VM}}}': 1,
            f'kubevirt_vmi_info{{node="a",phase="running",{VM}}}': 1,
        },
        {
            f'kubevirt_vm_info{{status="running",status_group="running",{VM}}}': 1,
            f'kubevirt_vmi_info{{node="a",phase="running",{VM}}}': 1,
        },
    ),
    "LowKVMNodesCount": ({NODE % "a": 110, NODE % "b": 0}, TWO_NODES),
    "KubeVirtNoAvailableNodesToRunVMs": (
        {NODE % "a": 0, "kubevirt_configuration_emulation_enabled": 0},
        {NODE % "a": 0, "kubevirt_configuration_emulation_enabled": 1},
    ),
    "GarboardNoLeader": (
        {"kubevirt_virt_controller_leading_status": 0},
        {"kubevirt_virt_controller_leading_status": 1},
    ),
    "GarboardCertificateExpires": (
        {"garboard_certificate_expiration_timestamp_seconds": 3000},
        {"garboard_certificate_expiration_timestamp_seconds": 300000},
    ),
    "GarboardMachinesUnanswered": (
        {'garboard_node_scrape_machines_unanswered{node="a"}': 2},
        {'garboard_node_scrape_machines_unanswered{node="a"}': 0},
    ),
}


def test_each_alert_has_its_cases() -> None:
    assert set(CASES) == {alert["alert"] for alert in alerts()}


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_alert_fires_for_its_cause_alone(name: str, tmp_path: pathlib.Path) -> None:
    rules = written(tmp_path / "rules.yml", groups())
    for number, scraped in enumerate(CASES[name]):
        # Whether it fires, by the series that promtool's own rules make of an alert: labels are not compared.
        firing = f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)'
        expected = {"labels": "{}", "value": 1 - number}
        test = {
            "interval": "1m",
            "input_series": [{"series": series, "values": f"{value}+0x2000"} for series, value in scraped.items()],
            "promql_expr_test": [{"expr": firing, "eval_time": "30h", "exp_samples": [expected]}],
        }
        content = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]}
        judged("test", "rules", written(tmp_path / f"test-{number}.yml", content))


def test_recording_rules_have_the_values_that_they_are_named_for(tmp_path: pathlib.Path) -> None:
    rules = written(tmp_path / "rules.yml", groups())
    series = {
        f'kubevirt_vm_info{{status="running",{VM}}}': 1,
        'kubevirt_vm_info{status="stopped",namespace="ns",name="other"}': 1,
        f'kubevirt_vmi_info{{node="a",phase="running",os="debian",{VM}}}': 1,
        f'kubevirt_vmi_memory_available_bytes{{node="a",{VM}}}': 100,
        f'kubevirt_vmi_memory_usable_bytes{{node="a",{VM}}}': 30,
        f'kubevirt_vmi_vcpu_seconds_total{{node="a",{VM},id="0",state="running"}}': 7,
        f'kubevirt_vmi_vcpu_seconds_total{{node="a",{VM},id="1",state="running"}}': 9,
        CONTROLLERS % "a": 1,
        NODES % "a": 1,
        **TWO_NODES,
    }
    values = {
        "kubevirt_number_of_vms": 2,
        "namespace:kubevirt_vm:sum": 2,
        'kubevirt_vmi_phase_count{phase="running"}': 1,
        'node:kubevirt_vmi_phase:sum{node="a"}': 1,
        "kubevirt_vmi_memory_used_bytes": 70,
        "kubevirt_vmi_vcpu_count": 2,
        "kubevirt_virt_controller_up": 1,
        "kubevirt_virt_api_up": 1,
        "kubevirt_virt_controller_ready": 0,
        "cluster:kubevirt_virt_controller_pods_running:count": 1,
        "kubevirt_virt_handler_up": 1,
        "kubevirt_allocatable_nodes": 2,
        "kubevirt_nodes_with_kvm": 2,
    }
    recorded = {rule["record"] for rule in all_rules() if "record" in rule}
    assert {name.split("{")[0] for name in values} == recorded
    tests = [
        {"expr": f"sum({name})", "eval_time": "10m", "exp_samples": [{"labels": "{}", "value": value}]}
        for name, value in values.items()
    ]
    test = {
        "interval": "1m",
        "input_series": [{"series": each, "values": f"{value}+0x20"} for each, value in series.items()],
        "promql_expr_test": tests,
    }
    content = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]}
    judged("test", "rules", written(tmp_path / "test.yml", content))
