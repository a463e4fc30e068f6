"""The node agent among attackers: an installation with a namespace in which pods may pretend, and an honest machine in
it."""

from collections.abc import Generator, Iterator

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, NAMESPACE, NODE_2
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.shared import Shared
from garboard_e2e.cluster.stream import shows
from garboard_e2e.hostile.account import Account, account
from garboard_e2e.hostile.agent import NodeAgent
from garboard_e2e.hostile.attackers import Attackers
from garboard_e2e.hostile.machines import Machines

# Of another tenant.
NEIGHBOURS = "neighbours"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows the ends of logs of agents and launchers, too."""
    report = yield
    kube = getattr(item, "funcargs", {}).get("kube")
    if report.failed and isinstance(kube, Kube):
        agents = ("-l", "app.kubernetes.io/component=node", "--tail=6", "--prefix")
        launchers = ("-l", "kubevirt.io=virt-launcher", "-c", "launcher", "--tail=3", "--prefix")
        logs = kube.tried("logs", *agents, namespace=INSTALLED_IN) + kube.tried("logs", *launchers)
        report.sections.append(("logs", "\n".join(line[:300] for line in logs.splitlines())))
    return report


@pytest.fixture(scope="package")
def kube(shared: Shared) -> Iterator[Kube]:
    """The model does not judge it: pods that pretend have a machine's labels."""
    kube = shared.empty()
    try:
        kube.install()
        # They have paths of the node and one has its network: as where a namespace allows more than Garboard needs.
        restricted = "pod-security.kubernetes.io/enforce-"
        kube.kubectl("label", "namespace", NAMESPACE, restricted, namespace=None)
        yield kube
    finally:
        kube.recorder.stop()


@pytest.fixture(scope="package")
def agent(kube: Kube) -> NodeAgent:
    """Of node-1."""
    return NodeAgent(kube)


@pytest.fixture(scope="package")
def machines(kube: Kube) -> Machines:
    return Machines(kube)


@pytest.fixture(scope="package")
def attackers(kube: Kube) -> Attackers:
    """With a pod `stranger` that is no launcher."""
    attackers = Attackers(kube)
    attackers.bring_the_program()
    attackers.meet()
    attackers.need("stranger")
    return attackers


@pytest.fixture(scope="package")
def honest(machines: Machines, attackers: Attackers) -> str:
    """The UID of a VMI `honest` that runs, with a pod `liar` that pretends to be its launcher, and a pod `bare` that
    does so without an order."""
    machines.make("honest")
    machines.serves("honest")
    attackers.need("liar", attackers.guise("honest"))
    attackers.need("bare", attackers.guise("honest", ordered=False))
    return attackers.guise("honest").uid


def admitted(kube: Kube, name: str, namespace: str) -> Account:
    """An account that may edit its namespace, once the API server knows that: then what is not there is not found."""
    found = account(kube, name, namespace)
    unknown = found.path("nobody-has-it", "guestosinfo")
    kube.ask_until(f"the rights of {name}", lambda: found.asks("GET", unknown).status == 404)
    return found


@pytest.fixture(scope="package")
def alice(kube: Kube) -> Account:
    """A tenant of the namespace of most machines here."""
    return admitted(kube, "alice", NAMESPACE)


@pytest.fixture(scope="package")
def bob(kube: Kube) -> Account:
    """A tenant of another namespace, which has a machine `beside`, on node-2."""
    kube.kubectl("create", "namespace", NEIGHBOURS, namespace=None)
    beside = machine("beside", "Always", tests="", node=NODE_2)
    beside["metadata"]["namespace"] = NEIGHBOURS
    kube.apply(beside, namespace=NEIGHBOURS)
    bob = admitted(kube, "bob", NEIGHBOURS)
    kube.wait(
        "machine beside",
        lambda: (kube.there("vmi", "beside", NEIGHBOURS) or {}).get("status", {}).get("phase") == "Running",
    )
    with bob.stream("beside", "console") as console:
        shows(console, b":/# ")
    return bob


@pytest.fixture(scope="package")
def answering(kube: Kube, honest: str) -> str:
    """The name of the honest machine, once its guest has a shell."""
    kube.has_shell("honest")
    return "honest"
