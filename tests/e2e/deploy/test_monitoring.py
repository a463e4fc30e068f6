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
from garboard_e2e.reference import scrapes

VM = 'namespace="ns",name="vm"'


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in all_rules() if "alert" in rule]


def by_name() -> dict[str, dict[str, Any]]:
    """Each alert by its name; with its severity where there are several of the name."""
    found = [alert["alert"] for alert in alerts()]
    return {
        f"{each['alert']}/{each['labels']['severity']}" if found.count(each["alert"]) > 1 else each["alert"]: each
        for each in alerts()
    }


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
        assert METRIC.search(text) or any(other in text for other in ("kube_", "apiserver_", "up{")), text
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


def test_promtool_takes_what_kubevirts_tests_of_monitoring_are_run_with(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DIRECTORY", "ACCOUNT"):
        monkeypatch.setattr(scrapes, name, str(tmp_path))
    monitors = [of_kind("ServiceMonitor"), of_kind("PodMonitor")]
    named = dict.fromkeys(scrapes.entries(monitors), "of an entry")
    made = scrapes.files([*monitors, of_kind("PrometheusRule")], named)
    for name, text in (made | {"token": "", "ca.crt": ""}).items():
        (tmp_path / name).write_text(text)
    judged("check", "config", tmp_path / scrapes.CONFIGURATION)


# What is scraped, and whether the alert fires after its time: one case that fires and one that does not, of each.
CONTROLLERS, NODES = 'up{job="kubevirt-prometheus-metrics",instance="%s"}', 'up{job="garboard-node",instance="%s"}'
NODE = 'kube_node_status_allocatable{node="%s",resource="devices_kubevirt_io_kvm"}'
# A value that stays, or promtool's notation of values that change.
Series = dict[str, float | str]
TWO_NODES: Series = {NODE % "a": 110, NODE % "b": 110}
OFTEN, RARELY, NEVER = "0+90x2000", "0+10x2000", "0+0x2000"
REQUESTS = 'kubevirt_rest_client_requests_total{job="%s",code="%s",method="GET",resource="pods",verb="LIST"}'
OLDER = 'group="kubevirt.io",version="v1alpha3",resource="virtualmachines"'
AGENTS = 'kube_daemonset_status_%s{namespace="garboard",daemonset="garboard-node"}'
FAILED = 'kube_pod_status_phase{namespace="ns",pod="virt-launcher-vm-1",phase="Failed"}'
MEMORY = f'kubevirt_vmi_memory_%s{{node="a",{VM}}}'


def requests(job: str, bad: str, good: str, code: str = "500") -> Series:
    return {REQUESTS % (job, code): bad, REQUESTS % (job, "200"): good}


def asked(verb: str) -> Series:
    """Requests by an older version of the API."""
    deprecated = f'apiserver_requested_deprecated_apis{{{OLDER},removed_release=""}}'
    return {deprecated: 1, f'apiserver_request_total{{{OLDER},verb="{verb}",code="200"}}': RARELY}


def filled(percent: float, kind: str = "ext4") -> Series:
    """A file system of which so much is used."""
    labels = f'node="a",{VM},disk_name="vda1",mount_point="/",file_system_type="{kind}"'
    names = [f"kubevirt_vmi_filesystem_{each}_bytes{{{labels}}}" for each in ("used", "capacity")]
    return {names[0]: percent * 10, names[1]: 1000}


def remembered(usable: float, faults: str, swapped: str = NEVER) -> Series:
    """A guest of 100 bytes, of which so many can be had, with page faults and traffic of its swap space."""
    counted = {"pgmajfault_total": faults, "swap_in_traffic_bytes": swapped, "swap_out_traffic_bytes": NEVER}
    return {MEMORY % "available_bytes": 100, MEMORY % "usable_bytes": usable} | {
        MEMORY % name: values for name, values in counted.items()
    }


CONTROLLERS_JOB, NODES_JOB = "kubevirt-prometheus-metrics", "garboard-node"
# More than 5 faults and a MiB a second, where a sample is taken each minute.
THRASHING, SWAPPING = "0+600x2000", "0+100000000x2000"
CASES: dict[str, tuple[Series, Series]] = {
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
    "LowVirtAPICount": (
        TWO_NODES | {CONTROLLERS % "a": 1},
        TWO_NODES | {CONTROLLERS % "a": 1, CONTROLLERS % "b": 1},
    ),
    "VirtApiRESTErrorsBurst": (requests(CONTROLLERS_JOB, OFTEN, RARELY), requests(CONTROLLERS_JOB, RARELY, OFTEN)),
    "VirtControllerRESTErrorsBurst": (
        requests(CONTROLLERS_JOB, OFTEN, RARELY, code="<error>"),
        requests(NODES_JOB, OFTEN, RARELY) | requests(CONTROLLERS_JOB, NEVER, OFTEN),
    ),
    "VirtHandlerRESTErrorsBurst": (
        requests(NODES_JOB, OFTEN, RARELY, code="404"),
        requests(NODES_JOB, OFTEN, RARELY, code="201") | requests(CONTROLLERS_JOB, OFTEN, RARELY),
    ),
    "VirtHandlerDaemonSetRolloutFailing": (
        {AGENTS % "desired_number_scheduled": 2, AGENTS % "number_ready": 1},
        {AGENTS % "desired_number_scheduled": 2, AGENTS % "number_ready": 2},
    ),
    # One series stands for the pods of a namespace.
    "VirtLauncherPodsStuckFailed": ({FAILED: 200}, {FAILED: 199}),
    "KubeVirtDeprecatedAPIRequested": (asked("POST"), asked("LIST")),
    "GuestFilesystemAlmostOutOfSpace/warning": (filled(94), filled(84) | filled(90, "iso9660")),
    "GuestFilesystemAlmostOutOfSpace/critical": (filled(95), filled(94) | filled(100, "squashfs")),
    "KubeVirtVMGuestMemoryPressure": (remembered(4, THRASHING), remembered(4, NEVER) | {MEMORY % "unused_bytes": 1}),
    "KubeVirtVMGuestMemoryAvailableLow": (remembered(2, NEVER), remembered(2, NEVER, SWAPPING)),
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
    assert set(CASES) == set(by_name())


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_alert_fires_for_its_cause_alone(name: str, tmp_path: pathlib.Path) -> None:
    rules = written(tmp_path / "rules.yml", groups())
    alert = by_name()[name]
    chosen = f'alertname="{alert["alert"]}",severity="{alert["labels"]["severity"]}"'
    # Its own time, and that of the longest range that it looks at; promtool evaluates every rule for each minute of it.
    after = "25h" if alert.get("for") == "24h" else "2h"
    for number, scraped in enumerate(CASES[name]):
        # Whether it fires, by the series that promtool's own rules make of an alert: labels are not compared.
        firing = f'count(ALERTS{{{chosen},alertstate="firing"}}) or vector(0)'
        expected = {"labels": "{}", "value": 1 - number}
        test = {
            "interval": "1m",
            "input_series": [{"series": series, "values": values(value)} for series, value in scraped.items()],
            "promql_expr_test": [{"expr": firing, "eval_time": after, "exp_samples": [expected]}],
        }
        content = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]}
        judged("test", "rules", written(tmp_path / f"test-{number}.yml", content))


def values(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value}+0x2000"


def test_recording_rules_have_the_values_that_they_are_named_for(tmp_path: pathlib.Path) -> None:
    rules = written(tmp_path / "rules.yml", groups())
    series: Series = {
        f'kubevirt_vm_info{{status="running",{VM}}}': 1,
        'kubevirt_vm_info{status="stopped",namespace="ns",name="other"}': 1,
        f'kubevirt_vmi_info{{node="a",phase="running",os="debian",{VM}}}': 1,
        **remembered(30, "0+60x2000", "0+120x2000"),
        **asked("POST"),
        f'kubevirt_vmi_vcpu_seconds_total{{node="a",{VM},id="0",state="running"}}': 7,
        f'kubevirt_vmi_vcpu_seconds_total{{node="a",{VM},id="1",state="running"}}': 9,
        CONTROLLERS % "a": 1,
        NODES % "a": 1,
        **TWO_NODES,
    }
    expected = {
        "kubevirt_number_of_vms": 2,
        "namespace:kubevirt_vm:sum": 2,
        'kubevirt_vmi_phase_count{phase="running"}': 1,
        'node:kubevirt_vmi_phase:sum{node="a"}': 1,
        "kubevirt_vmi_memory_used_bytes": 70,
        "vmi:kubevirt_vmi_memory_used_bytes:sum": 70,
        "kubevirt_vmi_vcpu_count": 2,
        "vmi:kubevirt_vmi_vcpu:count": 2,
        "vmi:kubevirt_vmi_memory_available_bytes:sum": 100,
        "vmi:kubevirt_vmi_memory_headroom_ratio:sum": 0.3,
        "vmi:kubevirt_vmi_pgmajfaults:rate5m": 1,
        "vmi:kubevirt_vmi_pgmajfaults:rate30m": 1,
        "vmi:kubevirt_vmi_swap_traffic_bytes:rate5m": 2,
        "vmi:kubevirt_vmi_swap_traffic_bytes:rate30m": 2,
        'kubevirt_api_request_deprecated_total{verb="POST"}': 600,
        "kubevirt_virt_controller_up": 1,
        "kubevirt_virt_api_up": 1,
        "kubevirt_virt_controller_ready": 0,
        "cluster:kubevirt_virt_controller_pods_running:count": 1,
        "kubevirt_virt_handler_up": 1,
        "kubevirt_allocatable_nodes": 2,
        "kubevirt_nodes_with_kvm": 2,
    }
    recorded = {rule["record"] for rule in all_rules() if "record" in rule}
    assert {name.split("{")[0] for name in expected} == recorded
    tests = [
        {"expr": f"sum({name})", "eval_time": "1h", "exp_samples": [{"labels": "{}", "value": value}]}
        for name, value in expected.items()
    ]
    test = {
        "interval": "1m",
        "input_series": [{"series": each, "values": values(value)} for each, value in series.items()],
        "promql_expr_test": tests,
    }
    content = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]}
    judged("test", "rules", written(tmp_path / "test.yml", content))
