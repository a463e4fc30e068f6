"""Garboard as it is installed by default, and a machine on each node that most tests here share."""

import contextlib
from collections.abc import Iterator

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE, NODE_1, NODE_2
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.shared import Shared
from garboard_e2e.monitoring.scrape import BINDING, OTHER, READER, ROLE, Scraper, token_of

# Where the two machines are.
PAIR = {"left": NODE_1, "right": NODE_2}


@pytest.fixture(scope="package")
def kube(shared: Shared) -> Iterator[Kube]:
    """In the end nothing is left of any machine, and the model accepts the history."""
    with shared.installed() as kube:
        yield kube
        kube.keep_only(set())
        left = kube.kubectl("get", "vm,vmi,pods", "-o", "name")
        assert not left, f"when all machines are deleted there is still {left}"


@pytest.fixture
def held() -> Iterator[contextlib.ExitStack]:
    """What lasts until the machines of a test are gone: volumes that they have."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture(autouse=True)
def machines_go(kube: Kube, held: contextlib.ExitStack) -> Iterator[None]:
    """Whatever a test has made is removed after it, and has to go."""
    before = kube.machines()
    yield
    kube.keep_only(before)


@pytest.fixture(scope="package")
def first_pair(kube: Kube) -> None:
    """Made once, for all tests that use it."""
    kube.start(*(machine(name, node=node) for name, node in PAIR.items()))


@pytest.fixture
def pair(kube: Kube, first_pair: None) -> dict[str, str]:
    """Both machines as they were made, and Running; their nodes by their names."""
    kube.start(*(machine(name, node=node) for name, node in PAIR.items()))
    return PAIR


@pytest.fixture(scope="module")
def scraper(kube: Kube) -> Iterator[Scraper]:
    kube.kubectl("create", "serviceaccount", READER)
    kube.kubectl("create", "serviceaccount", OTHER)
    account = f"--serviceaccount={NAMESPACE}:{READER}"
    kube.kubectl("create", "clusterrolebinding", BINDING, f"--clusterrole={ROLE}", account, namespace=None)
    scraper = Scraper(kube)
    try:
        with scraper.forwarded:
            yield scraper
    finally:
        kube.kubectl("delete", "clusterrolebinding", BINDING, namespace=None)
        kube.kubectl("delete", "serviceaccount", READER, OTHER)


@pytest.fixture(scope="module")
def token(kube: Kube, scraper: Scraper) -> str:
    return token_of(kube, READER)
