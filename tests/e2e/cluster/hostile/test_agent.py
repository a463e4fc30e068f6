"""The node agent itself: what power it keeps, and what it reports of its node."""

import os
import pathlib

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NODE_1
from garboard_e2e.hostile.agent import NodeAgent
from garboard_e2e.outcome import Failure
from garboard_e2e.processes import status_of

# SYS_ADMIN, NET_ADMIN, NET_RAW, NET_BIND_SERVICE
POWER, NONE = "0000000000203400", "0000000000000000"
# Of each thread; some give up the rest of their power, too.
THREADS: dict[str, set[str]] = {
    "CapInh": {NONE},
    "CapAmb": {NONE},
    "CapBnd": {POWER},
    "CapEff": {POWER, NONE},
    "CapPrm": {POWER, NONE},
    "Seccomp": {"2"},
    "NoNewPrivs": {"1"},
}
# Of these some nodes have none.
DEVICES, MAYBE_DEVICES = {"null", "urandom"}, {"kvm", "net/tun", "vhost-net"}
# What every node offers, by the beginnings of labels; the last one is another program's.
LABELS = (
    *("machine-type.node.kubevirt.io/q35", "cpu-model.node.kubevirt.io/max", "cpu-feature.node.kubevirt.io/sse2"),
    *("cpu-vendor.node.kubevirt.io/", "kubevirt.io/vm-arch-amd64", "kubevirt.io/ksm-enabled"),
    *("kubevirt.io/schedulable", "example.com/theirs"),
)
FALSE_LABELS = ("cpu-model.node.kubevirt.io/NoSuchModel=true", "kubevirt.io/sev=true")


def statuses_of_threads(process: int) -> list[dict[str, str]]:
    found = []
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        try:
            lines = (task / "status").read_text().splitlines()
        except OSError:  # a thread may end meanwhile
            continue
        found.append({name: value.strip() for name, _, value in (line.partition(":") for line in lines)})
    return found


def test_it_keeps_four_capabilities_a_filter_and_a_memory_limit(agent: NodeAgent) -> None:
    process = agent.process()
    for name in ("CapPrm", "CapEff", "CapBnd"):
        power = status_of(process)[name]
        assert power == POWER, f"its {name} is {power}"
    threads = statuses_of_threads(process)
    assert len(threads) >= 3, f"it has the threads {threads}"
    for thread in threads:
        for name, allowed in THREADS.items():
            assert thread[name] in allowed, f"the thread {thread['Name']} has {name} {thread[name]}"
    assert '"landlock":"FullyEnforced"' in agent.log(), "Landlock is not enforced"
    assert agent.limit_kib() > 0, "it has no memory limit"


def test_its_root_is_read_only_with_the_devices_that_it_gives(agent: NodeAgent) -> None:
    # By its own mounts: its image has no program to ask.
    root = pathlib.Path(f"/proc/{agent.process()}/root")
    with pytest.raises(OSError, match="Read-only"):
        (root / "usr/x").touch()
    devices = {
        os.path.relpath(pathlib.Path(directory, name), root / "dev")
        for directory, _, names in os.walk(root / "dev")
        for name in names
    }
    assert devices >= DEVICES, f"its /dev has {devices}"
    assert devices <= DEVICES | MAYBE_DEVICES, f"its /dev has {devices}"


def test_labels_say_what_its_node_offers_and_nothing_that_is_not_true(kube: Kube, agent: NodeAgent) -> None:
    kube.kubectl("label", "node", NODE_1, *FALSE_LABELS, "example.com/theirs=yes", "--overwrite", namespace=None)
    try:
        agent.renew()
        untrue = [label.partition("=")[0] for label in FALSE_LABELS]
        kube.ask_until("the end of labels that are not true", lambda: not has_labels(kube, untrue))
        found = labels(kube)
        for label in LABELS:
            assert any(name.startswith(label) for name in found), f"there is no label {label}: {sorted(found)}"
        heartbeat = kube.get("node", NODE_1, namespace=None)["metadata"]["annotations"]["kubevirt.io/heartbeat"]
        assert "T" in heartbeat, f"the heartbeat is {heartbeat}"
    finally:
        kube.kubectl("label", "node", NODE_1, "example.com/theirs-", namespace=None)


def labels(kube: Kube) -> dict[str, str]:
    found: dict[str, str] = kube.get("node", NODE_1, namespace=None)["metadata"]["labels"]
    return found


def has_labels(kube: Kube, names: list[str]) -> bool:
    return any(name in labels(kube) for name in names)


def test_without_a_policy_that_keeps_it_to_its_node_there_is_none(kube: Kube, agent: NodeAgent) -> None:
    kube.kubectl("delete", "validatingadmissionpolicybinding/garboard-node-nodes", namespace=None)
    try:
        before = agent.delete()
        kube.ask_until("an agent that ends", lambda: has_ended_unbound(agent, before))
    finally:
        kube.kubectl("apply", "-f", "-", text=kube.images.manifest.read_text(), namespace=None)
        agent.renew()
        kube.ask_until("nodes that take machines", kube.offers_devices)


def has_ended_unbound(agent: NodeAgent, before: str) -> bool:
    try:
        if agent.pod_name() == before:
            return False
        if "no admission policy binds this agent" in agent.log():
            return True
        # It asked before the API server had put the policy out of force.
        if agent.is_ready():
            agent.delete()
    except Failure:  # its container is not there yet
        pass
    return False
