"""VirtualMachines: the controller deletes those of pools, and no others. Its creations are tried where webhooks answer:
tests/e2e/cluster/kubernetes/test_pools.py."""

import pytest

from garboard_e2e.api_server import ApiServer
from garboard_e2e.rights import BOB, CONTROLLER, FALSE_CONTROLLER, end, granted, refused

ONLY = "no VirtualMachines but those that a VirtualMachinePool controls"

ROWS = {
    "one of a pool": granted(end(CONTROLLER, "p-0")),
    "none that a pool does not control": refused(ONLY, end(CONTROLLER, "p-1")),
    "none of a ReplicaSet": refused(ONLY, end(CONTROLLER, "p-2")),
    "none of a kind called like a pool in another group": refused(ONLY, end(CONTROLLER, "p-3")),
    "none of a user": refused(ONLY, end(CONTROLLER, "vm-1")),
    "other users delete theirs": granted(end(BOB, "vm-1")),
    # It may do everything in its namespace: the policy alone refuses.
    "an account called like the controller is narrowed as well": refused(ONLY, end(FALSE_CONTROLLER, "vm-1")),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_controller_deletes_machines_of_pools_alone(server: ApiServer, name: str) -> None:
    ROWS[name].holds(server)
