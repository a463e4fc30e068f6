"""A tenant with rights in one namespace at the subresource API, through the API server."""

import concurrent.futures
import contextlib
from collections.abc import Callable, Iterator

import pytest
import websocket

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import Object
from garboard_e2e.cluster.stream import ABNORMAL, GROUP, Refused, ended, typed
from garboard_e2e.hostile.account import Account, account
from garboard_e2e.hostile.stand_in import controllers_kib
from garboard_e2e.outcome import Failure

# What a controller lets a user and a namespace have (controller/src/subresources/limits.rs), and how many there are.
OF_A_USER, OF_A_NAMESPACE, REPLICAS = 128, 256, 2
ACCOUNTS = 5
# So many refusals one after the other are those of every replica.
IN_A_ROW = 8
TOO_MANY = "too many streams of this user or to this namespace"
CONSOLE_ALONE = "hostile-console-alone"


def test_headers_of_a_client_make_it_nobody_else(kube: Kube, alice: Account, answering: str) -> None:
    nobody = account(kube, "nobody", role=None)
    claimed = {
        "X-Remote-User": "admin",
        "X-Remote-Group": "system:masters",
        "X-Remote-Uid": "1",
        "X-Remote-Extra-Scopes": "all",
    }
    answer = nobody.asks("PUT", nobody.path(answering, "pause"), claimed)
    whose = 'User "system:serviceaccount:tenant:nobody" cannot update resource "virtualmachineinstances/pause"'
    assert answer.status == 403 and whose in answer.message, answer
    assert not kube.condition("vmi", answering, "Paused"), "the headers were believed"
    alice.types(answering)


@pytest.fixture(scope="module")
def narrow(kube: Kube, alice: Account) -> Iterator[Account]:
    """An account with one right alone: the console of machines of its namespace."""
    rule = {
        "apiGroups": ["subresources.kubevirt.io"],
        "resources": ["virtualmachineinstances/console"],
        "verbs": ["get"],
    }
    role: Object = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": [rule]}
    kube.apply(role | {"metadata": {"name": CONSOLE_ALONE}}, namespace=None)
    narrow = account(kube, "narrow", role=CONSOLE_ALONE)
    unknown = narrow.path("nobody-has-it", "console")
    kube.ask_until("the right to a console", lambda: narrow.asks("GET", unknown).status == 404)
    yield narrow
    kube.kubectl("delete", "clusterrole", CONSOLE_ALONE, namespace=None)


# Of the machine in its own namespace, and of the one in another one. The API server judges what it reads of a path; a
# controller that read another thing would do what nobody was asked about.
OWN = f"{GROUP}/namespaces/tenant/virtualmachineinstances/honest"
OTHER = f"{GROUP}/namespaces/neighbours/virtualmachineinstances/beside"
PATHS = [
    ("PUT", f"{OWN}/pause"),
    ("PUT", f"{OWN}/console/../pause"),
    ("PUT", f"{OWN}/console/pause"),
    ("PUT", f"{OWN}/console%2f..%2fpause"),
    ("PUT", f"{OWN}/console%2fpause"),
    ("PUT", f"{OWN}//pause"),
    ("PUT", f"{OWN}/console;/pause"),
    ("PUT", f"{OWN}/pause%00"),
    ("PUT", f"{OWN}/%70ause"),
    ("GET", f"{OWN}/console/../vnc"),
    ("GET", f"{OWN}/console/../../../../neighbours/virtualmachineinstances/beside/console"),
    ("GET", f"{OTHER}/console"),
    ("PUT", f"{OTHER}/pause"),
    ("PUT", f"{GROUP}/namespaces/tenant%2f..%2fneighbours/virtualmachineinstances/beside/pause"),
    ("PUT", f"{GROUP}/namespaces/tenant/../neighbours/virtualmachineinstances/beside/pause"),
    (
        "PUT",
        f"{GROUP}/namespaces/tenant/virtualmachineinstances/..%2f..%2fneighbours%2fvirtualmachineinstances%2fbeside/pause",
    ),
]


def test_no_path_leads_past_the_right_that_it_was_judged_by(
    kube: Kube, alice: Account, bob: Account, narrow: Account, answering: str
) -> None:
    for method, path in PATHS:
        answer = narrow.asks(method, path)
        # `this is a websocket` would be the answer of a stream that is let in.
        is_refused = answer.status in (400, 403, 404, 405) and "websocket" not in answer.text
        assert is_refused, f"{method} {path} is answered {answer}"
    for machine, namespace in ((answering, "tenant"), ("beside", "neighbours")):
        conditions = kube.get("vmi", machine, namespace=namespace)["status"]["conditions"]
        assert not any(each["type"] == "Paused" for each in conditions), f"{machine} was paused"
    bob.types("beside")
    alice.types(answering)


def taken(account: Account, machine: str, streams: contextlib.ExitStack) -> int:
    """How many streams one account is given at once. They lead to a port for datagrams, and send none."""
    given = refusals = 0
    while refusals < IN_A_ROW:
        try:
            streams.callback(account.open(machine, "portforward/9/udp").shutdown)
            given, refusals = given + 1, 0
        except Refused as refused:
            refusals, answer = refusals + 1, refused.answer
            assert answer.status == 429 and TOO_MANY in answer.message, answer
    return given


def test_all_accounts_of_a_namespace_together_leave_room_for_another_tenant(
    kube: Kube, alice: Account, bob: Account, answering: str, note: Callable[[str], None]
) -> None:
    """Who may edit a namespace may make service accounts in it, as many as they like."""
    accounts = [account(kube, f"account-{number}") for number in range(ACCOUNTS)]
    before = controllers_kib(kube)
    with contextlib.ExitStack() as streams, concurrent.futures.ThreadPoolExecutor(ACCOUNTS) as threads:
        given = list(threads.map(lambda one: taken(one, answering, streams), accounts))
        # None is left, at no replica.
        given.append(taken(alice, answering, streams))
        note(f"{given} streams, for which the controllers have {controllers_kib(kube) - before} KiB more")
        # One user alone is not given so many.
        assert REPLICAS * OF_A_USER < sum(given) <= REPLICAS * OF_A_NAMESPACE, f"{given} streams were given"
        assert alice.refused(answering, "console").status == 429
        bob.types("beside")
        # What is no stream goes on for its own namespace too.
        alice.pauses(answering)
    kube.ask_until("room again", lambda: opens(alice, answering))
    alice.types(answering)


def opens(account: Account, machine: str) -> bool:
    with contextlib.suppress(Failure), account.stream(machine, "console"):
        return True
    return False


def test_a_frame_that_is_too_large_ends_its_own_stream_alone(alice: Account, bob: Account, answering: str) -> None:
    with bob.stream("beside", "console") as other, alice.stream(answering, "console") as own:
        with contextlib.suppress(websocket.WebSocketException, OSError):
            own.send_binary(b"x" * (1 << 20))
        assert ended(own) == (ABNORMAL, "")
        typed(other)
    alice.types(answering)
