"""The dashboard with an API server that is played, and a browser that is let in."""

import pathlib
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from garboard_e2e import names
from garboard_e2e.dashboard import browser as chromium
from garboard_e2e.dashboard.in_cluster import InCluster
from garboard_e2e.dashboard.played_api import PlayedApi
from garboard_e2e.dashboard.served import Served

PLAYED_KUBECTL = pathlib.Path(chromium.__file__).with_name("played_kubectl.py")


@pytest.fixture
def api(directory: pathlib.Path) -> PlayedApi:
    return PlayedApi(directory / "api")


@pytest.fixture
def argv(programs: pathlib.Path) -> list[str]:
    return [str(programs / names.PLUGIN), "dashboard"]


@pytest.fixture
def environment(api: PlayedApi) -> dict[str, str]:
    return {"GARBOARD_KUBECTL": str(PLAYED_KUBECTL), "GARBOARD_PLAYED_API": str(api.socket)}


@pytest.fixture
def served(argv: list[str], environment: dict[str, str]) -> Iterator[Served]:
    with Served(argv, environment) as running:
        yield running


@pytest.fixture
def in_cluster(programs: pathlib.Path, api: PlayedApi, directory: pathlib.Path) -> Iterator[InCluster]:
    """The page as a cluster serves it, for users with tokens."""
    with InCluster(programs / names.DASHBOARD, api, directory) as running:
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium.started() as started:
        yield started


@pytest.fixture
def page(browser: Browser, served: Served) -> Iterator[Page]:
    """The list, once it is there; an error of the page's scripts fails the test."""
    with chromium.page(browser) as opened:
        opened.goto(served.address)
        opened.get_by_role("link", name="hello").wait_for()
        yield opened
