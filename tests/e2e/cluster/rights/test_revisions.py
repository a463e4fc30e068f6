"""ControllerRevisions: the controller makes and deletes those of its machines and pools, and no others."""

import pytest

from garboard_e2e.api_server import ApiServer, Request
from garboard_e2e.rights import (
    BOB,
    CONTROLLER,
    DRY,
    FALSE_CONTROLLER,
    OF_A_SET,
    OF_EARLIER,
    OF_NONE,
    REVISIONS,
    copy,
    drop,
    granted,
    record,
    refused,
)

NAME = "revision-start-vm-7f-3"
ONLY = "no ControllerRevisions but those of the VirtualMachines and VirtualMachinePools that own them"
# What makes of the owner of a record, which is called vm-1, a pool.
POOL = {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool"}
OF_POOL = "vm-1-1a2b3c4d"
LABEL = "garboard.dev/revision-of"
CHANGE = {"metadata": {"labels": {"app": "x"}}}


def by_label(of: str) -> str:
    return f"{LABEL}={of}"


ROWS = {
    "a record of a start": granted(record(CONTROLLER, NAME)),
    "not one of a StatefulSet": refused(ONLY, record(CONTROLLER, "web-1", apiVersion="apps/v1", kind="StatefulSet")),
    "not one of a StatefulSet under a machine's name": refused(
        ONLY, record(CONTROLLER, NAME, apiVersion="apps/v1", kind="StatefulSet")
    ),
    "not of a kind of that name in another group": refused(ONLY, record(CONTROLLER, NAME, apiVersion="example.com/v1")),
    "not of a machine that does not control it": refused(ONLY, record(CONTROLLER, NAME, controller=False)),
    "not under a name of its own": refused(ONLY, record(CONTROLLER, "web-1")),
    "not under the name of another machine": refused(ONLY, record(CONTROLLER, "revision-start-vm-8a-1", of="8a")),
    "not under the label of another machine": refused(ONLY, record(CONTROLLER, NAME, of="8a")),
    "a record of a pool": granted(record(CONTROLLER, OF_POOL, **POOL)),
    "not of a pool under the name of a machine's": refused(ONLY, record(CONTROLLER, NAME, **POOL)),
    "not of a pool under the name of another": refused(ONLY, record(CONTROLLER, "web-1a2b3c4d", **POOL)),
    "not of a pool under the label of another": refused(ONLY, record(CONTROLLER, OF_POOL, of="8a", **POOL)),
    "not of a pool that does not control it": refused(ONLY, record(CONTROLLER, OF_POOL, controller=False, **POOL)),
    "not of a machine under the name of a pool's": refused(ONLY, record(CONTROLLER, OF_POOL)),
    "not of a kind called like a pool in another group": refused(
        ONLY, record(CONTROLLER, OF_POOL, kind="VirtualMachinePool")
    ),
    "a copy of an instancetype": granted(copy(CONTROLLER, "vm-1-u1.small-v1beta1-8b-1")),
    "no copy under the name of another machine": refused(ONLY, copy(CONTROLLER, "vm-2-u1.small-v1beta1-8b-1")),
    "no copy for a StatefulSet": refused(
        ONLY, copy(CONTROLLER, "vm-1-u1.small-v1beta1-8b-1", apiVersion="apps/v1", kind="StatefulSet")
    ),
    "no copy for a pool": refused(ONLY, copy(CONTROLLER, "vm-1-u1.small-v1beta1-8b-1", **POOL)),
    "deletes those of a machine": granted(drop(CONTROLLER, by_label("7f"))),
    "a copy without the label of its version is not made": refused(
        ONLY, record(CONTROLLER, "vm-1-u1.small-8b-2", of="8a")
    ),
    "deletes a copy that an earlier KubeVirt has made": granted(drop(CONTROLLER, by_label(OF_EARLIER))),
    "deletes none of a StatefulSet": refused(ONLY, drop(CONTROLLER, by_label(OF_A_SET))),
    "deletes none that no machine controls": refused(ONLY, drop(CONTROLLER, by_label(OF_NONE))),
    "deletes not all": refused(ONLY, drop(CONTROLLER)),
    "other users make theirs": granted(record(BOB, "web-1", apiVersion="apps/v1", kind="StatefulSet")),
    "other users delete theirs": granted(drop(BOB)),
    # It may do everything in its namespace: the policy alone refuses.
    "an account called like the controller is narrowed as well": refused(
        ONLY, record(FALSE_CONTROLLER, "web-1", apiVersion="apps/v1", kind="StatefulSet")
    ),
    "nothing of one is changed": refused(
        "changes no ControllerRevision",
        Request(FALSE_CONTROLLER, "PATCH", f"{REVISIONS}/revision-start-vm-7f-1?{DRY}", CHANGE, "merge"),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_controller_writes_the_records_of_its_machines_and_pools_alone(server: ApiServer, name: str) -> None:
    ROWS[name].holds(server)
