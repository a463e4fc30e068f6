"""What things on a test cluster are called."""

import os
from typing import Any, Literal

# What the API server keeps, as JSON.
Object = dict[str, Any]
# Of which the recorder has the newest state.
Kind = Literal["vm", "vmi", "pod"]

# Where machines of tests are, and where Garboard is.
NAMESPACE, INSTALLED_IN = "tenant", "garboard"
NODE_1, NODE_2 = "node-1", "node-2"
CONTROLLER, AGENT = "garboard-controller", "garboard-node"
# The two containers of a launcher's pod.
SIDECAR, COMPUTE = "launcher", "compute"
# The user of a machine's processes, who must be able to write its volumes.
QEMU_USER = 107
MIB = 1 << 20
# The name of the cluster that all tiers share: one to eight letters and digits.
CLUSTER = os.environ.get("GARBOARD_CLUSTER", "e2e")


def other(node: str) -> str:
    """The other one of two nodes."""
    return NODE_2 if node == NODE_1 else NODE_1
