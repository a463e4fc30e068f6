"""Pods that have the node agent's socket, and what they try."""

import dataclasses
import pathlib
import shutil
import subprocess
from collections.abc import Sequence

from ..cluster.kube import Kube
from ..cluster.names import NAMESPACE, NODE_1, Object
from ..outcome import Failure
from ..patience import PATIENCE

PROGRAM = pathlib.Path(__file__).parent / "pod"
PYTHON = ["/usr/bin/python3", "-B", "-m", PROGRAM.name]
# Where a pod has the program, and where attackers and tests meet, on the node.
MOUNTED, MEETING = "/hostile", "/run/hostile"
# Where the program lies on the node itself, as the node sees it.
ON_NODE = "/run/hostile-programs"
# The programs of this machine.
PROGRAMS = ("/usr", "/lib", "/lib64")
PAUSE = "registry.garboard.dev/cluster-pause:1"
ALONE = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@dataclasses.dataclass(frozen=True)
class Guise:
    """What a pod pretends to be: the launcher of a VMI, with its order or without."""

    vmi: str
    uid: str
    order: str | None

    def metadata(self) -> Object:
        labels = {
            "kubevirt.io": "virt-launcher",
            "kubevirt.io/created-by": self.uid,
            "vm.kubevirt.io/name": self.vmi,
        }
        owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": self.vmi, "uid": self.uid}
        annotations = {} if self.order is None else {"garboard.dev/order": self.order}
        return {"labels": labels, "ownerReferences": [owner | {"controller": True}], "annotations": annotations}


class Attackers:
    """Those of one cluster."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube

    @property
    def meeting(self) -> pathlib.Path:
        """Where they meet, as the host sees it."""
        return self.kube.root(NODE_1) / MEETING.lstrip("/")

    def meet(self) -> pathlib.Path:
        """The meeting point, empty."""
        self.kube.inside(NODE_1, "install", "-d", "-m", "777", MEETING)
        meeting = self.meeting
        for left in meeting.iterdir():
            left.unlink()
        return meeting

    def bring_the_program(self) -> None:
        data = {file.name: file.read_text() for file in PROGRAM.glob("*.py")}
        metadata = {"name": "hostile", "namespace": NAMESPACE}
        self.kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    def bring_the_program_to_the_node(self) -> None:
        """For what tries something there outside of a pod's files."""
        place = self.kube.root(NODE_1) / ON_NODE.lstrip("/")
        place.mkdir(mode=0o755, exist_ok=True)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PROGRAM, place / PROGRAM.name, ignore=ignored, dirs_exist_ok=True)

    # ---- pods

    def launcher_of(self, vmi: str) -> Object:
        """Other pods that pretend have the same labels."""
        pods = self.kube.items("pods")
        return next(pod for pod in pods if pod["metadata"]["name"].startswith(f"virt-launcher-{vmi}-"))

    def order_of(self, vmi: str) -> str:
        return str(self.launcher_of(vmi)["metadata"]["annotations"]["garboard.dev/order"])

    def guise(self, vmi: str, ordered: bool = True) -> Guise:
        uid = self.kube.get("vmi", vmi)["metadata"]["uid"]
        return Guise(vmi, uid, self.order_of(vmi) if ordered else None)

    def need(self, name: str, guise: Guise | None = None, on_the_nodes_network: bool = False) -> None:
        """The pod, made if it is not there."""
        if not self.kube.tried("get", "pod", name, "--ignore-not-found", "-o", "name"):
            self.kube.apply(manifest(name, guise, on_the_nodes_network))
        self.kube.kubectl("wait", "--for=condition=Ready", f"pod/{name}", f"--timeout={PATIENCE}s")

    def remove(self, *names: str) -> None:
        pods = [f"pod/{name}" for name in names]
        self.kube.kubectl("delete", *pods, "--force", "--grace-period=0", "--ignore-not-found")

    # ---- what they try

    def begin(self, pod: str, *attempt: str) -> subprocess.Popen[str]:
        """An attempt, in a pod, under way."""
        command = [self.kube.tool, "-n", NAMESPACE, "exec", pod, "--", *PYTHON, *attempt]
        return subprocess.Popen(
            command, env=self.kube.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def tries(self, pod: str, *attempt: str, seconds: float = PATIENCE) -> int:
        """The whole attempt; how many answers were as they should be."""
        return ends(self.begin(pod, *attempt), " ".join(attempt), seconds)


def ends(attempt: subprocess.Popen[str], what: str, seconds: float = PATIENCE) -> int:
    """Waits for the end of an attempt, in which nothing may have been let through."""
    try:
        printed, _ = attempt.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as late:
        attempt.kill()
        raise Failure(f"`{what}` did not end within {seconds} s") from late
    if attempt.returncode != 0:
        wrong = [line for line in printed.splitlines() if not line.startswith("ok")]
        raise Failure(f"`{what}` ended with {attempt.returncode}:\n" + "\n".join(line[:300] for line in wrong[-12:]))
    return sum(line.startswith("ok") for line in printed.splitlines())


def manifest(
    name: str, guise: Guise | None, on_the_nodes_network: bool = False, attempt: Sequence[str] = ("sleep",)
) -> Object:
    """A pod with the agent's socket, which pretends to be what its guise names. Under the policies of an installation
    only the controller may make such pods (tests/e2e/cluster/rights); the administrator may stand in for it. `attempt`
    is what its container does."""
    mounts = [{"name": path.strip("/"), "mountPath": path, "readOnly": True} for path in PROGRAMS]
    mounts.append({"name": "hostile", "mountPath": f"{MOUNTED}/{PROGRAM.name}", "readOnly": True})
    mounts.append({"name": "meeting", "mountPath": MEETING})
    volumes: list[Object] = [{"name": path.strip("/"), "hostPath": {"path": path}} for path in PROGRAMS]
    volumes.append({"name": "hostile", "configMap": {"name": "hostile"}})
    volumes.append({"name": "meeting", "hostPath": {"path": MEETING}})
    container = {
        "name": "attacker",
        "image": PAUSE,
        "imagePullPolicy": "IfNotPresent",
        "command": [*PYTHON, *attempt],
        "env": [{"name": "PYTHONPATH", "value": MOUNTED}],
        "resources": {"limits": {"devices.kubevirt.io/tun": "1"}},
        "securityContext": ALONE,
        "volumeMounts": mounts,
    }
    spec = {
        "hostNetwork": on_the_nodes_network,
        "automountServiceAccountToken": False,
        "nodeSelector": {"kubernetes.io/hostname": NODE_1},
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsUser": 107, "runAsGroup": 107, "seccompProfile": {"type": "Unconfined"}},
        "containers": [container],
        "volumes": volumes,
    }
    metadata = {"name": name, "namespace": NAMESPACE} | (guise.metadata() if guise else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
