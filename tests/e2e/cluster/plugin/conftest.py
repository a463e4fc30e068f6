"""Garboard as `garboard cluster install` makes it, users of it, and a machine that runs."""

import pathlib
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from garboard_e2e import guests, names
from garboard_e2e.cluster.build import Build
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE, NODE_1, NODE_2
from garboard_e2e.cluster.person import Before, Person
from garboard_e2e.cluster.shared import Shared
from garboard_e2e.dashboard import browser as chromium
from garboard_e2e.patience import PATIENCE
from garboard_e2e.places import temporary_directory

HELLO = "hello"
# Takes the installation away.
LAST = "test_uninstall.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever the files here are called: what takes the installation away comes last."""
    here = pathlib.Path(__file__).parent
    places = [place for place, item in enumerate(items) if item.path.parent == here]
    own = sorted((items[place] for place in places), key=lambda item: item.path.name == LAST)
    for place, item in zip(places, own, strict=True):
        items[place] = item


@pytest.fixture(scope="package")
def kube(shared: Shared) -> Kube:
    """Without Garboard."""
    return shared.empty()


@pytest.fixture(scope="package")
def person(kube: Kube, programs: pathlib.Path) -> Iterator[Person]:
    with temporary_directory() as directory:
        yield Person(kube, programs / names.COMMAND, directory)


@pytest.fixture(scope="package")
def before(person: Person) -> Before:
    return Before(person.cluster.call("status"), person.plugin.call("why", HELLO))


@pytest.fixture(scope="package")
def installed(kube: Kube, person: Person, before: Before) -> None:
    """And a namespace for machines, with the Pod Security level `restricted`."""
    person.install()
    kube.kubectl("create", "namespace", NAMESPACE, namespace=None)
    restricted = "pod-security.kubernetes.io/enforce=restricted"
    kube.kubectl("label", "namespace", NAMESPACE, restricted, namespace=None)


@pytest.fixture(scope="package")
def bob(kube: Kube, installed: None) -> str:
    """A user who may only look."""
    kube.kubectl("create", "rolebinding", "bob", "--clusterrole=view", "--user=bob")
    return "bob"


@pytest.fixture(scope="package")
def ada(kube: Kube, installed: None) -> str:
    """A user who may edit machines."""
    kube.kubectl("create", "rolebinding", "ada", "--clusterrole=kubevirt.io:edit", "--user=ada")
    return "ada"


def need_image(kube: Kube, build: Build) -> None:
    """Loads the hello guest where a node has it no more."""
    list_images = ("ctr", "-n", "k8s.io", "images", "ls", "-q")
    if not all(guests.HELLO in kube.inside(node, *list_images).split() for node in (NODE_1, NODE_2)):
        kube.load(build.hello)


@pytest.fixture
def image(kube: Kube, build: Build) -> None:
    """A kubelet that finds its disk rather full removes images that nothing uses."""
    need_image(kube, build)


@pytest.fixture(scope="package")
def hello_runs(kube: Kube, build: Build, person: Person, installed: None) -> None:
    need_image(kube, build)
    person.apply(HELLO, "Always")
    person.await_phase(HELLO)


@pytest.fixture
def machine(person: Person, hello_runs: None) -> str:
    """The name of a machine that runs, whatever a test before has done with it."""
    person.await_verdict(HELLO, "running")
    return HELLO


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE * 1000)
    with chromium.started() as started:
        yield started
