"""A tenant who may make and change pods of a namespace, and has no other right: none of their pods passes for a
launcher's, and none of a launcher's pods becomes something else."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE, Object
from garboard_e2e.hostile.attackers import ALONE, PAUSE, Attackers
from garboard_e2e.hostile.machines import Machines
from garboard_e2e.outcome import Failure

ONLY = "only the controller of Garboard makes pods"
# What a pod that pretends has, and what the refusal names.
PRETENDED: list[tuple[Object, Object, str]] = [
    ({"name": "virt-launcher-honest-tenan"}, {}, "whose name begins with virt-launcher-"),
    ({"labels": {"kubevirt.io": "virt-launcher"}}, {}, "with the label kubevirt.io=virt-launcher"),
    ({"annotations": {"garboard.dev/order": "{}"}}, {}, "with the annotation garboard.dev/order"),
    ({}, {"devices.kubevirt.io/tun": "1"}, "with devices.kubevirt.io/tun"),
    ({}, {"devices.kubevirt.io/vhost-net": "1"}, "with devices.kubevirt.io/tun"),
]


def pod(metadata: Object, limits: Object) -> Object:
    container = {
        "name": "tenant",
        "image": PAUSE,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"limits": limits},
        "securityContext": ALONE,
    }
    spec = {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 107, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    named = {"name": "pretends", "namespace": NAMESPACE} | metadata
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": spec}


class Tenant:
    """Their requests, by kubectl."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube

    def asks(self, *arguments: str, **options: Any) -> str:
        return self.kube.kubectl("--as=tenant", "--as-group=system:authenticated", *arguments, **options)

    def makes(self, metadata: Object, limits: Object, code: int = 0) -> str:
        return self.asks("apply", "-f", "-", text=json.dumps(pod(metadata, limits)), code=code)

    def may_make_pods(self) -> bool:
        try:
            return "yes" in self.asks("auth", "can-i", "create", "pods")
        except Failure:
            return False


@pytest.fixture(scope="module")
def tenant(kube: Kube) -> Iterator[Tenant]:
    subject = {"kind": "User", "name": "tenant", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "edit", "apiGroup": "rbac.authorization.k8s.io"}
    kube.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "tenant", "namespace": NAMESPACE},
            "roleRef": role,
            "subjects": [subject],
        }
    )
    tenant = Tenant(kube)
    kube.ask_until("the right to make pods", tenant.may_make_pods)
    yield tenant
    kube.kubectl("delete", "pods", "tenants", "owned", "--force", "--grace-period=0", "--ignore-not-found")


@pytest.mark.parametrize("metadata, limits, named", PRETENDED, ids=["name", "label", "annotation", "tun", "vhost-net"])
def test_no_pod_of_theirs_is_made_that_has_the_marks_of_a_launcher(
    tenant: Tenant, honest: str, metadata: Object, limits: Object, named: str
) -> None:
    if "labels" in metadata:
        metadata = {"labels": metadata["labels"] | {"kubevirt.io/created-by": honest}}
    answer = tenant.makes(metadata, limits, code=1)
    assert f"{ONLY} {named}" in answer, f"refused otherwise: {answer}"


def test_neither_their_pods_nor_those_of_a_launcher_get_other_marks(
    kube: Kube, tenant: Tenant, attackers: Attackers, machines: Machines, honest: str
) -> None:
    """The machine, its pod and its order stay what they were."""
    launcher = attackers.launcher_of("honest")["metadata"]["name"]
    order = attackers.order_of("honest")
    assert order, f"the pod {launcher} has no order"
    tenant.makes({"name": "tenants"}, {})
    # Every user may write an owner reference; the pod counts by its label as well.
    owner = attackers.guise("honest").metadata()["ownerReferences"]
    tenant.makes({"name": "owned", "ownerReferences": owner}, {})
    changes = [
        ("annotate", "pod/tenants", "garboard.dev/order={}"),
        ("label", "pod/tenants", "kubevirt.io=virt-launcher"),
        ("label", "pod/owned", "kubevirt.io=virt-launcher"),
        ("annotate", f"pod/{launcher}", "garboard.dev/order={}"),
        ("label", f"pod/{launcher}", "kubevirt.io/created-by=x"),
    ]
    for verb, which, change in changes:
        answer = tenant.asks(verb, "--overwrite", which, change, code=1)
        assert "never change" in answer, f"{verb} {which} {change} is refused otherwise: {answer}"
    machines.serves("honest")
    assert attackers.order_of("honest") == order, "the order changed"
    active = kube.get("vmi", "honest")["status"]["activePods"]
    assert len(active) == 1, f"pods of the machine: {active}"
