"""Launcher pods: only the controller makes them, and next to nothing of one changes, for any caller."""

import pytest

from garboard_e2e.api_server import ApiServer, Caller, Object, Request
from garboard_e2e.rights import (
    AS_ADMINISTRATOR,
    BOB,
    CONTROLLER,
    DRY,
    FALSE_CONTROLLER,
    KUBELET,
    LAUNCHER,
    PODS,
    SCHEDULER,
    bind,
    change,
    granted,
    make,
    pod_status,
    refused,
)

ORDER = "garboard.dev/order"
ORDERED: Object = {"annotations": {ORDER: "{}"}}
OTHERS = {
    "bob": BOB,
    "an account called like the controller": FALSE_CONTROLLER,
    "the controller of replica sets": Caller("system:serviceaccount:kube-system:replicaset-controller"),
}
NAMED = "whose name begins with virt-launcher-"

NEW = {
    "the controller makes them": granted(
        make(CONTROLLER, {"name": "virt-launcher-x", "labels": LAUNCHER} | ORDERED, "tun")
    ),
    "other pods are made as before": granted(
        make(BOB, {"name": "x", "labels": {"app": "x"}, "annotations": {"a": "b"}})
    ),
    "other pods may have KVM": granted(make(BOB, {"name": "x"}, "kvm")),
    **{
        f"{who} makes no pod of that label": refused(
            "pods with the label kubevirt.io=virt-launcher", make(caller, {"name": "x", "labels": LAUNCHER})
        )
        for who, caller in OTHERS.items()
    },
    "no one else gives an order": refused(f"pods with the annotation {ORDER}", make(BOB, {"name": "x"} | ORDERED)),
    "no one else has the name": refused(NAMED, make(BOB, {"name": "virt-launcher-x"})),
    "nor a name made up": refused(NAMED, make(BOB, {"generateName": "virt-launcher-"})),
    **{
        f"no one else has {device}": refused("pods with devices.kubevirt.io/tun or", make(BOB, {"name": "x"}, device))
        for device in ("tun", "vhost-net")
    },
}


@pytest.mark.parametrize("name", NEW)
def test_only_the_controller_makes_launcher_pods(server: ApiServer, name: str) -> None:
    NEW[name].holds(server)


def marks(labels: Object | None = None, annotations: Object | None = None) -> Object:
    given = {"labels": labels, "annotations": annotations}
    return {"metadata": {kind: value for kind, value in given.items() if value is not None}}


def owned(kind: str, version: str, **more: bool) -> Object:
    return {"metadata": {"ownerReferences": [{"apiVersion": version, "kind": kind, "name": "x", "uid": "1"} | more]}}


OTHER_ORDER = marks(annotations={ORDER: "2"})
# As `kubectl annotate` does it.
BY_THE_ADMINISTRATOR = Request(AS_ADMINISTRATOR, "PATCH", f"{PODS}/pod-new?{DRY}", OTHER_ORDER, "merge")
MACHINE = owned("VirtualMachineInstance", "kubevirt.io/v1", controller=True)
MARKS = {
    "what has no meaning may change": granted(change(BOB, "pod-1", marks({"app": "x"}, {"a": "b"}))),
    "no other label": refused("never change", change(BOB, "pod-1", marks({"kubevirt.io": None}))),
    "no other machine": refused("never change", change(BOB, "pod-1", marks({"kubevirt.io/created-by": "x"}))),
    "none is made of another pod": refused("never change", change(BOB, "other-1", marks(dict(LAUNCHER)))),
    "no other order": refused("never change", change(BOB, "pod-new", OTHER_ORDER)),
    "not without its order": refused("never change", change(BOB, "pod-new", marks(annotations={ORDER: None}))),
    "not through the status either": refused("never change", change(BOB, "pod-new", OTHER_ORDER, "status")),
    "not even by who may do everything": refused("never change", BY_THE_ADMINISTRATOR),
    "not by a binding": refused("may not write annotations", bind(BOB, {ORDER: "2"})),
    # Other labels of a binding go to the pod, too (PodTopologyLabelsAdmission sets topology.kubernetes.io/zone in it).
    **{
        f"no label {key} by a binding": refused("may not write labels", bind(BOB, {}, {key: "x"}))
        for key in ("kubevirt.io", "kubevirt.io/created-by", "vmi.kubevirt.io/id", "garboard.dev/x")
    },
    "the scheduler binds them, and its binding has other labels": granted(
        bind(SCHEDULER, {}, {"topology.kubernetes.io/zone": "a", "notkubevirt.io": "x", "notgarboard.dev/x": "x"})
    ),
    "the kubelet writes their status": granted(
        pod_status(
            KUBELET,
            "pod-1",
            {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
        )
    ),
    "no other owner": refused("another machine as its owner", change(BOB, "pod-1", MACHINE)),
    "are deleted": granted(Request(BOB, "DELETE", f"{PODS}/pod-1?{DRY}")),
}


@pytest.mark.parametrize("name", MARKS)
def test_what_tells_whose_a_launcher_pod_is_never_changes(server: ApiServer, name: str) -> None:
    MARKS[name].holds(server)


def image(container: str, kind: str = "initContainers") -> Object:
    return {"spec": {kind: [{"name": container, "image": "other"}]}}


COMPUTE, SUPERVISOR = image("compute", "containers"), image("launcher")
FORBIDDEN, ALONE = "changes an image in a launcher pod", "only the image of its supervisor"
IMAGES = {
    "no other image": refused("never changes", change(BOB, "pod-1", COMPUTE)),
    "no other image of QEMU, not even by the controller": refused(
        "never changes", change(CONTROLLER, "pod-new", COMPUTE)
    ),
    "another image for a supervisor, by the controller": granted(change(CONTROLLER, "pod-new", SUPERVISOR)),
    "bob replaces no supervisor": refused(FORBIDDEN, change(BOB, "pod-new", SUPERVISOR)),
    "an account called like the controller replaces no supervisor": refused(
        FORBIDDEN, change(FALSE_CONTROLLER, "pod-new", SUPERVISOR)
    ),
    "no other image beside it, by the controller": refused(
        FORBIDDEN, change(CONTROLLER, "pod-new", image("volumeroot"))
    ),
    "no image of another pod, by the controller": refused(
        "no pods but launcher pods", change(CONTROLLER, "other-1", COMPUTE)
    ),
    "no label of a launcher pod, by the controller": refused(ALONE, change(CONTROLLER, "pod-new", marks({"app": "x"}))),
    "what a descheduler reads of a launcher pod, by the controller": granted(
        change(CONTROLLER, "pod-new", marks(annotations={"descheduler.alpha.kubernetes.io/evict": "true"}))
    ),
    "no other annotation of a launcher pod, by the controller": refused(
        ALONE,
        change(
            CONTROLLER, "pod-new", marks(annotations={"descheduler.alpha.kubernetes.io/request-evict-only": "true"})
        ),
    ),
    "no end of a launcher pod by a deadline, by the controller": refused(
        ALONE, change(CONTROLLER, "pod-new", {"spec": {"activeDeadlineSeconds": 1}})
    ),
    "no other owner of a launcher pod, by the controller": refused(
        ALONE, change(CONTROLLER, "pod-new", owned("ConfigMap", "v1"))
    ),
    "other pods get another image": granted(change(BOB, "other-1", COMPUTE)),
}


@pytest.mark.parametrize("name", IMAGES)
def test_only_the_image_of_a_supervisor_is_replaced_and_only_by_the_controller(server: ApiServer, name: str) -> None:
    IMAGES[name].holds(server)


def debugging(pod: str, **more: list[dict[str, str]]) -> Request:
    container = {"name": "debug", "image": "x"} | more
    return change(BOB, pod, {"spec": {"ephemeralContainers": [container]}}, "ephemeralcontainers")


VOLUMES = {
    "volumeMounts": [{"name": "file", "mountPath": "/v"}],
    "volumeDevices": [{"name": "block", "devicePath": "/v"}],
}
DEBUGGING = {
    "an ephemeral container": granted(debugging("pod-1")),
    **{
        f"no ephemeral container with {field}": refused(
            "uses no volume of its pod", debugging("pod-1", **{field: value})
        )
        for field, value in VOLUMES.items()
    },
    **{
        f"other pods have ephemeral containers with {field}": granted(debugging("other-1", **{field: value}))
        for field, value in VOLUMES.items()
    },
}


@pytest.mark.parametrize("name", DEBUGGING)
def test_a_launcher_pod_is_debugged_without_its_volumes(server: ApiServer, name: str) -> None:
    DEBUGGING[name].holds(server)
