#!/usr/bin/env python3
"""How often the agent of a node wrote to the API server, by the audit log. Run by scripts/check-hostile.

  pace.py CLUSTER NODE BEGIN PODS

BEGIN is a place in the log. Says the number of writes, the seconds from the first to the last, and the most that were
ahead of the agent's even pace at any time; ends with 1 when that is more than PODS reporting pods may be. Where that is far
below BURST, the machine was too busy for an agent without a pace to be told from one with it.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts"))
import audit  # noqa: E402

# Of the agent, node/src/budget.rs: NODE_WRITES_BURST, and seconds of NODE_WRITE_PERIOD.
BURST, PERIOD = 200, 0.05
# What the few honest machines of the node have written beside the one write that takes a place: events, gate with status.
BESIDE = 20


def ahead(moments):
    """The most writes ahead of one in each period, of all times."""
    most = level = 0.0
    for before, moment in zip([moments[0], *moments], moments):
        level = max(0.0, level - (moment - before) / PERIOD) + 1
        most = max(most, level)
    return most


def main(cluster, node, begin, pods):
    moments = audit.moments(cluster, node, int(begin))
    if not moments:
        sys.exit("no write of the agent is in the audit log")
    # A write may come late, one of each pod, as a machine that has much to do lets it.
    most, allowed = ahead(moments), BURST + int(pods) + BESIDE
    print(f"{len(moments)} writes in {moments[-1] - moments[0]:.1f} s, at most {most:.0f} ahead of the pace, {allowed} allowed")
    sys.exit(most > allowed)


main(*sys.argv[1:])
