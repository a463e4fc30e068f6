"""The aggregated API subresources.kubevirt.io: virtctl starts and stops machines; only an API server is believed."""

import collections
import contextlib
import functools
import http.client
import json
import pathlib
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, NAMESPACE, Object
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.person import Tool
from garboard_e2e.cluster.virtctl import virtctl as client
from garboard_e2e.cluster.virtctl import written

BASE = "/apis/subresources.kubevirt.io/v1"
START = f"{BASE}/namespaces/{NAMESPACE}/virtualmachines/%s/start"
PORT = 8444
# The authority that signs for API servers, and the one that signs for users and nodes.
FRONT, USERS = "front-proxy-ca", "ca"
# Less than a request waits for a turn, seconds.
SOON = 4
# The time of a stop, and what is by far less than that: after one second QEMU is asked to quit, and has ten for it.
LONG, HURRIED = 180, 15


@pytest.fixture(scope="package")
def virtctl(kube: Kube) -> Tool:
    return client(kube)


def test_a_machine_is_started_restarted_and_stopped_by_virtctl(kube: Kube, virtctl: Tool) -> None:
    kube.apply(machine("asked", "Manual"))
    kube.shows("asked", "Stopped")
    assert "was scheduled to start" in virtctl.run("start", "asked")
    first = kube.runs("asked")
    again = virtctl.call("start", "asked")
    assert again.returncode != 0 and "VM is already running" in again.stderr, again.stderr
    kube.has_shell("asked")
    virtctl.run("restart", "asked")
    second = kube.runs("asked", not_this=first)
    kube.has_shell("asked")
    virtctl.run("stop", "asked")
    kube.is_gone("asked")
    kube.shows("asked", "Stopped")
    idle = virtctl.call("stop", "asked")
    assert idle.returncode != 0 and "VM is not running" in idle.stderr, idle.stderr
    assert second != first


def test_a_halted_machine_is_always_once_it_was_started(kube: Kube, virtctl: Tool) -> None:
    kube.apply(machine("halted", "Halted"))
    virtctl.run("start", "halted")
    kube.runs("halted")
    assert kube.present("vm", "halted")["spec"]["runStrategy"] == "Always"
    refused = virtctl.call("start", "halted")
    assert "VM is already running" in refused.stderr, refused.stderr
    kube.has_shell("halted")
    virtctl.run("stop", "halted")
    kube.is_gone("halted")
    assert kube.present("vm", "halted")["spec"]["runStrategy"] == "Halted"


def test_a_paused_start_stops_the_processors(kube: Kube, virtctl: Tool) -> None:
    kube.apply(machine("paused", "Halted"))
    virtctl.run("start", "paused", "--paused")
    kube.becomes("vmi", "paused", "Paused")
    kube.shows("paused", "Paused")


@contextlib.contextmanager
def times_of(kube: Kube, name: str) -> Iterator[list[str]]:
    """The times that a guest had to shut down, as a watch saw them. The first is there before anything is done."""
    output = 'jsonpath={.spec.terminationGracePeriodSeconds}{"\\n"}'
    command = [str(kube.tool), "-n", NAMESPACE, "get", "vmi", name, "--watch", "-o", output]
    times: list[str] = []
    with subprocess.Popen(command, env=kube.environment, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        times.append(watch.stdout.readline().strip())
        try:
            yield times
        finally:
            watch.terminate()
        times.extend(watch.stdout.read().split())


def test_a_forced_stop_does_not_wait_for_the_guest(kube: Kube, virtctl: Tool) -> None:
    deaf = machine("deaf", "Manual", tests="ignore-power")
    # It ignores the power button: unforced, it would be waited for an hour.
    deaf["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 3600
    kube.apply(deaf)
    virtctl.run("start", "deaf")
    kube.runs("deaf")
    kube.has_shell("deaf")
    shorter = '{"spec":{"terminationGracePeriodSeconds":1}}'
    refused = kube.kubectl("patch", "vmi", "deaf", "--type=merge", "-p", shorter, code=1)
    assert "a machine that runs keeps what it was started with" in refused, refused
    with times_of(kube, "deaf") as times:
        virtctl.run("stop", "deaf", "--force", "--grace-period", "0")
        kube.is_gone("deaf")
    assert "0" in times, times
    kube.shows("deaf", "Stopped")


def time_of_pod(kube: Kube, pod: str) -> int | None:
    """Seconds from the order to go until a pod is killed; None as long as there is no such order."""
    seconds: int | None = kube.present("pod", pod)["metadata"].get("deletionGracePeriodSeconds")
    return seconds


def test_a_stop_may_give_the_guest_more_time_than_it_had(kube: Kube, virtctl: Tool) -> None:
    # It ignores the power button: with its own time it would be killed soon.
    kube.apply(machine("patient", "Manual", tests="ignore-power", terminationGracePeriodSeconds=1))
    virtctl.run("start", "patient")
    kube.runs("patient")
    kube.has_shell("patient")
    pod = kube.pod_name("patient")
    virtctl.run("stop", "patient", "--force", "--grace-period", "7200")
    # Beside the guest's time it has some for QEMU's own end.
    assert kube.ask_until("the pod is to end", functools.partial(time_of_pod, kube, pod)) == 7230
    assert kube.get("vmi", "patient")["spec"]["terminationGracePeriodSeconds"] == 7200
    time.sleep(SOON)
    assert kube.phase("patient") == "Running", "it was killed in its own time"
    kube.power_off("patient")
    kube.is_gone("patient")


def test_a_second_stop_may_give_the_guest_less_time_than_the_first(kube: Kube, virtctl: Tool) -> None:
    """Its kubelet has begun to end the pod, and goes on with the time that it began with: the supervisor ends QEMU."""
    kube.apply(machine("hurried", "Manual", tests="ignore-power", terminationGracePeriodSeconds=1))
    virtctl.run("start", "hurried")
    kube.runs("hurried")
    kube.has_shell("hurried")
    pod = kube.pod_name("hurried")
    virtctl.run("stop", "hurried", "--force", "--grace-period", str(LONG))
    assert kube.ask_until("the pod is to end", functools.partial(time_of_pod, kube, pod)) == LONG + 30
    # The signal has arrived: from here on no other one follows.
    kube.ask_until("a supervisor that ends its guest", lambda: kube.answer("hurried", "status").get("stopping"))
    virtctl.run("stop", "hurried", "--force", "--grace-period", "0")
    kube.wait("the end of its QEMU", lambda: not kube.qemus("hurried"), seconds=HURRIED)
    kube.is_gone("hurried")
    kube.shows("hurried", "Stopped")


def test_a_dry_run_changes_nothing(kube: Kube, virtctl: Tool) -> None:
    kube.apply(machine("tried", "Manual"))
    before = kube.get("vm", "tried")
    virtctl.run("start", "tried", "--dry-run")
    after = kube.get("vm", "tried")
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert "stateChangeRequests" not in after.get("status", {})


def test_virtctl_expands_a_machine_and_tells_the_version(kube: Kube, virtctl: Tool) -> None:
    kube.apply(machine("whole", "Halted"))
    expanded = json.loads(virtctl.run("expand", "--vm", "whole", "--output", "json"))
    assert written(expanded["spec"]["template"]) == written(kube.get("vm", "whole")["spec"]["template"])
    printed = virtctl.run("version")
    assert "Server Version" in printed and "+garboard." in printed, printed
    server = printed.partition("Server Version")[2]
    assert re.search(r'GitCommit:"[0-9a-f]{7,40}", GitTreeState:"(clean|dirty)"', server), printed
    assert re.search(r'BuildDate:"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", GoVersion:"rustc 1\.', server), printed


def test_health_has_the_version_of_the_api_server(kube: Kube) -> None:
    health = json.loads(kube.kubectl("get", "--raw", f"{BASE}/healthz", namespace=None))
    version = json.loads(kube.kubectl("get", "--raw", "/version", namespace=None))
    assert health["apiserver"] == {"connectivity": "ok", "version": version}, health
    assert "config-resource-version" in health, health


def test_discovery_lists_what_is_served_and_nothing_else(kube: Kube) -> None:
    listed = json.loads(kube.kubectl("get", "--raw", BASE, namespace=None))
    names = {resource["name"] for resource in listed["resources"]}
    assert "virtualmachines/start" in names and "virtualmachines/migrate" not in names, names
    group = json.loads(kube.kubectl("get", "--raw", "/apis/subresources.kubevirt.io", namespace=None))
    assert group["preferredVersion"]["version"] == "v1", group
    for version in ("v1", "v1alpha3", "v1alpha2"):
        available = [
            "wait",
            "--for=condition=Available",
            f"apiservice/{version}.subresources.kubevirt.io",
            "--timeout=60s",
        ]
        kube.kubectl(*available, namespace=None)
    described = json.loads(kube.kubectl("get", "--raw", "/openapi/v2", namespace=None))
    start = f"{BASE}/namespaces/{{namespace}}/virtualmachines/{{name}}/start"
    assert start in described["paths"]
    assert "gracePeriod" in described["definitions"]["v1.StopOptions"]["properties"], described["definitions"].keys()
    documents = json.loads(kube.kubectl("get", "--raw", "/openapi/v3", namespace=None))["paths"]
    for version in ("v1", "v1alpha3", "v1alpha2"):
        url = documents[f"apis/subresources.kubevirt.io/{version}"]["serverRelativeURL"]
        document = json.loads(kube.kubectl("get", "--raw", url, namespace=None))
        assert document["openapi"].startswith("3.0"), document
        operation = document["paths"][start.replace("/v1/", f"/{version}/")]
        # The first clients start by GET, which has no options.
        assert ("requestBody" in operation.get("put", {})) == (version != "v1alpha2"), operation


def requests_of(kube: Kube, name: str) -> list[Object]:
    requests: list[Object] = kube.get("vm", name).get("status", {}).get("stateChangeRequests", [])
    return requests


def test_the_first_clients_start_and_stop_a_machine_by_get(kube: Kube, virtctl: Tool) -> None:
    kube.apply(machine("first", "Manual"))
    base = f"/apis/subresources.kubevirt.io/v1alpha2/namespaces/{NAMESPACE}/virtualmachines/first"
    kube.kubectl("get", "--raw", f"{base}/start", namespace=None)
    kube.runs("first")
    kube.has_shell("first")
    kube.kubectl("get", "--raw", f"{base}/stop", namespace=None)
    kube.is_gone("first")
    kube.ask_until("a stop that was carried out", lambda: not requests_of(kube, "first"))
    # A right to read is none to start.
    rule = {"apiGroups": ["subresources.kubevirt.io"], "resources": ["*"], "verbs": ["get"]}
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader"}}
    kube.kubectl("delete", "rolebinding", "reader", "--ignore-not-found")
    kube.apply(head | {"rules": [rule]})
    kube.kubectl("create", "rolebinding", "reader", "--role=reader", "--user=eve")
    assert kube.tried("get", "--raw", f"{base}/start", "--as=eve") == ""
    assert not requests_of(kube, "first")


def test_what_is_not_there_or_not_served_is_reported(kube: Kube, virtctl: Tool) -> None:
    missing = virtctl.call("start", "nothing")
    assert missing.returncode != 0 and 'virtualmachine.kubevirt.io "nothing" not found' in missing.stderr, (
        missing.stderr
    )
    kube.apply(machine("still", "Halted"))
    refusals = {
        ("migrate", "still"): 'virtualmachineinstance.kubevirt.io "still" not found',
        ("memory-dump", "remove", "still"): "no association found",
        ("removevolume", "still", "--volume-name=x"): "Enable DeclarativeHotplugVolumes or HotplugVolumes feature gate",
    }
    for command, text in refusals.items():
        refused = virtctl.call(*command)
        assert refused.returncode != 0 and text in refused.stderr, f"{command}: {refused.stderr}"
    path = f"{BASE}/namespaces/{NAMESPACE}/virtualmachines/still/addinterface"
    plugged = kube.kubectl("replace", "--raw", path, "-f", "-", text="{}", code=1, namespace=None)
    assert "addinterface is not a route of this version" in plugged, plugged
    profiler = kube.kubectl("get", "--raw", f"{BASE}/start-cluster-profiler", code=1, namespace=None)
    assert "feature gate must be enabled" in profiler, profiler


def test_a_machine_that_is_carried_is_expanded_if_something_reads_each_of_its_fields(kube: Kube) -> None:
    path = f"{BASE}/namespaces/{NAMESPACE}/expand-vm-spec"
    # As client-go sends it: without a kind.
    carried = {key: value for key, value in machine("bare", "Halted").items() if key not in ("apiVersion", "kind")}
    expanded = json.loads(kube.kubectl("replace", "--raw", path, "-f", "-", text=json.dumps(carried), namespace=None))
    assert expanded["kind"] == "VirtualMachine" and expanded["metadata"]["name"] == "bare", expanded
    carried["spec"]["template"]["spec"]["domain"]["cpus"] = {"cores": 2}
    refused = kube.kubectl("replace", "--raw", path, "-f", "-", text=json.dumps(carried), code=1, namespace=None)
    assert "Object is not a valid VirtualMachine" in refused, refused
    assert "spec.template.spec.domain.cpus" in refused, refused


def test_virtctl_guestfs_takes_the_image_that_the_administrator_names(kube: Kube, virtctl: Tool) -> None:
    unnamed = virtctl.call("guestfs", "no-claim")
    assert unnamed.returncode != 0 and "garboard.dev/guestfs-image" in unnamed.stderr, unnamed.stderr
    image = "registry.example/tools/guestfs:9"
    annotate = ["annotate", "kubevirt/kubevirt"]
    kube.kubectl(*annotate, f"garboard.dev/guestfs-image={image}", namespace=INSTALLED_IN)
    try:
        # Each replica learns of it a moment later.
        kube.ask_until("the image", lambda: f"Use image: {image}" in virtctl.call("guestfs", "no-claim").stdout)
        answer = json.loads(kube.kubectl("get", "--raw", f"{BASE}/guestfs", namespace=None))
        assert answer["gsImage"] == image, answer
    finally:
        kube.kubectl(*annotate, "garboard.dev/guestfs-image-", namespace=INSTALLED_IN)


# Requests by GET that are refused in this version, and what the refusal says.
EXPLAINED = {
    "virtualmachines/refused/objectgraph": "ObjectGraph feature gate not enabled",
    "virtualmachineinstances/refused/sev/fetchcertchain": "'WorkloadEncryptionSEV' feature gate is not enabled",
}


def is_answered(kube: Kube, user: str, path: str, text: str) -> bool:
    whole = f"{BASE}/namespaces/{NAMESPACE}/{path}"
    return text in kube.kubectl("get", "--raw", whole, f"--as={user}", code=1, namespace=None)


def test_the_roles_of_kubernetes_let_through_what_is_refused(kube: Kube, virtctl: Tool) -> None:
    """KubeVirt's roles are added to `edit` and `view`; `migrate` is in neither."""
    kube.apply(machine("refused", "Halted"))
    for user, role in {"edith": "edit", "vera": "view"}.items():
        kube.kubectl("delete", "rolebinding", user, "--ignore-not-found")
        kube.kubectl("create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}")
        for path, text in EXPLAINED.items():
            kube.ask_until(f"{text} for {user}", functools.partial(is_answered, kube, user, path, text))
    edith, vera = virtctl.of("edith"), virtctl.of("vera")
    unplug = ("removevolume", "refused", "--volume-name=x")
    explained = edith.call(*unplug)
    assert explained.returncode != 0 and "HotplugVolumes feature gate" in explained.stderr, explained.stderr
    for tool, command in ((vera, unplug), (vera, ("start", "refused")), (edith, ("migrate", "refused"))):
        refused = tool.call(*command)
        assert refused.returncode != 0 and "forbidden" in refused.stderr, f"{command}: {refused.stderr}"


def test_a_right_is_for_one_subresource(kube: Kube, virtctl: Tool) -> None:
    """By roles of its own a user starts machines, and stops none."""
    kube.apply(machine("shared", "Manual"))
    rule = {
        "apiGroups": ["subresources.kubevirt.io"],
        "resources": ["virtualmachines/start"],
        "verbs": ["update"],
    }
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "starter"}}
    kube.apply(head | {"rules": [rule]})
    kube.kubectl("create", "rolebinding", "starter", "--role=starter", "--user=ada")
    ada = virtctl.of("ada")
    ada.run("start", "shared")
    kube.runs("shared")
    refused = ada.call("stop", "shared")
    assert refused.returncode != 0 and "forbidden" in refused.stderr, refused.stderr
    assert kube.phase("shared") == "Running"


# ---- who is believed


def certificate(kube: Kube, directory: pathlib.Path, authority: str, name: str) -> list[str]:
    """curl's options for a client certificate of a name, signed by one of the cluster's authorities."""
    own = directory / f"{authority}-{name}"
    authorities = pathlib.Path(f"/run/garboard-cluster/{kube.name}/pki")
    request = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    request += ["-keyout", f"{own}.key", "-out", f"{own}.csr", "-subj", f"/CN={name}"]
    extensions = directory / "extensions"
    extensions.write_text("extendedKeyUsage=clientAuth\n")
    sign = ["openssl", "x509", "-req", "-in", f"{own}.csr", "-out", f"{own}.crt", "-days", "1"]
    sign += ["-CA", f"{authorities}/{authority}.crt", "-CAkey", f"{authorities}/{authority}.key", "-CAcreateserial"]
    sign += ["-CAserial", f"{directory}/serial", "-extfile", str(extensions)]
    for command in (request, sign):
        subprocess.run(command, check=True, capture_output=True)
    return ["--cert", f"{own}.crt", "--key", f"{own}.key"]


def put(pod: Object, path: str, options: list[str]) -> tuple[int, str]:
    """The status of a request straight to a controller, as if an API server forwarded one of an administrator; 0 where
    there is no connection."""
    headers = ["-H", "X-Remote-User: admin", "-H", "X-Remote-Group: system:masters"]
    command = ["curl", "-sk", "-m", "20", "-X", "PUT", "-w", "\n%{http_code}", *headers, *options]
    url = f"https://{pod['status']['podIP']}:{PORT}{path}"
    done = subprocess.run([*command, url], capture_output=True, text=True)
    body, code = done.stdout.rsplit("\n", 1)
    return int(code), body


def test_headers_count_only_from_an_api_server(kube: Kube, tmp_path: pathlib.Path) -> None:
    kube.apply(machine("wanted", "Manual"))
    path = START % "wanted"
    strangers = {
        "no certificate": [],
        "a user's certificate": certificate(kube, tmp_path, USERS, "admin"),
        "another name of the right authority": certificate(kube, tmp_path, FRONT, "admin"),
    }
    pod = kube.controllers()[0]
    for who, options in strangers.items():
        code, body = put(pod, path, options)
        assert code in (0, 401), f"{who} is answered {code}: {body}"
    # The last one has a connection, and an answer with the reason.
    assert code == 401 and "not authenticated" in body, body
    assert "stateChangeRequests" not in kube.get("vm", "wanted").get("status", {})
    code, body = put(pod, path, certificate(kube, tmp_path, FRONT, "front-proxy-client"))
    assert code == 202, body
    kube.runs("wanted")


def test_each_replica_answers(kube: Kube, tmp_path: pathlib.Path) -> None:
    api_server = certificate(kube, tmp_path, FRONT, "front-proxy-client")
    pods = kube.controllers()
    assert len(pods) == 2
    for number, pod in enumerate(pods):
        kube.apply(machine(f"replica{number}", "Manual"))
        code, body = put(pod, START % f"replica{number}", api_server)
        assert code == 202, body
        kube.runs(f"replica{number}")


# ---- floods


def begun(pod: Object, account: str, proof: list[str]) -> ssl.SSLSocket:
    """A request to a namespace of its own straight to a controller, whose body never ends."""
    _, certificate, _, key = proof
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certificate, key)
    connection = context.wrap_socket(socket.create_connection((pod["status"]["podIP"], PORT), timeout=60))
    head = [f"PUT {BASE}/namespaces/flooding/expand-vm-spec HTTP/1.1", "Host: garboard", "Content-Length: 1000000"]
    head += [f"X-Remote-User: {account}", "X-Remote-Group: system:masters", "", " "]
    connection.sendall("\r\n".join(head).encode())
    return connection


def refused(connection: ssl.SSLSocket) -> tuple[int, str | None]:
    """The code of a refusal, which is a Status, and its header Retry-After."""
    answer = http.client.HTTPResponse(connection, method="PUT")
    answer.begin()
    status = json.loads(answer.read())
    retry = answer.getheader("Retry-After")
    assert status["kind"] == "Status" and status["code"] == answer.status, status
    assert (status.get("details") or {}).get("retryAfterSeconds") == (int(retry) if retry else None), status
    connection.close()
    return answer.status, retry


def test_a_namespace_that_floods_holds_back_no_other_one(kube: Kube, tmp_path: pathlib.Path) -> None:
    proof = certificate(kube, tmp_path, FRONT, "front-proxy-client")
    pods = kube.controllers()
    for number in range(len(pods)):
        kube.apply(machine(f"alone{number}", "Manual"))
    flood = [begun(pod, f"account-{number}", proof) for pod in pods for number in range(40)]
    for number, pod in enumerate(pods):
        at = time.monotonic()
        code, body = put(pod, START % f"alone{number}", proof)
        took = time.monotonic() - at
        assert code == 202 and took < SOON, f"{code} after {took:.1f} s: {body}"
    answers = collections.Counter(refused(connection) for connection in flood)
    # Few large bodies are read at once; the others wait for a turn, and then come again later.
    assert set(answers) == {(408, None), (429, "1")} and answers[429, "1"] > answers[408, None], answers
