"""A client made from the official Python client of Kubernetes, which sends YAML: prints a line for each check,
`ok NAME` or `failed NAME: REASON`, and ends with 1 when one failed. Stands alone: tests run it in a process of
its own, where nothing else is called `kubernetes`.

    python -m garboard_e2e.python_client NAMESPACE MACHINE.json SECONDS
    python -m garboard_e2e.python_client --list    prints the names of all checks

MACHINE.json is a VirtualMachine with `runStrategy: Manual` whose guest is the hello guest with an agent. It is left
there, stopped. SECONDS is how long each check waits.
"""

import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import kubernetes
import yaml
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import DynamicApiError

YAML, APPLY = "application/yaml", "application/apply-patch+yaml"
SUBRESOURCES = "/apis/subresources.kubevirt.io/v1"
MANAGER = "python-client"


class Differs(Exception):
    """Something is not as a check expects it."""


class Player:
    """The machine and the way to it."""

    def __init__(self, client: Any, namespace: str, machine: dict[str, Any], seconds: float) -> None:
        self.client, self.namespace, self.machine, self.seconds = client, namespace, machine, seconds
        self.name = str(machine["metadata"]["name"])
        self.objects = f"/apis/kubevirt.io/v1/namespaces/{namespace}"

    # ---- requests

    def ask(self, method: str, path: str, body: str | None = None, content_type: str = YAML, **more: Any) -> bytes:
        """The answer to a request with a body of text."""
        response = self.client.request(method, path, body=body, content_type=content_type, serialize=False, **more)
        answer: bytes = response.data
        return answer

    def put(self, kind: str, what: str, body: str | None = None) -> bytes:
        """A change through a subresource."""
        return self.ask("put", f"{SUBRESOURCES}/namespaces/{self.namespace}/{kind}/{self.name}/{what}", body)

    def read(self, kind: str, what: str) -> bytes:
        return self.ask("get", f"{SUBRESOURCES}/namespaces/{self.namespace}/{kind}/{self.name}/{what}")

    def get(self, kind: str) -> dict[str, Any]:
        """An object, asked for as YAML."""
        answer = self.ask("get", f"{self.objects}/{kind}/{self.name}", header_params={"Accept": YAML})
        if answer.lstrip().startswith(b"{"):
            raise Differs(f"YAML was asked for: {answer[:80]!r}")
        found: dict[str, Any] = yaml.safe_load(answer)
        return found

    # ---- waiting and comparing

    def until(self, what: str, holds: Callable[[], Any]) -> None:
        end = time.monotonic() + self.seconds
        while not holds():
            if time.monotonic() > end:
                raise Differs(f"{what}: not within {self.seconds:.0f} s")
            time.sleep(0.5)

    def instance(self) -> dict[str, Any] | None:
        try:
            return self.get("virtualmachineinstances")
        except DynamicApiError as error:
            if error.status != 404:
                raise
        return None

    def has(self, condition: str) -> bool:
        """Whether the instance is there and has a condition."""
        conditions = (self.instance() or {}).get("status", {}).get("conditions", [])
        return any(each["type"] == condition and each["status"] == "True" for each in conditions)

    def is_stopped(self) -> bool:
        """Whether there is no instance, and no request waits."""
        status = self.get("virtualmachines").get("status", {})
        is_idle = status.get("printableStatus") == "Stopped" and "stateChangeRequests" not in status
        return is_idle and self.instance() is None


def expect(holds: Any, shown: object) -> None:
    if not holds:
        raise Differs(str(shown)[:500])


def refused(status: int, text: str, call: Callable[[], object]) -> None:
    """The call has to be refused, with a Status that has the text."""
    try:
        call()
    except DynamicApiError as error:
        body = error.body.decode() if isinstance(error.body, bytes) else str(error.body)
        expect(error.status == status and text in body, f"{error.status}: {body}")
        return
    raise Differs("it was not refused")


# ---- the checks, in their order


def discover(player: Player) -> None:
    kinds = player.client.resources
    machines = kinds.get(api_version="kubevirt.io/v1", kind="VirtualMachine")
    expect(machines.namespaced and machines.name == "virtualmachines", machines)


def create(player: Player) -> None:
    text = yaml.safe_dump(player.machine)
    expect(not text.startswith("{"), text)
    answer = json.loads(player.ask("post", f"{player.objects}/virtualmachines", text))
    expect(answer["metadata"]["uid"] and answer["spec"]["runStrategy"] == "Manual", answer)


def read_yaml(player: Player) -> None:
    player.until("its first status", player.is_stopped)
    found = player.get("virtualmachines")
    expect(found["kind"] == "VirtualMachine" and found["metadata"]["name"] == player.name, found)


def replace(player: Player) -> None:
    found = player.get("virtualmachines")
    found["metadata"].setdefault("annotations", {})["replaced"] = "yes"
    path = f"{player.objects}/virtualmachines/{player.name}"
    answer = json.loads(player.ask("put", path, yaml.safe_dump(found)))
    expect(answer["metadata"]["annotations"]["replaced"] == "yes", answer["metadata"])
    found["metadata"]["resourceVersion"] = "1"
    refused(409, "the object has been modified", lambda: player.ask("put", path, yaml.safe_dump(found)))


def apply(player: Player, document: dict[str, Any], manager: str, force: bool = False) -> dict[str, Any]:
    """Server-side apply, of a text of YAML."""
    path = f"{player.objects}/virtualmachines/{player.name}"
    options = {"field_manager": manager, "force_conflicts": force}
    answer: dict[str, Any] = json.loads(player.ask("patch", path, yaml.safe_dump(document), APPLY, **options))
    return answer


def server_side_apply(player: Player) -> None:
    first = apply(player, player.machine, MANAGER, force=True)
    managers = {each["manager"]: each["operation"] for each in first["metadata"]["managedFields"]}
    expect(managers.get(MANAGER) == "Apply", managers)
    second = apply(player, player.machine, MANAGER)
    generations = [each["metadata"]["generation"] for each in (first, second)]
    expect(generations[0] == generations[1], f"what was applied already is changed: {generations}")


def conflict(player: Player) -> None:
    """Two managers of one field: the second one has to force it."""
    head = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": player.name}}
    halted = head | {"spec": {"runStrategy": "Halted"}}
    refused(409, ".spec.runStrategy", lambda: apply(player, halted, "another"))
    expect(apply(player, halted, "another", force=True)["spec"]["runStrategy"] == "Halted", "it was forced")
    expect(apply(player, player.machine, MANAGER, force=True)["spec"]["runStrategy"] == "Manual", "it was forced back")


def refused_by_webhook(player: Player) -> None:
    wrong = player.machine | {"spec": player.machine["spec"] | {"runStrategy": "Sometimes"}}
    refused(422, "spec.runStrategy", lambda: apply(player, wrong, MANAGER, force=True))


def dynamic_apply(player: Player) -> None:
    """As the dynamic client has it: an object, which it calls YAML."""
    machines = player.client.resources.get(api_version="kubevirt.io/v1", kind="VirtualMachine")
    options = {"namespace": player.namespace, "field_manager": MANAGER, "force_conflicts": True}
    answer = machines.server_side_apply(body=player.machine, **options)
    expect(answer.metadata.name == player.name, answer)


def start_paused(player: Player) -> None:
    """The options of a start, as YAML."""
    player.put("virtualmachines", "start", "# by a person\npaused: true\n")
    player.until("a paused guest", lambda: player.has("Paused"))


def second_start(player: Player) -> None:
    refused(409, "VM is already running", lambda: player.put("virtualmachines", "start", "paused: false\n"))


def broken_options(player: Player) -> None:
    refused(400, "Can not unmarshal", lambda: player.put("virtualmachines", "stop", "gracePeriod: [\n"))
    refused(400, "Can not unmarshal", lambda: player.put("virtualmachines", "stop", "gracePeriod: soon\n"))


def unpause(player: Player) -> None:
    player.put("virtualmachineinstances", "unpause", "dryRun: [All]\n")
    expect(player.has("Paused"), "a dry run changed it")
    player.put("virtualmachineinstances", "unpause")
    player.until("a guest that runs", lambda: not player.has("Paused"))


def guest(player: Player) -> None:
    player.until("a guest agent", lambda: player.has("AgentConnected"))
    info = json.loads(player.read("virtualmachineinstances", "guestosinfo"))
    expect(info["guestAgentVersion"] == "hello", info)
    for what in ("userlist", "filesystemlist"):
        listed = json.loads(player.read("virtualmachineinstances", what))
        expect(len(listed["items"]) == 1, listed)


def picture(player: Player) -> None:
    content = player.read("virtualmachineinstances", "vnc/screenshot")
    expect(content.startswith(b"\x89PNG\r\n"), content[:16])


def expansion(player: Player) -> None:
    expanded = json.loads(player.read("virtualmachines", "expand-spec"))
    expect(expanded["kind"] == "VirtualMachine" and expanded["metadata"]["name"] == player.name, expanded)


def version(player: Player) -> None:
    found = json.loads(player.ask("get", f"{SUBRESOURCES}/version"))
    expect(found["gitVersion"].startswith("v1.7."), found)


def freeze(player: Player) -> None:
    player.put("virtualmachineinstances", "freeze", "unfreezeTimeout: 5m0s\n")
    player.put("virtualmachineinstances", "unfreeze")


def watch(player: Player) -> None:
    machines = player.client.resources.get(api_version="kubevirt.io/v1", kind="VirtualMachine")
    for event in machines.watch(namespace=player.namespace, name=player.name, timeout=int(player.seconds)):
        if event["raw_object"].get("status", {}).get("printableStatus") == "Running":
            return
    raise Differs("no event has shown that it runs")


def stop(player: Player) -> None:
    player.put("virtualmachines", "stop", "gracePeriod: 0\n")
    player.until("the end of the instance", player.is_stopped)


def second_stop(player: Player) -> None:
    refused(409, "VM is not running", lambda: player.put("virtualmachines", "stop"))


CHECKS: dict[str, Callable[[Player], None]] = {
    "the kinds are discovered": discover,
    "a machine is created by YAML": create,
    "a machine is read as YAML": read_yaml,
    "a machine is replaced by YAML, and not by an old one": replace,
    "server-side apply owns what it wrote, and does nothing twice": server_side_apply,
    "two managers of a field are a conflict": conflict,
    "what is applied is validated": refused_by_webhook,
    "the dynamic client applies an object": dynamic_apply,
    "the options of a start are YAML": start_paused,
    "a second start is a conflict": second_start,
    "options that cannot be read are a bad request": broken_options,
    "a guest is unpaused, and not by a dry run": unpause,
    "a watch shows a running machine": watch,
    "the guest agent's answers are read": guest,
    "file systems are frozen and thawed": freeze,
    "a screenshot is read": picture,
    "the expanded specification is read": expansion,
    "the version is read": version,
    "the options of a stop are YAML": stop,
    "a stop of what is stopped is a conflict": second_stop,
}


def play(namespace: str, machine: str, seconds: str) -> int:
    kubernetes.config.load_kube_config()
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        # Its own: the usual place keeps what it found on the cluster before, at the same address.
        client = DynamicClient(kubernetes.client.ApiClient(), cache_file=f"{directory}/discovered.json")
        document = json.loads(pathlib.Path(machine).read_text())
        player = Player(client, namespace, document, float(seconds))
        for name, check in CHECKS.items():
            try:
                check(player)
            except Exception as error:  # the others are to be tried too
                failed += 1
                print(f"failed {name}: {type(error).__name__}: {' '.join(str(error).split())}", flush=True)
            else:
                print(f"ok {name}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(CHECKS))
    else:
        sys.exit(play(*sys.argv[1:]))
