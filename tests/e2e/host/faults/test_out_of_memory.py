"""Memory is gone: that is what the end is called, under either version of control groups."""

import json
import re
from collections.abc import Callable

from garboard_e2e import unified_memory
from garboard_e2e.machine import Machine


def test_out_of_memory_is_reported_as_exactly_that(machine: Machine, note: Callable[[str], None]) -> None:
    machine.start("eat-memory", memory={"guest": "768Mi"}, resources={"limits": {"memory": "64Mi"}})
    ended = machine.expect_end("outOfMemory", "more memory than its limit of")
    limit = ended["cause"].get("limit_bytes") or ended["cause"].get("limitBytes")
    assert limit and str(limit) in ended["sentence"] and limit < 768 << 20, f"the message should name it: {ended}"
    note(f"limit {limit >> 20} MiB")


def test_out_of_memory_where_there_is_cgroup_v2_alone_has_its_name_too(
    machine: Machine, note: Callable[[str], None]
) -> None:
    """All that is killed together, and QEMU alone: both ends have their name."""
    work = machine.directory / "v2"
    work.mkdir()
    unified_memory.build(machine.programs.resolve(), machine.image, work)
    printed = unified_memory.boot(work)
    controllers = re.search(r"^@controllers (.*)$", printed, re.M)
    has_memory = controllers is not None and "memory" in controllers.group(1).split()
    assert has_memory, f"the guest has no memory controller of cgroup v2: {printed[:2000]}"
    for together, found in unified_memory.ends(printed).items():
        expect_named(together, found, printed)
    note("with and without memory.oom.group")


def expect_named(together: bool, found: dict[str, str], printed: str) -> None:
    events = dict(re.findall(r"(\w+) (\d+)", found["events"]))
    assert int(events["oom_kill"]) >= 1, f"the kernel did not do what this is about: {found}"
    was_group = int(events.get("oom_group_kill", 0)) > 0
    assert was_group == together, f"the kernel did not do what this is about: {found}"
    # PID 1 could not write it down where it was killed too.
    assert bool(found["exit"]) != together, f"PID 1's account: {found}"
    ended = json.loads(found["journal"]).get("ended")
    assert ended, f"the supervisor recorded no end: {found}; {printed[-3000:]}"
    cause = ended["cause"]["cause"]
    assert cause == ("machineKilled" if together else "outOfMemory"), f"the end has another name: {ended}"
    if not together:
        assert str(unified_memory.LIMIT) in ended["sentence"], f"the message should name the limit: {ended}"
