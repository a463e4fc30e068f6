"""How often the agent of a node writes to the API server: the most that were ahead of its even pace. Pure."""

import itertools
from collections.abc import Sequence

# Of the agent, node/src/budget.rs: NODE_WRITES_BURST, and seconds of NODE_WRITE_PERIOD.
BURST, PERIOD = 200, 0.05
# What the few honest machines of the node have written beside the one write that takes a place: events, gate with
# status.
BESIDE = 20


def ahead(moments: Sequence[float]) -> float:
    """The most writes ahead of one in each period, of all times. Where that is far below BURST, the machine was too
    busy for an agent without a pace to be distinguished from one with it."""
    most = level = 0.0
    for before, moment in itertools.pairwise([moments[0], *moments]):
        level = max(0.0, level - (moment - before) / PERIOD) + 1
        most = max(most, level)
    return most


def allowed(pods: int) -> int:
    """The most that may be ahead where so many pods report: a write may come late, one of each pod, as a machine that
    has much to do lets it."""
    return BURST + pods + BESIDE
