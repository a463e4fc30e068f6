"""Who may do what: requests of Garboard's accounts and of others, and what an API server has to answer to each. All of
them are dry runs."""

import dataclasses
import functools
import json
from typing import Any
from urllib.parse import quote

from .api_server import ApiServer, Caller, Object, Request
from .outcome import Failure
from .patience import wait_until

AGENT_ACCOUNT = "system:serviceaccount:garboard:garboard-node"
CONTROLLER_ACCOUNT = "system:serviceaccount:garboard:garboard-controller"
DATA_VOLUMES_ACCOUNT = "system:serviceaccount:garboard:garboard-datavolumes"
ELSEWHERE_ACCOUNT = "system:serviceaccount:elsewhere:garboard-node"
FALSE_AGENT_ACCOUNT = "system:serviceaccount:default:garboard-node"
FALSE_CONTROLLER_ACCOUNT = "system:serviceaccount:default:garboard-controller"
# The controller's own token.
TOKENS = {"controller": CONTROLLER_ACCOUNT}

# The agent's token has a claim with the name of its node, if a kubelet has it from a pod.
AGENT, AGENT_1 = Caller(AGENT_ACCOUNT), Caller(AGENT_ACCOUNT, node="node-1")
CONTROLLER, DATA_VOLUMES = Caller(CONTROLLER_ACCOUNT), Caller(DATA_VOLUMES_ACCOUNT)
CONTROLLER_AS_DATA_VOLUMES = Caller(DATA_VOLUMES_ACCOUNT, token="controller")
BOB, EDITOR, VIEWER, KUBELET, SCHEDULER = map(Caller, ("bob", "editor", "viewer", "kubelet", "system:kube-scheduler"))
# Users with a role in the namespace `default`, and one with a role for the cluster.
HOLDERS = {
    "namespace-admin": "kubevirt.io:admin",
    "editor": "kubevirt.io:edit",
    "viewer": "kubevirt.io:view",
    "migrator": "kubevirt.io:migrate",
    "starter-by-get": "garboard-start-by-get",
    "asker": "garboard-qmp-read",
    "changer": "garboard-qmp-write",
    "master": "garboard-qmp-dangerous",
    "historian": "garboard-runs",
    "inspector": "garboard-inspect",
}
TYPES_VIEWER = "types-viewer"
# Accounts that are only called like Garboard's.
FALSE_AGENT, FALSE_CONTROLLER = Caller(FALSE_AGENT_ACCOUNT, node="node-1"), Caller(FALSE_CONTROLLER_ACCOUNT)
AS_ADMINISTRATOR = Caller()

DRY = "dryRun=All"
PODS = "/api/v1/namespaces/default/pods"
RUNS = "/apis/garboard.dev/v1/namespaces/default/machineruns"
REVISIONS = "/apis/apps/v1/namespaces/default/controllerrevisions"
MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
RUNNING: Object = {"status": {"phase": "Running"}}


@dataclasses.dataclass(frozen=True)
class Row:
    """A request, and what the message of its refusal has in it; without that it is granted."""

    request: Request
    refusal: str = ""

    def holds(self, server: ApiServer) -> None:
        answer = server.ask(self.request)
        if not self.refusal and not answer.is_granted:
            raise Failure(f"refused: {answer.status} {answer.message}")
        if self.refusal and answer.is_granted:
            raise Failure(f"granted, and should be refused with {self.refusal!r}")
        if self.refusal not in answer.message:
            raise Failure(f"not refused with {self.refusal!r}, but: {answer.status} {answer.message}")


def granted(request: Request) -> Row:
    return Row(request)


def refused(refusal: str, request: Request) -> Row:
    return Row(request, refusal)


# ---- requests


def instance(caller: Caller, name: str, body: Object, version: str = "v1") -> Request:
    """A change of an instance, whose status is in its object."""
    path = f"/apis/kubevirt.io/{version}/namespaces/default/virtualmachineinstances/{name}?{DRY}"
    return Request(caller, "PATCH", path, body, "merge")


def node(caller: Caller, name: str, body: Object) -> Request:
    return Request(caller, "PATCH", f"/api/v1/nodes/{name}?{DRY}", body, "merge")


def labels(caller: Caller, name: str, changed: Object) -> Request:
    return node(caller, name, {"metadata": {"labels": changed}})


def pod_status(caller: Caller, name: str, body: Object, patch: str = "strategic-merge") -> Request:
    return Request(caller, "PATCH", f"{PODS}/{name}/status?{DRY}", body, patch)


def condition(caller: Caller, name: str, of_type: str = "kubevirt.io/virtual-machine-unpaused") -> Request:
    return pod_status(caller, name, {"status": {"conditions": [{"type": of_type, "status": "True"}]}})


def make(caller: Caller, metadata: Object, device: str = "") -> Request:
    """A new pod, with a device if one is named."""
    own = {"resources": {"limits": {f"devices.kubevirt.io/{device}": "1"}}} if device else {}
    spec = {"containers": [{"name": "c", "image": "none"}], "initContainers": [{"name": "i", "image": "none"} | own]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return Request(caller, "POST", f"{PODS}?{DRY}", body)


def change(caller: Caller, pod: str, body: Object, subresource: str = "") -> Request:
    path = f"{PODS}/{pod}" + (f"/{subresource}" if subresource else "")
    return Request(caller, "PATCH", f"{path}?{DRY}", body, "strategic-merge")


def bind(caller: Caller, annotations: Object, changed: Object | None = None) -> Request:
    """A binding of the pod that has no node yet; what it has of annotations and labels goes to the pod."""
    metadata = {"name": "pod-new", "annotations": annotations, "labels": changed}
    target = {"kind": "Node", "name": "node-1"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    return Request(caller, "POST", f"{PODS}/pod-new/binding?{DRY}", body)


def asks(caller: Caller, status: Object, version: str = "v1") -> Request:
    """A change of the status of a VirtualMachine, where starts and stops are asked for."""
    path = f"/apis/kubevirt.io/{version}/namespaces/default/virtualmachines/vm-1/status?{DRY}"
    return Request(caller, "PATCH", path, {"status": status}, "merge")


def run(caller: Caller, on: str, changed: Object | None = None, **metadata: Any) -> Request:
    """A record of a run, with these fields of its spec changed."""
    times = {"startedAt": "2026-01-01T00:00:00Z", "endedAt": "2026-01-01T00:00:01Z"}
    spec = {"machine": "vm-1", "instanceUID": "i", "podUID": "p", "node": on, "reason": "GuestShutdown"} | times
    head = {"apiVersion": "garboard.dev/v1", "kind": "MachineRun", "metadata": {"name": "vm-1-0a1b2c3d"} | metadata}
    return Request(caller, "POST", f"{RUNS}?{DRY}", head | {"spec": spec | (changed or {})})


def record(caller: Caller, name: str, of: str = "7f", **owner: Any) -> Request:
    """A new ControllerRevision."""
    return Request(caller, "POST", f"{REVISIONS}?{DRY}", revision(name, of, **owner))


def copy(caller: Caller, name: str, **owner: Any) -> Request:
    """A new copy of an instancetype."""
    body = revision(name, "7f", **owner)
    body["metadata"]["labels"] = {"instancetype.kubevirt.io/object-version": "v1beta1"}
    return Request(caller, "POST", f"{REVISIONS}?{DRY}", body)


def drop(caller: Caller, selector: str = "") -> Request:
    """The deletion of ControllerRevisions by their labels, or of all."""
    return Request(caller, "DELETE", f"{REVISIONS}?{DRY}&labelSelector={quote(selector)}")


def end(caller: Caller, machine: str) -> Request:
    """The deletion of a VirtualMachine."""
    return Request(caller, "DELETE", f"{MACHINES}/{machine}?{DRY}")


# ---- rights that RBAC alone decides


# Of the API that controllers serve; none runs here.
AGGREGATED = {f"{resource}.subresources.kubevirt.io" for resource in ("virtualmachines", "virtualmachineinstances")}


@dataclasses.dataclass(frozen=True)
class Right:
    """A verb for PLURAL[.GROUP][/NAME], in a namespace or, without one, in all of them."""

    caller: Caller
    verb: str
    resource: str
    namespace: str = ""
    subresource: str = ""

    def is_given(self, server: ApiServer) -> bool:
        kind, _, name = self.resource.partition("/")
        # With a kind that is misspelt, no role would have the right.
        if kind not in server.resources and kind not in AGGREGATED:
            raise Failure(f"there is no {kind}: {sorted(server.resources)}")
        plural, _, group = kind.partition(".")
        attributes = {"verb": self.verb, "group": group, "resource": plural, "namespace": self.namespace}
        attributes |= {"name": name, "subresource": self.subresource}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = server.ask(Request(self.caller, "POST", path, {"spec": {"resourceAttributes": attributes}}))
        if not answer.is_granted:
            raise Failure(f"the question itself is refused: {answer.message}")
        return bool(answer.body["status"]["allowed"])


# ---- what they are asked about


def definition(kind: str, group: str, *versions: str) -> Object:
    """A kind with a loose schema: this is about rights."""
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": loose, "status": loose}}}
    plural = f"{kind.lower()}s"
    # Of these kinds only a VirtualMachine has its status apart from its object.
    apart: Object = {"subresources": {"status": {}}} if kind == "VirtualMachine" else {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # An API server takes a kind of a group of Kubernetes' own with this alone.
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [
                {"name": version, "served": True, "storage": version == versions[0], "schema": schema} | apart
                for version in versions
            ],
        },
    }


def pod(name: str, changed: Object, spec: Object) -> Object:
    containers = {"containers": [{"name": "compute", "image": "none"}]}
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"} | changed}
    return head | {"spec": containers | spec}


def virtual(kind: str, name: str, more: Object, **metadata: object) -> Object:
    head = {"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"} | metadata}
    return head | more


# What makes of the owner of a machine none of its pool.
OTHER_OWNERS: tuple[Object, ...] = (
    {"controller": False},
    {"apiVersion": "apps/v1", "kind": "ReplicaSet"},
    {"apiVersion": "example.com/v1"},
)


def of_pool(name: str, **owner: Any) -> Object:
    """A VirtualMachine that a pool controls, but for what `owner` says."""
    pool = {
        "apiVersion": "pool.kubevirt.io/v1beta1",
        "kind": "VirtualMachinePool",
        "name": "p",
        "uid": "9c",
        "controller": True,
    }
    return virtual("VirtualMachine", name, {"spec": {"runStrategy": "Halted"}}, ownerReferences=[pool | owner])


LAUNCHER = {"kubevirt.io": "virt-launcher"}
# The label of a ControllerRevision of a StatefulSet, of one that no machine controls, and of a copy of an instancetype
# that an earlier release of KubeVirt made.
OF_A_SET, OF_NONE, OF_EARLIER = "set", "none", "earlier"


def revision(name: str, of: str, **owner: Any) -> Object:
    """A ControllerRevision with the label of a machine. Its owner is the machine with the UID 7f, but for what `owner`
    says."""
    machine = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "name": "vm-1",
        "uid": "7f",
        "controller": True,
    }
    metadata = {"name": name, "namespace": "default", "labels": {"garboard.dev/revision-of": of}}
    head = {"apiVersion": "apps/v1", "kind": "ControllerRevision"}
    return head | {"metadata": metadata | {"ownerReferences": [machine | owner]}, "revision": 1, "data": {"spec": {}}}


def of_node(number: int) -> list[Object]:
    """A node, a launcher pod and another pod on it, and the machine of the former."""
    name = f"node-{number}"
    claimed = {"name": "block", "persistentVolumeClaim": {"claimName": "block"}}
    placed = {"nodeName": name, "volumes": [{"name": "file", "emptyDir": {}}, claimed]}
    marks = {"kubernetes.io/os": "linux", "kubevirt.io/schedulable": "false"}
    status = {"nodeName": name, "phase": "Scheduled", "activePods": {"mine": name, "elsewhere": "node-9"}}
    more: Object = {"spec": {"domain": {"devices": {}}}, "status": status}
    return [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": marks}},
        pod(f"pod-{number}", {"labels": LAUNCHER}, placed),
        pod(f"other-{number}", {"labels": {"app": "other"}}, placed),
        virtual(
            "VirtualMachineInstance", f"vm-{number}", more, finalizers=["kubevirt.io/foregroundDeleteVirtualMachine"]
        ),
    ]


def new_pod() -> Object:
    """A launcher pod that has no node yet."""
    supervisor = {"name": "launcher", "image": "none", "restartPolicy": "Always"}
    metadata = {"labels": LAUNCHER, "annotations": {"garboard.dev/order": "1"}}
    return pod("pod-new", metadata, {"initContainers": [{"name": "volumeroot", "image": "none"}, supervisor]})


def make_objects(server: ApiServer) -> None:
    """Two nodes, and on each a machine and its pod; a third machine is not placed yet. Then Garboard's own."""
    kinds = [
        definition(kind, "kubevirt.io", "v1", "v1alpha3")
        for kind in ("VirtualMachine", "VirtualMachineInstance", "KubeVirt")
    ]
    kinds.append(definition("VirtualMachinePool", "pool.kubevirt.io", "v1beta1", "v1alpha1"))
    # Kinds of CDI and of storage drivers: only one that exists can be asked about.
    kinds.append(definition("DataVolume", "cdi.kubevirt.io", "v1beta1"))
    kinds.append(definition("VolumeSnapshot", "snapshot.storage.k8s.io", "v1"))
    server.apply(*kinds)
    names = [f"crd/{kind['metadata']['name']}" for kind in kinds]
    server.kubectl("wait", "--for=condition=Established", "--timeout=180s", *names)
    unplaced = virtual("VirtualMachineInstance", "vm-new", {"spec": {"domain": {"devices": {}}}})
    manual = virtual("VirtualMachine", "vm-1", {"spec": {"runStrategy": "Manual"}})
    server.apply(*of_node(1), *of_node(2), new_pod(), unplaced, manual)
    server.apply(of_pool("p-0"), *(of_pool(f"p-{number}", **owner) for number, owner in enumerate(OTHER_OWNERS, 1)))
    for number in (1, 2):
        address = f"10.244.{number}.9"
        write_status(server, f"pod/pod-{number}", {"podIP": address, "podIPs": [{"ip": address}]})
    write_status(server, "virtualmachine/vm-1", {"ready": True, "runStrategy": "Manual"})
    server.kubectl("create", "secret", "generic", "-n", "default", "theirs")
    server.apply(
        revision("revision-start-vm-7f-1", "7f"),
        revision("web-5d4", OF_A_SET, apiVersion="apps/v1", kind="StatefulSet"),
        revision("revision-start-vm-7f-2", OF_NONE, controller=False),
        revision("vm-1-u1.small-8b-1", OF_EARLIER),
    )
    make_strangers(server)
    server.install()
    # What controllers of a real cluster do with the roles that are added to those of Kubernetes.
    for user, role in HOLDERS.items():
        server.kubectl("create", "rolebinding", "-n", "default", f"{user}s", f"--clusterrole={role}", f"--user={user}")
    of_types = ["--clusterrole=instancetype.kubevirt.io:view", f"--user={TYPES_VIEWER}"]
    server.kubectl("create", "clusterrolebinding", f"{TYPES_VIEWER}s", *of_types)


def write_status(server: ApiServer, what: str, status: Object) -> None:
    body = json.dumps({"status": status})
    server.kubectl("patch", "-n", "default", what, "--subresource", "status", "--type", "merge", "-p", body)


def make_strangers(server: ApiServer) -> None:
    """In the namespace `default` bob may do everything, and so may two accounts that are called like Garboard's. The
    account of an agent that is installed in `elsewhere` has the rights of one."""
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "everything", "namespace": "default"}}
    server.apply(role | {"rules": [everything]})
    users = [f"--user={user}" for user in ("bob", FALSE_CONTROLLER_ACCOUNT, FALSE_AGENT_ACCOUNT)]
    server.kubectl("create", "rolebinding", "-n", "default", "everything", "--role=everything", *users)
    for name, cluster_role, user in (
        ("elsewhere", "garboard-node", ELSEWHERE_ACCOUNT),
        ("kubelet", "system:node", "kubelet"),
    ):
        server.kubectl("create", "clusterrolebinding", name, f"--clusterrole={cluster_role}", f"--user={user}")


# One request that each policy refuses.
POLICIES: dict[str, Request] = {
    "instances": instance(AGENT_1, "vm-2", RUNNING),
    "nodes": labels(AGENT_1, "node-2", {"kubevirt.io/schedulable": "true"}),
    "pods of other nodes": condition(AGENT_1, "pod-2"),
    "new pods": make(BOB, {"name": "virt-launcher-x"}),
    "launcher pods": change(BOB, "pod-1", {"metadata": {"labels": {"kubevirt.io": "x"}}}),
    "bindings": bind(BOB, {"garboard.dev/order": "2"}),
    "VirtualMachines": asks(EDITOR, {"ready": False}),
    "ControllerRevisions": record(CONTROLLER, "web-1", kind="StatefulSet"),
    "machines of pools": end(CONTROLLER, "vm-1"),
}


def await_policies(server: ApiServer) -> None:
    """A policy is in force some time after it was made."""
    for about, request in POLICIES.items():
        wait_until(f"the policy about {about}", functools.partial(is_refused_by_a_policy, server, request))


def is_refused_by_a_policy(server: ApiServer, request: Request) -> bool:
    answer = server.ask(request)
    return not answer.is_granted and "ValidatingAdmissionPolicy" in answer.message
