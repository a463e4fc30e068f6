"""What the roles of agent and controller give, and what they do not. Those of users are in test_access.py."""

import pytest

from garboard_e2e.api_server import ApiServer
from garboard_e2e.rights import AGENT, CONTROLLER, EDITOR, Right

INSTANCES, MACHINES = "virtualmachineinstances.kubevirt.io", "virtualmachines.kubevirt.io"
POOLS = "virtualmachinepools.pool.kubevirt.io"
EVENTS, LEASES = "events.events.k8s.io", "leases.coordination.k8s.io"
CLAIMS, REVISIONS = "persistentvolumeclaims", "controllerrevisions.apps"
SIZES = "virtualmachineinstancetypes.instancetype.kubevirt.io"
WISHES = "virtualmachineclusterpreferences.instancetype.kubevirt.io"
RUNS = "machineruns.garboard.dev"
SETTINGS = "kubevirts.kubevirt.io"
SNAPSHOTS = "volumesnapshots.snapshot.storage.k8s.io"
WEBHOOKS = "validatingwebhookconfigurations.admissionregistration.k8s.io"

ASKED, RUN = "virtualmachines.subresources.kubevirt.io", "virtualmachineinstances.subresources.kubevirt.io"
REVIEWS, SERVICES = "subjectaccessreviews.authorization.k8s.io", "apiservices.apiregistration.k8s.io"
TOKENS, SLICES, AUTHORITIES = (
    "tokenreviews.authentication.k8s.io",
    "endpointslices.discovery.k8s.io",
    "configmaps/garboard-authorities",
)

GIVEN = {
    "agent: sees machines": Right(AGENT, "watch", INSTANCES),
    "agent: sees pods": Right(AGENT, "watch", "pods"),
    "agent: finds the controllers": Right(AGENT, "watch", SLICES, "garboard"),
    "agent: reads the CA bundle of the controllers": Right(AGENT, "get", AUTHORITIES, "garboard"),
    "agent: follows the settings": Right(AGENT, "watch", SETTINGS, "garboard"),
    "agent: writes events": Right(AGENT, "create", EVENTS, "default"),
    "controller: makes pods": Right(CONTROLLER, "create", "pods", "default"),
    "controller: makes machines": Right(CONTROLLER, "create", INSTANCES, "default"),
    # Those of pools: test_pools.py.
    "controller: makes VirtualMachines": Right(CONTROLLER, "create", MACHINES, "default"),
    "controller: deletes VirtualMachines": Right(CONTROLLER, "delete", MACHINES, "default"),
    "controller: sees pools": Right(CONTROLLER, "watch", POOLS),
    "controller: writes the status of pools": Right(CONTROLLER, "patch", POOLS, "default", "status"),
    "controller: makes claims": Right(CONTROLLER, "create", CLAIMS, "default"),
    "controller: watches claims": Right(CONTROLLER, "watch", CLAIMS),
    "controller: its webhooks' certificates": Right(CONTROLLER, "update", "secrets/garboard-webhook", "garboard"),
    "controller: the dashboard's certificate": Right(CONTROLLER, "update", "secrets/garboard-dashboard", "garboard"),
    "controller: its lease": Right(CONTROLLER, "update", f"{LEASES}/garboard-controller", "garboard"),
    "controller: writes the webhooks' CA bundle": Right(CONTROLLER, "patch", f"{WEBHOOKS}/garboard"),
    "controller: watches its webhooks": Right(CONTROLLER, "watch", f"{WEBHOOKS}/garboard"),
    "controller: reads where a pod is": Right(CONTROLLER, "get", "pods", "default"),
    "controller: changes pods": Right(CONTROLLER, "patch", "pods", "default"),
    "controller: looks whether a node lives": Right(CONTROLLER, "get", "nodes"),
    "controller: writes events": Right(CONTROLLER, "create", EVENTS, "default"),
    "controller: sees DataVolumes": Right(CONTROLLER, "watch", "datavolumes.cdi.kubevirt.io"),
    "controller: asks for rights of users": Right(CONTROLLER, "create", REVIEWS),
    "controller: asks whose token a caller has shown": Right(CONTROLLER, "create", TOKENS),
    "controller: writes the CA bundle that agents trust": Right(CONTROLLER, "patch", AUTHORITIES, "garboard"),
    "agent: makes records of runs": Right(AGENT, "create", RUNS, "default"),
    "controller: lists records of runs": Right(CONTROLLER, "list", RUNS),
    "controller: deletes records of runs": Right(CONTROLLER, "delete", RUNS, "default"),
    **{
        f"controller: writes the CA bundle of its API, {version}": Right(
            CONTROLLER, "patch", f"{SERVICES}/{version}.subresources.kubevirt.io"
        )
        for version in ("v1", "v1alpha3", "v1alpha2")
    },
    "controller: writes the CA bundle of our own API": Right(
        CONTROLLER, "patch", f"{SERVICES}/v1.subresources.garboard.dev"
    ),
    "controller: reads the API servers": Right(
        CONTROLLER, "watch", "configmaps/extension-apiserver-authentication", "kube-system"
    ),
    "controller: reads what machines name": Right(CONTROLLER, "get", SIZES, "default"),
    "controller: reads what the cluster has for them": Right(CONTROLLER, "get", WISHES),
    "controller: reads labels of the snapshots that volumes come from": Right(CONTROLLER, "get", SNAPSHOTS, "default"),
    "controller: records what is started": Right(CONTROLLER, "create", REVISIONS, "default"),
    "controller: reads such a record": Right(CONTROLLER, "get", REVISIONS, "default"),
    "controller: deletes those of earlier starts": Right(CONTROLLER, "deletecollection", REVISIONS, "default"),
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_role_gives(server: ApiServer, name: str) -> None:
    assert GIVEN[name].is_given(server)


OTHER_VERBS = ("list", "watch", "update", "patch", "delete")
NOT_GIVEN = {
    **{
        f"agent: no {resource}": Right(AGENT, "get", resource, "default")
        for resource in ("secrets", "configmaps", "serviceaccounts", CLAIMS)
    },
    **{
        f"controller: does not {verb} what machines name": Right(CONTROLLER, verb, SIZES, "default")
        for verb in ("list", "create", "update", "patch", "delete")
    },
    "agent: no secrets of its own namespace": Right(AGENT, "get", "secrets", "garboard"),
    "agent: finds nothing in other namespaces": Right(AGENT, "list", SLICES, "default"),
    "agent: no other ConfigMap of its namespace": Right(AGENT, "get", "configmaps/other", "garboard"),
    "agent: does not write the CA bundle that it trusts": Right(AGENT, "patch", AUTHORITIES, "garboard"),
    "agent: changes no settings": Right(AGENT, "patch", SETTINGS, "garboard"),
    "agent: reviews no tokens": Right(AGENT, "create", TOKENS),
    "agent: opens no console": Right(AGENT, "get", RUN, "default", "console"),
    "agent: replaces no machine": Right(AGENT, "update", INSTANCES, "default"),
    "agent: gets no pod by its name": Right(AGENT, "get", "pods", "default"),
    "agent: gets no node": Right(AGENT, "get", "nodes"),
    "agent: lists no nodes": Right(AGENT, "list", "nodes"),
    "agent: replaces no status of a pod": Right(AGENT, "update", "pods", "default", "status"),
    "agent: no events of the old kind": Right(AGENT, "create", "events", "default"),
    "agent: makes no pods": Right(AGENT, "create", "pods", "default"),
    "agent: deletes no machines": Right(AGENT, "delete", INSTANCES, "default"),
    "agent: reads no records of runs": Right(AGENT, "list", RUNS, "default"),
    "agent: changes no record of a run": Right(AGENT, "patch", RUNS, "default"),
    "controller: makes no record of a run": Right(CONTROLLER, "create", RUNS, "default"),
    "agent: no tokens": Right(AGENT, "create", "serviceaccounts", "garboard", "token"),
    "controller: changes no claim": Right(CONTROLLER, "patch", CLAIMS, "default"),
    "controller: deletes no claim": Right(CONTROLLER, "delete", CLAIMS, "default"),
    "controller: no secrets of other namespaces": Right(CONTROLLER, "get", "secrets/theirs", "default"),
    "controller: no other lease": Right(CONTROLLER, "update", f"{LEASES}/other", "garboard"),
    "controller: watches no other webhooks": Right(CONTROLLER, "watch", f"{WEBHOOKS}/other"),
    "controller: no secret of its own namespace": Right(CONTROLLER, "get", "secrets/other", "garboard"),
    "controller: no webhooks of others": Right(CONTROLLER, "patch", f"{WEBHOOKS}/other"),
    "controller: replaces no pod": Right(CONTROLLER, "update", "pods", "default"),
    "controller: no status of a pod": Right(CONTROLLER, "patch", "pods", "default", "status"),
    "controller: execs into no pod": Right(CONTROLLER, "create", "pods", "default", "exec"),
    "controller: lists no nodes": Right(CONTROLLER, "list", "nodes"),
    "controller: writes no node": Right(CONTROLLER, "patch", "nodes"),
    "controller: no events of the old kind": Right(CONTROLLER, "create", "events", "default"),
    "controller: replaces no virtualmachines": Right(CONTROLLER, "update", MACHINES, "default"),
    "controller: replaces no virtualmachineinstances": Right(CONTROLLER, "update", INSTANCES, "default"),
    "controller: deletes not many VirtualMachines at once": Right(CONTROLLER, "deletecollection", MACHINES, "default"),
    **{
        f"controller: no {verb} of a pool": Right(CONTROLLER, verb, POOLS, "default")
        for verb in ("create", "update", "patch", "delete")
    },
    "controller: makes no DataVolumes itself": Right(CONTROLLER, "create", "datavolumes.cdi.kubevirt.io", "default"),
    "controller: no other APIService": Right(CONTROLLER, "patch", f"{SERVICES}/v1.apps"),
    "controller: no other ConfigMap": Right(CONTROLLER, "get", "configmaps/other", "kube-system"),
    **{f"controller: no {verb} of a record": Right(CONTROLLER, verb, REVISIONS, "default") for verb in OTHER_VERBS},
    "editor: no console in other namespaces": Right(EDITOR, "get", RUN, "garboard", "console"),
    "controller: no other ConfigMap of its namespace": Right(CONTROLLER, "patch", "configmaps/other", "garboard"),
    "editor: starts in no other namespace": Right(EDITOR, "update", ASKED, "garboard", "start"),
    "editor: in no other namespace": Right(EDITOR, "patch", MACHINES, "garboard", "status"),
}


@pytest.mark.parametrize("name", NOT_GIVEN)
def test_no_role_gives(server: ApiServer, name: str) -> None:
    assert not NOT_GIVEN[name].is_given(server)
