"""The roles of users. The tables have the cases of KubeVirt's own test (tests/access_test.go, v1.7) and the rest: every
subresource that there is a path for, and every kind that a role names, whether it is here or not."""

import json

import pytest

from garboard_e2e.access import DEFAULT, NONE, VERBS, Access, Verbs
from garboard_e2e.api_server import ApiServer
from garboard_e2e.rights import HOLDERS, TYPES_VIEWER

ADMIN, EDITOR, VIEWER, MIGRATOR, STARTER, ASKER, CHANGER, MASTER, HISTORIAN, INSPECTOR = HOLDERS
READ, GET, UPDATE = (frozenset(verbs) for verbs in (("get", "list", "watch"), ("get",), ("update",)))
# kubevirts, and what is of the group itself.
LOOK: Verbs = frozenset(("get", "list"))
Users = dict[str, Verbs]

OWNED: Users = {ADMIN: VERBS, EDITOR: VERBS - {"deletecollection"}, VIEWER: READ}
SEEN: Users = {ADMIN: READ, EDITOR: READ, VIEWER: READ}
SCALED: Users = dict.fromkeys((ADMIN, EDITOR), frozenset(("get", "update", "patch")))
KINDS: dict[str, dict[str, Users]] = {
    "kubevirt.io": {
        "virtualmachines": OWNED,
        # A request for a start or a stop, which a policy narrows it to (test_requests.py).
        "virtualmachines/status": dict.fromkeys((ADMIN, EDITOR), frozenset(("get", "patch"))),
        "virtualmachineinstances": OWNED,
        "virtualmachineinstances/status": {},
        "kubevirts": dict.fromkeys((EDITOR, VIEWER, DEFAULT), LOOK),
        "virtualmachineinstancepresets": OWNED,
        "virtualmachineinstancereplicasets": OWNED,
        "virtualmachineinstancereplicasets/scale": SCALED,
        "virtualmachineinstancemigrations": SEEN | {MIGRATOR: VERBS},
    },
    "snapshot.kubevirt.io": {
        "virtualmachinesnapshots": OWNED,
        "virtualmachinesnapshotcontents": OWNED,
        "virtualmachinerestores": OWNED,
    },
    "export.kubevirt.io": {"virtualmachineexports": OWNED},
    "clone.kubevirt.io": {"virtualmachineclones": OWNED},
    "instancetype.kubevirt.io": {"virtualmachineinstancetypes": OWNED, "virtualmachinepreferences": OWNED},
    "pool.kubevirt.io": {
        "virtualmachinepools": OWNED,
        "virtualmachinepools/scale": SCALED,
    },
    "migrations.kubevirt.io": {"migrationpolicies": SEEN},
    # Made by agents, and changed by nobody.
    "garboard.dev": {"machineruns": {HISTORIAN: READ | {"delete"}}},
}

CHANGED: Users = {ADMIN: UPDATE, EDITOR: UPDATE}
OPENED: Users = {ADMIN: GET, EDITOR: GET}
SHOWN: Users = OPENED | {VIEWER: GET}
SUBRESOURCES: dict[str, dict[str, Users]] = {
    "virtualmachines": {
        # By GET it is asked in v1alpha2, and changes something.
        "start": CHANGED | {STARTER: GET},
        "stop": CHANGED | {STARTER: GET},
        "restart": CHANGED,
        "expand-spec": SHOWN,
        "migrate": {MIGRATOR: UPDATE},
        "addvolume": CHANGED,
        "removevolume": CHANGED,
        "memorydump": CHANGED,
        # As in KubeVirt.
        "removememorydump": {},
        "portforward": OPENED,
        "objectgraph": SHOWN,
        # The API server knows it by its first segment.
        "evacuate": CHANGED,
        "evacuate/cancel": CHANGED,
    },
    "virtualmachineinstances": {
        "console": OPENED,
        "vnc": OPENED,
        "vnc/screenshot": OPENED,
        "portforward": OPENED,
        "usbredir": OPENED,
        "vsock": {},
        "pause": CHANGED,
        "unpause": CHANGED,
        "freeze": CHANGED,
        "unfreeze": CHANGED,
        "reset": CHANGED,
        "softreboot": CHANGED,
        "guestosinfo": SHOWN,
        "userlist": SHOWN,
        "filesystemlist": SHOWN,
        "addvolume": CHANGED,
        "removevolume": CHANGED,
        # Not in the roles of v1.7.
        "backup": {},
        "redefine-checkpoint": {},
        "objectgraph": SHOWN,
        "evacuate": CHANGED,
        "evacuate/cancel": CHANGED,
        "sev": {ADMIN: GET | UPDATE, EDITOR: GET | UPDATE, VIEWER: GET},
        "sev/fetchcertchain": SHOWN,
        "sev/querylaunchmeasurement": SHOWN,
        "sev/setupsession": CHANGED,
        "sev/injectlaunchsecret": CHANGED,
    },
}
SUBRESOURCE_GROUP = "subresources.kubevirt.io"
OWN_GROUP = "subresources.garboard.dev"
# QMP: a level is a role's own, and a session of one is opened by GET. The record of what runs has a role for both.
OWN_SUBRESOURCES: dict[str, Users] = {
    "qmp-read": {ASKER: GET},
    "screendump": {ASKER: GET},
    "qmp-write": {CHANGER: GET | UPDATE},
    "qmp-dangerous": {MASTER: GET | UPDATE},
    "plan": {INSPECTOR: GET},
    "logs": {INSPECTOR: GET},
}
# What a request without a namespace is about: a role in a namespace gives nothing of it.
OF_ALL: Users = {TYPES_VIEWER: READ, DEFAULT: READ}
CLUSTER: dict[str, dict[str, Users]] = {
    "instancetype.kubevirt.io": {
        "virtualmachineclusterinstancetypes": OF_ALL,
        "virtualmachineclusterpreferences": OF_ALL,
    },
    SUBRESOURCE_GROUP: {"version": {DEFAULT: LOOK}, "guestfs": {DEFAULT: LOOK}, "healthz": {}},
    "kubevirt.io": {"kubevirts": {DEFAULT: LOOK}, "virtualmachines": {}, "virtualmachineinstances": {}},
}
ROWS = [
    *(Access(group, kind, users) for group, kinds in KINDS.items() for kind, users in kinds.items()),
    *(
        Access(SUBRESOURCE_GROUP, f"{kind}/{subresource}", users)
        for kind, subresources in SUBRESOURCES.items()
        for subresource, users in subresources.items()
    ),
    *(
        Access(OWN_GROUP, f"virtualmachineinstances/{subresource}", users)
        for subresource, users in OWN_SUBRESOURCES.items()
    ),
    Access(SUBRESOURCE_GROUP, "expand-vm-spec", CHANGED | {VIEWER: UPDATE}),
    *(Access(group, kind, users, namespace="") for group, kinds in CLUSTER.items() for kind, users in kinds.items()),
]
BY_NAME = {f"{row.group}/{row.resource}" + ("" if row.namespace else " of the cluster"): row for row in ROWS}


@pytest.mark.parametrize("name", BY_NAME)
def test_each_role_gives_these_verbs_and_no_other(server: ApiServer, name: str) -> None:
    BY_NAME[name].holds(server)


OF_GARBOARD = ("get", "clusterroles", "-l", "app.kubernetes.io/name=garboard", "-o", "json")
# Roles of Kubernetes, by the label of what is added to them.
AGGREGATION = "rbac.authorization.k8s.io/aggregate-to-"
# Of the installation itself: test_roles.py.
OWN = {"garboard-controller", "garboard-node", "garboard-datavolumes"}
# About no object: for the account of a Prometheus.
OF_PATHS = {"garboard-metrics-reader": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}
# Bound to all authenticated users.
FOR_ALL = ("kubevirt.io:default", "instancetype.kubevirt.io:view")


def test_no_rule_of_a_role_of_users_is_without_a_row(server: ApiServer) -> None:
    roles = json.loads(server.kubectl(*OF_GARBOARD))["items"]
    of_users = [role for role in roles if role["metadata"]["name"] not in {*OWN, *OF_PATHS}]
    assert {role["metadata"]["name"] for role in of_users} == {*HOLDERS.values(), *FOR_ALL}
    named = {
        f"{group}/{resource}"
        for role in of_users
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert named <= {f"{row.group}/{row.resource}" for row in ROWS}


def test_a_role_about_no_object_is_for_metrics(server: ApiServer) -> None:
    roles = json.loads(server.kubectl(*OF_GARBOARD))["items"]
    of_paths = {role["metadata"]["name"]: role["rules"] for role in roles if "nonResourceURLs" in str(role["rules"])}
    assert of_paths == OF_PATHS


def test_these_roles_are_added_to_those_of_kubernetes(server: ApiServer) -> None:
    roles = json.loads(server.kubectl(*OF_GARBOARD))["items"]
    added = {
        (label.removeprefix(AGGREGATION), role["metadata"]["name"])
        for role in roles
        for label, value in role["metadata"]["labels"].items()
        if label.startswith(AGGREGATION) and value == "true"
    }
    of_kubevirt = {(role, f"kubevirt.io:{role}") for role in ("admin", "edit", "view")}
    of_ours = {("admin", "garboard-qmp-read"), ("edit", "garboard-qmp-read"), ("admin", "garboard-qmp-write")}
    of_ours |= {(role, f"garboard-{name}") for role in ("admin", "edit") for name in ("runs", "inspect")}
    assert added == of_kubevirt | of_ours


@pytest.mark.parametrize("user", HOLDERS)
def test_a_role_in_a_namespace_gives_nothing_in_another(server: ApiServer, user: str) -> None:
    asked = {("kubevirt.io", kind) for kind in KINDS["kubevirt.io"]}
    asked |= {(SUBRESOURCE_GROUP, f"virtualmachines/{subresource}") for subresource in SUBRESOURCES["virtualmachines"]}
    for group, resource in sorted(asked):
        assert Access(group, resource, {}, namespace="garboard").given(server, user) == NONE, resource
