"""A test cluster whose machines are recorded: what there is of them, and waiting for what will be."""

import contextlib
import json
import os
import pathlib
import signal
import time
from collections.abc import Callable
from typing import Literal, TypeVar

from ..outcome import Failure
from ..patience import PATIENCE
from .history import findings
from .names import NAMESPACE, Kind, Object
from .program import Cluster
from .qemus import Qemu
from .recorder import Recorder

Found = TypeVar("Found")


class Watched(Cluster):
    """A cluster and its recorder, which starts when Garboard is installed."""

    def __init__(self, program: pathlib.Path, name: str) -> None:
        super().__init__(program, name)
        self.recorder = Recorder(self.tool, self.environment, name)

    # ---- what there is

    def there(self, kind: Kind, name: str, namespace: str = NAMESPACE) -> Object | None:
        """The newest state of an object, or None."""
        with self.recorder.changed:
            for item in self.recorder.objects[kind].values():
                if (item["metadata"]["namespace"], item["metadata"]["name"]) == (namespace, name):
                    return item
        return None

    def present(self, kind: Kind, name: str) -> Object:
        """The newest state of an object that has to be there."""
        if not (found := self.there(kind, name)):
            raise Failure(f"there is no {kind} {name}")
        return found

    def status_of(self, kind: Kind, name: str) -> Object:
        """Its status; empty where it has none, or is not there."""
        status: Object = (self.there(kind, name) or {}).get("status") or {}
        return status

    def phase(self, name: str) -> str:
        return str(self.status_of("vmi", name).get("phase", ""))

    def printed(self, name: str) -> str:
        return str(self.status_of("vm", name).get("printableStatus", ""))

    def uid(self, name: str, kind: Kind = "vmi") -> str | None:
        found = self.there(kind, name)
        return str(found["metadata"]["uid"]) if found else None

    def condition(self, kind: Kind, name: str, wanted: str) -> Object:
        """One of its conditions; empty where it has none of this type."""
        conditions: list[Object] = self.status_of(kind, name).get("conditions", [])
        return next((each for each in conditions if each["type"] == wanted), {})

    def pods(self, name: str) -> list[Object]:
        """Its launcher pods, those that leave too."""
        with self.recorder.changed:
            pods = list(self.recorder.objects["pod"].values())
        return [pod for pod in pods if pod["metadata"].get("labels", {}).get("vm.kubevirt.io/name") == name]

    def current_pod(self, name: str) -> Object | None:
        """The launcher pod of its instance."""
        uid = self.uid(name)
        mine = [pod for pod in self.pods(name) if pod["metadata"]["labels"]["kubevirt.io/created-by"] == uid]
        return next(iter(mine), None)

    def pod(self, name: str) -> Object:
        """The launcher pod of its instance, which has to be there."""
        if not (found := self.current_pod(name)):
            raise Failure(f"{name} has no launcher pod")
        return found

    def pod_name(self, name: str) -> str:
        return str(self.pod(name)["metadata"]["name"])

    def container(self, name: str, which: str) -> Object:
        """What the kubelet reports of a container of the machine's pod: SIDECAR or COMPUTE."""
        status = self.pod(name)["status"]
        statuses: list[Object] = status.get("initContainerStatuses", []) + status.get("containerStatuses", [])
        if not (found := next((each for each in statuses if each["name"] == which), None)):
            raise Failure(f"the kubelet reports nothing of {which} of {name}")
        return found

    def restarts(self, name: str, which: str) -> int:
        return int(self.container(name, which)["restartCount"])

    def qemus(self, name: str) -> list[Qemu]:
        """The QEMU processes of a machine, as the recorder sees them."""
        return [process for process in self.recorder.running if process["machine"] == f"{NAMESPACE}/{name}"]

    def qemu(self, name: str) -> int:
        """The process ID of a machine's QEMU, which has to be there."""
        if not (found := self.qemus(name)):
            raise Failure(f"{name} has no QEMU")
        return found[0]["pid"]

    # ---- waiting

    def wait(
        self,
        what: str,
        holds: Callable[[], Found | Literal[False] | None],
        seconds: float = PATIENCE,
        circumstances: Callable[[], str] = lambda: "",
    ) -> Found:
        """Until `holds` answers something true, which is returned; asked again whenever something was recorded. A
        failure has `circumstances` in its message."""
        end, before = time.monotonic() + seconds, len(self.recorder.history)
        while not (found := holds()):
            if time.monotonic() > end:
                raise Failure(f"{what}: not within {seconds:.0f} s; {circumstances()}".removesuffix("; "))
            before = self.recorder.wait_for_more(before)
        return found

    def is_running(self, name: str, not_this: str | None = None) -> str | None:
        """The UID of the machine's instance, if it runs (another one than `not_this`), in status and in truth."""
        uid = self.uid(name)
        runs = uid != not_this and self.phase(name) == "Running" and len(self.qemus(name)) == 1
        return uid if runs else None

    def runs(self, name: str, not_this: str | None = None, seconds: float = PATIENCE) -> str:
        """Waits for that."""
        return self.wait(f"{name} Running", lambda: self.is_running(name, not_this), seconds)

    def is_gone(self, name: str) -> None:
        """Waits until nothing is left of its instance."""
        self.wait(
            f"the end of every pod and process of {name}",
            lambda: not self.there("vmi", name) and not self.pods(name) and not self.qemus(name),
        )

    def becomes(self, kind: Kind, name: str, condition: str, wanted: str | None = "True") -> Object:
        """Waits until a condition has this status, or with None is not there; the condition."""

        def holds() -> list[Object]:
            found = self.condition(kind, name, condition)
            return [found] if found.get("status") == wanted else []

        return self.wait(f"the condition {condition} of {kind} {name} {wanted}", holds)[0]

    def says_of_itself(self, kind: Kind, name: str, condition: str, text: str) -> Object:
        """Waits until the message of a condition has this text; the condition."""

        def holds() -> Object:
            found = self.condition(kind, name, condition)
            return found if text in found.get("message", "") else {}

        return self.wait(f"{text!r} in the condition {condition} of {kind} {name}", holds)

    def shows(self, name: str, *values: str) -> None:
        """Waits until the printable status of a machine is one of these."""
        self.wait(f"{name} {' or '.join(values)}", lambda: self.printed(name) in values)

    def reported(self, name: str, field: str) -> object:
        """What an instance's status has in a field, once it has something: not everything is known when its guest
        runs."""
        return self.wait(f"{field} of {name}", lambda: self.status_of("vmi", name).get(field))

    def address(self, name: str) -> str:
        """Its pod's, which the kubelet may report later than the agent that the guest runs."""

        def found() -> str | None:
            interfaces: list[dict[str, str]] = self.status_of("vmi", name).get("interfaces") or [{}]
            return interfaces[0].get("ipAddress")

        return self.wait(f"an address of {name}", found)

    # ---- machines

    def start(self, *machines: Object, seconds: float = PATIENCE) -> list[str]:
        """Applied, and waited for until they run; the UIDs of their instances."""
        self.apply(*machines)
        return [self.runs(machine["metadata"]["name"], seconds=seconds) for machine in machines]

    def will_go(self, *names: str, namespace: str = NAMESPACE) -> None:
        """For the model: these machines are removed on purpose."""
        for name in names:
            self.recorder.note("removal", machine=f"{namespace}/{name}")

    def is_removed(self, name: str) -> None:
        """Waits until nothing is left of a machine."""
        self.is_gone(name)
        self.wait(f"the end of the machine {name}", lambda: self.there("vm", name) is None)

    def page(self, address: str, node: str, seconds: float = PATIENCE) -> str:
        """What a guest serves at an address, fetched from a node."""
        command = ["timeout", "5", "curl", "-fsS", f"http://{address}/"]
        return self.ask_until(
            f"a page at {address} from {node}", lambda: self.inside(node, *command, check=False), seconds
        )

    def processes(self, name: str, program: str) -> list[int]:
        """Numbers, as the host counts, of a program's processes in the pod of a machine."""
        return self.processes_of(self.pod(name)["metadata"]["uid"], program)

    def kill(self, name: str, program: str) -> None:
        """Kills a program's processes in the pod of a machine; those that have gone meanwhile are fine."""
        for process in self.processes(name, program):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    # ---- the model

    def judge(self) -> str:
        """The model's verdict of everything since the recorder has started. GARBOARD_KEEP is where the history is
        kept."""
        with self.recorder.changed:
            history = list(self.recorder.history)
        if keep := os.environ.get("GARBOARD_KEEP"):
            lines = "".join(json.dumps(event) + "\n" for event in history)
            pathlib.Path(keep, f"{self.name}-{os.getpid()}-{len(history)}.jsonl").write_text(lines)
        # Another reading of the clock than the last event's: what is claimed is claimed until now.
        history.append({"at": time.monotonic(), "kind": "end"})
        if found := findings(history):
            raise Failure("the model refuses this history:\n" + "\n".join(f"    {each}" for each in found))
        changes = sum(event["kind"] == "processes" for event in history)
        gap = f"no gap above {self.recorder.longest_gap:.1f} s"
        return f"{len(history)} events, {changes} changes of processes, {gap}"

    def course(self, name: str) -> str:
        """What became of a machine, for a reader of a failure: the phases of each of its instances, how many QEMU
        processes there are, what is printed of it, its requests, and its events."""
        phases: dict[str, list[str]] = {}
        with self.recorder.changed:
            history = list(self.recorder.history)
        for event in history:
            if (event["kind"], event.get("type"), event.get("machine")) == ("object", "vmi", f"{NAMESPACE}/{name}"):
                seen = phases.setdefault(event["uid"], [])
                state = event["phase"] + (" and deleted" if event["leaving"] else "")
                seen += [] if seen[-1:] == [state] else [state]
        lines = [f"instance {uid}: {', '.join(seen)}" for uid, seen in phases.items()]
        requests = self.status_of("vm", name).get("stateChangeRequests", [])
        lines.append(f"{len(self.qemus(name))} QEMU; it shows {self.printed(name)!r}; requests {requests}")
        columns = "custom-columns=AT:.metadata.creationTimestamp,REASON:.reason,MESSAGE:.message"
        events = self.tried("get", "events", f"--field-selector=involvedObject.name={name}", "-o", columns)
        return "\n".join(lines + events.splitlines()[-20:])

    def circumstances(self) -> str:
        """What the API server shows of machines, for a reader of a failure."""
        shown = []
        for command in (["get", "vm,vmi,pods", "-o", "wide"], ["get", "events", "--field-selector=type=Warning"]):
            lines = self.tried(*command).splitlines()[-12:]
            shown += [line[:200] for line in lines]
        return "\n".join(shown)

    def warnings_since(self, start: float) -> str:
        """Messages of warnings that were first seen after a moment (seconds since 1970)."""
        answer = self.tried("get", "events", "--field-selector=type=Warning", "-o", "json")
        events = json.loads(answer)["items"] if answer.startswith("{") else []
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start))
        new = [each for each in events if each["metadata"]["creationTimestamp"] >= moment]
        return "\n".join(str(each.get("message") or each.get("note")) for each in new)
