"""QMP of a machine through subresources.garboard.dev: a right for each level, and nothing goes through the pod."""

import functools
import json
from collections.abc import Iterator

import pytest

from garboard_e2e.cluster.api import Api
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE, SIDECAR, Object
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.qmp_session import QmpSession
from garboard_e2e.cluster.stream import OWN_GROUP, Refused
from garboard_e2e.cluster.virtctl import is_paused
from garboard_e2e.names import SUPERVISOR

BASE = f"{OWN_GROUP}/namespaces/{NAMESPACE}/virtualmachineinstances/asked-of"
# As many places as a supervisor has for one user, of those that only read and of the others.
PLACES = 4


@pytest.fixture(scope="module")
def running(kube: Kube) -> Iterator[str]:
    kube.start(machine("asked-of", "Always"))
    yield "asked-of"
    kube.remove("asked-of")


def query(kube: Kube, path: str, *options: str) -> Object:
    answer: Object = json.loads(kube.kubectl("get", "--raw", f"{BASE}/{path}", *options, namespace=None))
    return answer


def change(kube: Kube, path: str, *options: str, body: str = "{}", code: int = 0) -> str:
    whole = ["replace", "--raw", f"{BASE}/{path}", "-f", "-", *options]
    return kube.kubectl(*whole, text=body, code=code, namespace=None)


def test_the_group_is_discovered_and_lists_each_subresource_once(kube: Kube, running: str) -> None:
    wait = ["wait", "--for=condition=Available", "apiservice/v1.subresources.garboard.dev", "--timeout=60s"]
    kube.kubectl(*wait, namespace=None)
    listed = json.loads(kube.kubectl("get", "--raw", OWN_GROUP, namespace=None))["resources"]
    verbs = {each["name"].removeprefix("virtualmachineinstances/"): each["verbs"] for each in listed}
    both = ["get", "update"]
    read = {name: ["get"] for name in ("qmp-read", "screendump", "plan", "logs")}
    assert verbs == read | {"qmp-write": both, "qmp-dangerous": both}


def test_a_query_is_one_request_with_arguments(kube: Kube, running: str) -> None:
    assert query(kube, "qmp-read/query-status")["return"]["status"] == "running"
    properties = query(kube, "qmp-read/qom-list?arguments=%7B%22path%22:%22/machine%22%7D")["return"]
    assert any(each["name"] == "type" for each in properties), properties
    commands = {each["name"] for each in query(kube, "qmp-read/query-qmp-schema")["return"]}
    assert {"query-block", "screendump"} <= commands


def test_a_change_needs_its_level_and_leaves_a_taint_and_an_audit_line(kube: Kube, running: str) -> None:
    refused = kube.kubectl("get", "--raw", f"{BASE}/qmp-read/stop", code=1, namespace=None)
    assert "Garboard rejected `stop`" in refused, refused
    refused = change(kube, "qmp-write/system_reset", code=1)
    assert "Garboard rejected `system_reset`" in refused, refused
    change(kube, "qmp-write/stop", "--as=ada", "--as-group=system:masters")
    kube.ask_until("a pause", lambda: is_paused(kube, running))
    change(kube, "qmp-write/cont")
    kube.ask_until("the guest runs on", lambda: not is_paused(kube, running))
    log = kube.kubectl("logs", kube.pod_name(running), "-c", "launcher")
    lines = [json.loads(line) for line in log.splitlines() if "qmp audit" in line]
    stops = [line for line in lines if line["fields"]["command"] == "stop" and line["fields"]["outcome"] == "Done"]
    assert [line["fields"]["claimed_user"] for line in stops] == ["ada"], stops
    assert any(span.get("audit_id") for span in stops[0]["spans"]), stops
    connection, answer = kube.ask(running, {"ask": "status"})
    connection.close()
    assert answer["taints"] == ["stop", "cont"], answer


def allowed(kube: Kube, user: str, path: str) -> bool:
    return bool(kube.tried("get", "--raw", f"{BASE}/{path}", f"--as={user}", namespace=None))


def test_each_level_is_a_right_of_its_own(kube: Kube, running: str) -> None:
    for user, role in {"reader": "garboard-qmp-read", "writer": "garboard-qmp-write"}.items():
        kube.kubectl("delete", "rolebinding", f"qmp-{user}", "--ignore-not-found")
        kube.kubectl("create", "rolebinding", f"qmp-{user}", f"--clusterrole={role}", f"--user={user}")
    kube.ask_until("the right", functools.partial(allowed, kube, "reader", "qmp-read/query-status"))
    refused = change(kube, "qmp-write/stop", "--as=reader", code=1)
    assert "forbidden" in refused and "virtualmachineinstances/qmp-write" in refused, refused
    writes = ["replace", "--raw", f"{BASE}/qmp-write/cont", "-f", "-", "--as=writer"]
    kube.ask_until("the right to write", lambda: kube.tried(*writes, text="{}", namespace=None))
    refused = change(kube, "qmp-dangerous/quit", "--as=writer", code=1)
    assert "forbidden" in refused and "virtualmachineinstances/qmp-dangerous" in refused, refused
    assert not allowed(kube, "writer", "qmp-read/query-status"), "no level is a part of another one"
    picture = kube.tried("get", "--raw", f"{BASE}/screendump", "--as=writer", namespace=None)
    assert picture == "", "the screen is seen with the right to it"


def test_a_right_to_get_everything_opens_no_session_that_changes(kube: Kube, running: str) -> None:
    rule = {"apiGroups": ["subresources.garboard.dev"], "resources": ["*"], "verbs": ["get"]}
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "gets-all"}}
    kube.kubectl("delete", "rolebinding", "gets-all", "--ignore-not-found")
    kube.apply(head | {"rules": [rule]})
    kube.kubectl("create", "rolebinding", "gets-all", "--role=gets-all", "--user=eve")
    kube.ask_until("the right", functools.partial(allowed, kube, "eve", "qmp-read/query-status"))
    for level in ("qmp-write", "qmp-dangerous"):
        with pytest.raises(Refused) as refused:
            QmpSession(Api.of(kube), running, level, user="eve")
        assert refused.value.answer.status == 401, refused.value


def test_a_session_has_events_and_a_user_has_places_for_some(kube: Kube, running: str) -> None:
    api = Api.of(kube)
    sessions = [QmpSession(api, running, "qmp-read") for _ in range(PLACES)]
    try:
        writer = QmpSession(api, running, "qmp-write")
        sessions.append(writer)
        with pytest.raises(Refused) as refused:
            QmpSession(api, running, "qmp-read")
        answer = refused.value.answer
        assert answer.status == 503 and "4 read-only QMP clients are connected" in answer.message, answer
        assert allowed(kube, "reader", "qmp-read/query-status"), "another user has places of its own"
        writer.execute("stop")
        assert sessions[0].event("STOP")
        writer.execute("cont")
        assert "Garboard rejected" in writer.refusal("quit")
    finally:
        for session in sessions:
            session.close()
    kube.ask_until("a place", lambda: kube.tried("get", "--raw", f"{BASE}/qmp-read/query-status", namespace=None))


def link(kube: Kube, name: str) -> object:
    return kube.status_of("vmi", name)["interfaces"][0]["linkState"]


def reported_card(kube: Kube, name: str) -> Object | None:
    """As its supervisor reports it; None as long as there is none that has a plan."""
    return next(iter(kube.answer(name, "status").get("interfaces", [])), None)


def test_a_cable_that_is_pulled_is_out_in_the_status_also_under_the_next_supervisor(kube: Kube, running: str) -> None:
    assert link(kube, running) == "up"
    change(kube, "qmp-write/set_link", body=json.dumps({"name": "nic-default", "up": False}))
    kube.wait("the cable is out", lambda: link(kube, running) == "down")
    restarts = kube.restarts(running, SIDECAR)
    kube.kill(running, SUPERVISOR)
    kube.wait("the sidecar again", lambda: kube.restarts(running, SIDECAR) > restarts)
    kube.ask_until("the supervisor", lambda: kube.is_answered(running))
    card = kube.ask_until("a supervisor with its plan", lambda: reported_card(kube, running))
    assert card["link"] == "down" and link(kube, running) == "down", card
    plug = ["replace", "--raw", f"{BASE}/qmp-write/set_link", "-f", "-"]
    body = json.dumps({"name": "nic-default", "up": True})
    kube.ask_until("QEMU again", lambda: kube.tried(*plug, text=body, namespace=None))
    kube.wait("the cable is in", lambda: link(kube, running) == "up")


def test_nothing_of_a_machine_that_is_not_there_or_does_not_run(kube: Kube, running: str) -> None:
    kube.apply(machine("halted-one", "Halted"))
    missing = BASE.replace("asked-of", "halted-one")
    refused = kube.kubectl("get", "--raw", f"{missing}/qmp-read/query-status", code=1, namespace=None)
    assert "not found" in refused, refused
