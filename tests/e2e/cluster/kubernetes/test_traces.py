"""Traces by OTLP: one goes from a request through admission, reconciliation and the node agent to the guest that runs;
without a collector nothing of it is written."""

import itertools
import time
from collections.abc import Iterator

import pytest

from garboard_e2e.cluster import audit
from garboard_e2e.cluster.collector import Collector, Span, collected
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE, Object
from garboard_e2e.cluster.objects import machine
from garboard_e2e.patience import wait_until

ANNOTATION = "garboard.dev/trace"
SUBRESOURCES = f"/apis/subresources.kubevirt.io/v1/namespaces/{NAMESPACE}"
# Clocks are the same everywhere here; what is rounded to milliseconds is not.
ROUNDED = 0.002
PROGRAMS = {"garboard-controller", "garboard-node"}


@pytest.fixture(scope="module")
def collector(kube: Kube) -> Iterator[Collector]:
    with collected(kube) as collector:
        yield collector
        assert not collector.problems, collector.problems


def annotated(found: Object) -> str:
    """The value of the annotation; empty where there is none."""
    return str(found["metadata"].get("annotations", {}).get(ANNOTATION, ""))


def trace_of(found: Object) -> str:
    """The trace that an object belongs to."""
    return annotated(found).split("-")[1]


def put(kube: Kube, path: str) -> None:
    kube.kubectl("replace", "--raw", f"{SUBRESOURCES}/{path}", "-f", "-", text="{}", namespace=None)


def audit_id_of(kube: Kube, begin: int, path: str) -> str:
    """What the API server calls the last request for a path in its audit log, since a place in that."""

    def found() -> str | None:
        events = [event for event in audit.events(kube.audit_log, begin) if path in event["requestURI"]]
        return str(events[-1]["auditID"]) if events else None

    return wait_until(f"{path} in the audit log", found)


def only(spans: list[Span], name: str, **attributes: str) -> Span:
    """The first span of this name with these attributes, which has to be there."""
    found = [each for each in spans if each.has(name, **attributes)]
    assert found, f"no {name} {attributes} among {[(each.name, each.attributes) for each in spans]}"
    return found[0]


def test_without_a_collector_nothing_is_written(kube: Kube) -> None:
    kube.start(machine("untraced"))
    written = [kube.get("vm", "untraced"), kube.get("vmi", "untraced"), kube.pod("untraced")]
    assert [annotated(each) for each in written] == ["", "", ""]


def test_one_trace_goes_from_the_manifest_to_the_guest_that_runs(kube: Kube, collector: Collector) -> None:
    before = time.time()
    kube.start(machine("traced"))
    instance = kube.get("vmi", "traced")
    trace = trace_of(kube.get("vm", "traced"))
    assert trace_of(instance) == trace and trace_of(kube.pod("traced")) == trace
    wanted: tuple[tuple[str, dict[str, str]], ...] = (
        ("admission", {"resource": "virtualmachines", "object": "traced"}),
        ("reconcile", {"kind": "VirtualMachine", "object": "traced"}),
        ("admission", {"resource": "virtualmachineinstances"}),
        ("reconcile", {"kind": "VirtualMachineInstance", "object": "traced"}),
        *(("request", {"ask": what}) for what in ("plumb", "report")),
        ("start", {"vmi": "traced", "vmi_uid": instance["metadata"]["uid"]}),
        ("prepare", {}),
        ("qemu", {}),
    )

    def is_whole() -> bool:
        """Whether each of these has come, and the parent of every span that has."""
        spans = collector.of(trace)
        known = {each.span for each in spans} | {""}
        has_all = all(any(each.has(name, **attributes) for each in spans) for name, attributes in wanted)
        return has_all and all(each.parent in known for each in spans)

    wait_until("the whole trace", is_whole, circumstances=lambda: f"{collector.of(trace)} {collector.problems}")
    spans = collector.of(trace)
    [first] = [each for each in spans if not each.parent]
    assert first.has("admission", resource="virtualmachines", operation="Create"), first
    # Whose they are.
    assert {each.resource["service.name"] for each in spans} == PROGRAMS
    agents = [each for each in spans if each.resource["service.name"] == "garboard-node"]
    assert {each.resource["k8s.node.name"] for each in agents} == {instance["status"]["nodeName"]}
    start = only(spans, "start")
    assert start.scope == "garboard-launcher" and start in agents, start
    # In the order in which it happened.
    prepare, qemu = only(spans, "prepare"), only(spans, "qemu")
    assert prepare.parent == qemu.parent == start.span
    of_pod = only(spans, "reconcile", kind="VirtualMachineInstance")
    moments = [before, first.began, of_pod.began, prepare.began, prepare.ended, qemu.began, qemu.ended, time.time()]
    late = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert all(each >= -ROUNDED for each in late), moments
    plumb = only(spans, "request", ask="plumb")
    assert prepare.began - ROUNDED <= plumb.began and plumb.ended <= prepare.ended + ROUNDED, (prepare, plumb)


def test_a_start_by_a_subresource_is_a_trace_from_that_request_on(kube: Kube, collector: Collector) -> None:
    kube.apply(machine("asked-to-start", "Halted"))
    kube.shows("asked-to-start", "Stopped")
    made = trace_of(kube.get("vm", "asked-to-start"))
    begin, path = kube.audit_log.stat().st_size, "virtualmachines/asked-to-start/start"
    put(kube, path)
    kube.runs("asked-to-start")
    audit_id = audit_id_of(kube, begin, path)
    trace = trace_of(kube.get("vmi", "asked-to-start"))
    assert trace != made, "it goes on in the trace of the creation"
    wait_until(
        "the request among the spans of the start",
        lambda: any(each.has("subresource", audit_id=audit_id) for each in collector.of(trace)),
        circumstances=lambda: str(collector.of(trace)),
    )
    wait_until("the start", lambda: any(each.name == "start" for each in collector.of(trace)))


def test_a_request_to_a_running_machine_is_followed_to_the_agent_of_its_node(kube: Kube, collector: Collector) -> None:
    kube.start(machine("asked-to-wait"))
    begin, path = kube.audit_log.stat().st_size, "virtualmachineinstances/asked-to-wait/pause"
    put(kube, path)
    audit_id = audit_id_of(kube, begin, path)

    def followed() -> list[tuple[Span, Span]]:
        asked = [each for each in list(collector.spans) if each.has("subresource", audit_id=audit_id)]
        return [(each, below) for each in asked for below in collector.of(each.trace) if below.parent == each.span]

    [(subresource, connection), *_] = wait_until("the agent's part", followed)
    uid = kube.pod("asked-to-wait")["metadata"]["uid"]
    assert subresource.resource["service.name"] == "garboard-controller", subresource
    assert connection.has("connection", pod_uid=uid), connection
    assert connection.resource["service.name"] == "garboard-node", connection
