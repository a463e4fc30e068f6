"""Metrics of a cluster: who may read them, that they move when the guest works, and that all of them are documented."""

import re
import time

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE, NODE_1, NODE_2
from garboard_e2e.monitoring.rules import documented
from garboard_e2e.monitoring.scrape import OTHER, Scraped, Scraper, token_of

NAME = re.compile(r"^# TYPE (\S+) ", re.M)
# What a scrape may take, in seconds, and how large the text of a node with a few machines may be.
QUICK, SMALL = 5.0, 200_000
# What the guest that these tests boot has nothing for: its agent, its balloon's driver.
BY_THE_GUEST = ("filesystem", "memory_available", "memory_unused", "memory_usable", "memory_cached", "swap", "pgm")


def of_node(scraper: Scraper, token: str, node: str) -> Scraped:
    began = time.monotonic()
    found = scraper.get(f"/metrics/nodes/{node}", token)
    assert found.code == 200, found
    assert time.monotonic() - began < QUICK and len(found.text) < SMALL
    return found


def test_only_an_account_that_may_reads_metrics(kube: Kube, scraper: Scraper, token: str) -> None:
    for path in ("/metrics", f"/metrics/nodes/{NODE_1}"):
        assert scraper.get(path, None).code == 401
        assert scraper.get(path, "no.token.atall").code == 401
        refused = scraper.get(path, token_of(kube, OTHER))
        assert refused.code == 403 and f"system:serviceaccount:{NAMESPACE}:{OTHER}" in refused.text
        assert "kubevirt_vm" not in refused.text
        assert scraper.get(path, token).code == 200
    assert scraper.get("/metrics/nodes/no-such-node", token).code == 404


def test_every_metric_that_is_served_is_documented(
    kube: Kube, scraper: Scraper, token: str, pair: dict[str, str]
) -> None:
    served = set(NAME.findall(scraper.get("/metrics", token).text))
    served |= set(NAME.findall(of_node(scraper, token, NODE_1).text))
    assert served and served <= documented(), served - documented()


def test_a_machine_has_everything_that_needs_no_agent_in_its_guest(
    kube: Kube, scraper: Scraper, token: str, pair: dict[str, str]
) -> None:
    for name, node in pair.items():
        found = of_node(scraper, token, node)
        labels = {"node": node, "namespace": NAMESPACE, "name": name}
        for metric in sorted(documented()):
            is_of_machine = metric.startswith("kubevirt_vmi_") and f"# TYPE {metric} " in found.text
            if is_of_machine and not any(part in metric for part in BY_THE_GUEST) and "storage" not in metric:
                assert found.samples(metric, **labels), f"{metric} of {name}"
        assert found.sum("kubevirt_vmi_memory_domain_bytes", **labels) == 128 << 20
        assert 0 < found.sum("kubevirt_vmi_memory_resident_bytes", **labels) < 1 << 30
        assert len(found.samples("kubevirt_vmi_vcpu_seconds_total", **labels)) == 1
        assert found.samples("kubevirt_vmi_network_receive_bytes_total", **labels, interface="default")
        # Labels of the instance.
        assert f'kubernetes_vmi_label_app="{name}"' in found.text
        assert found.sum("garboard_node_scrape_machines_unanswered") == 0
        assert found.sum("garboard_node_scrape_names_left_out") == 0, "what it has is what its instance has"
        other = NODE_2 if node == NODE_1 else NODE_1
        assert not of_node(scraper, token, other).samples("kubevirt_vmi_memory_domain_bytes", name=name)


def test_values_move_when_the_guest_works(kube: Kube, scraper: Scraper, token: str, pair: dict[str, str]) -> None:
    name = next(iter(pair))
    kube.has_shell(name)
    labels = {"namespace": NAMESPACE, "name": name}
    before = of_node(scraper, token, pair[name])
    # A loop for the processor, and names that are asked of the network.
    kube.shell(name, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; ping -c 3 10.0.2.1 >/dev/null 2>&1; true")

    def moved() -> bool:
        now = of_node(scraper, token, pair[name])
        moving = ("kubevirt_vmi_cpu_usage_seconds_total", "kubevirt_vmi_vcpu_seconds_total")
        network = "kubevirt_vmi_network_transmit_packets_total"
        return all(now.sum(each, **labels) > before.sum(each, **labels) for each in (*moving, network))

    kube.ask_until("counters of a guest that works", moved)


def test_a_paused_machine_is_blocked_and_is_still_there(
    kube: Kube, scraper: Scraper, token: str, pair: dict[str, str]
) -> None:
    name = next(iter(pair))
    kube.answer(name, "pause")

    def is_blocked() -> bool:
        found = of_node(scraper, token, pair[name])
        return bool(found.samples("kubevirt_vmi_vcpu_seconds_total", name=name, state="blocked"))

    kube.ask_until("a paused machine's state", is_blocked)
    kube.answer(name, "unpause")
    kube.ask_until("that it runs on", lambda: not is_blocked())


def test_the_leader_has_machines_and_instances(kube: Kube, scraper: Scraper, token: str, pair: dict[str, str]) -> None:
    found = scraper.get("/metrics", token)
    assert found.code == 200 and found.sum("kubevirt_virt_controller_leading_status") == 1
    for name, node in pair.items():
        own = {"namespace": NAMESPACE, "name": name}
        assert found.sum("kubevirt_vm_info", **own, status="running", status_group="running") == 1
        assert found.sum("kubevirt_vmi_info", **own, node=node, phase="running") == 1
        assert found.sum("kubevirt_vm_running_status_last_transition_timestamp_seconds", **own) > 1.7e9
        assert found.sum("kubevirt_vm_error_status_last_transition_timestamp_seconds", **own) == 0
        assert found.sum("kubevirt_vmi_launcher_memory_overhead_bytes", **own) > 16 << 20
    assert found.sum("garboard_connected_nodes") == 2
    assert found.sum("garboard_certificate_expiration_timestamp_seconds") > time.time()
    assert found.sum("kubevirt_vmi_phase_transition_time_from_creation_seconds_count", phase="Running") >= 1


def test_what_is_admitted_is_counted_where_it_is(kube: Kube, token: str, pair: dict[str, str]) -> None:
    """API servers keep connections: one replica may have been asked everything."""
    count = 0.0
    for controller in kube.controllers():
        replica = Scraper(kube, controller["metadata"]["name"])
        with replica.forwarded:
            found = replica.get("/metrics", token)
            count += found.sum("garboard_admission_duration_seconds_count", webhook="mutate")
    assert count > 0
