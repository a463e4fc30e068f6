"""The agent is killed at each step of a start: the machine comes up all the same, and nothing is made twice."""

import os
import pathlib
import signal
from collections.abc import Callable

import pytest

from garboard_e2e.hostile.agent import NodeAgent, is_there
from garboard_e2e.hostile.machines import Machines, expect_plumbed_once, qemu_is_executed
from garboard_e2e.hostile.tracing import Death
from garboard_e2e.outcome import Failure

# The step of a start: the call, or calls, by which the agent takes it, and the path that makes it this one.
CONF_OF_BRIDGE = "/proc/sys/net/ipv6/conf/k6t-eth0/accept_ra"
CONF_OF_TAP = "/proc/sys/net/ipv6/conf/tap0/disable_ipv6"
STEPS: dict[str, tuple[str, str | None]] = {
    "a_connection_waiting": ("accept4", None),
    "a_connection_accepted": ("getsockopt", None),
    "the_caller_known": ("recvmsg", None),
    "the_network_namespace_received": ("fstatfs", None),
    "the_bridge_made": ("openat", CONF_OF_BRIDGE),
    "the_tap_made": ("openat", CONF_OF_TAP),
    "the_dhcp_socket_bound": ("pipe2", None),
    "nft_run": ("wait4,waitid", None),
    "an_answer_to_be_sent": ("sendmsg", None),
}
# What can be seen of the steps after that.
SEEN: dict[str, Callable[[Machines, str], bool]] = {
    "the_descriptors_sent": lambda _, name: qemu_is_executed(name),
    "the_status_written": lambda machines, name: machines.kube.phase(name) == "Running",
    "the_readiness_gate_written": lambda machines, name: machines.gate_is_set(name),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_machine_comes_up_when_the_agent_dies_with(
    agent: NodeAgent, machines: Machines, directory: pathlib.Path, note: Callable[[str], None], step: str
) -> None:
    death = begun(agent, step, directory)
    name = f"dies-{list(STEPS).index(step)}"
    try:
        machines.make(name)
        machines.kube.ask_until(f"the agent's death with {step}", lambda: death.has_come)
        note(death.last_calls())
    finally:
        death.end()
    comes_up(agent, machines, name)


def begun(agent: NodeAgent, step: str, directory: pathlib.Path) -> Death:
    """An agent lives that will die at such a call."""
    calls, path = STEPS[step]
    for attempt in range(3):
        death = Death(agent.process(), calls, path, directory / f"trace-{attempt}")
        if not death.has_come:
            return death
        # It made such a call for another pod, before there was the machine.
        death.end()
        agent.renew()
    raise Failure(f"the agent made a call {calls} each time before there was the machine")


@pytest.mark.parametrize("step", SEEN)
def test_a_machine_comes_up_when_the_agent_dies_as_soon_as_there_is(
    agent: NodeAgent, machines: Machines, step: str
) -> None:
    process, name = agent.process(), f"seen-{list(SEEN).index(step)}"
    machines.make(name)
    machines.kube.wait(step, lambda: SEEN[step](machines, name))
    os.kill(process, signal.SIGKILL)
    machines.kube.ask_until("its death", lambda: not is_there(process))
    comes_up(agent, machines, name)


def comes_up(agent: NodeAgent, machines: Machines, name: str) -> None:
    agent.renew()
    machines.serves(name)
    expect_plumbed_once(name)
    machines.remove(name)
