"""`kubectl garboard dashboard` on a cluster: the API server's own watches, streams and refusals."""

import contextlib
from collections.abc import Iterator

from playwright.sync_api import Browser, Page, expect

from garboard_e2e.cluster.person import Person
from garboard_e2e.dashboard import browser as chromium
from garboard_e2e.dashboard.pages import act, await_screen, await_state, find_well, show
from garboard_e2e.dashboard.served import Served

OWN = "from-the-page"


@contextlib.contextmanager
def opened(person: Person, browser: Browser, user: str) -> Iterator[Page]:
    """The page as a user has it."""
    tool = person.plugin.of(user)
    with Served(tool.argv("dashboard"), tool.environment) as served, chromium.page(browser) as page:
        page.goto(served.address)
        yield page


def test_a_user_of_one_namespace_sees_its_machines_and_why(
    person: Person, browser: Browser, machine: str, bob: str
) -> None:
    with opened(person, browser, bob) as page:
        find_well(page, machine)
        chromium.keep(page, "cluster")


def test_who_may_only_look_is_refused_by_the_api_itself(
    person: Person, browser: Browser, machine: str, bob: str
) -> None:
    with opened(person, browser, bob) as page:
        show(page, machine)
        act(page, "Pause")
        expect(page.get_by_role("alert")).to_contain_text('User "bob" cannot update resource')
        act(page, "Console")
        expect(page.locator("#session-state")).to_contain_text('User "bob" cannot get resource')


def test_the_serial_console_of_a_guest_answers(person: Person, browser: Browser, machine: str, ada: str) -> None:
    with opened(person, browser, ada) as page:
        show(page, machine)
        act(page, "Console")
        expect(page.locator("#session-state")).to_have_text("Connected.")
        page.keyboard.type("echo $((6 * 7)) from the page\r")
        expect(page.locator(".xterm-rows")).to_contain_text("42 from the page")
        chromium.keep(page, "cluster-console")


def test_the_screen_of_a_guest_is_drawn(person: Person, browser: Browser, machine: str, ada: str) -> None:
    with opened(person, browser, ada) as page:
        show(page, machine)
        act(page, "Screen")
        await_screen(page)
        chromium.keep(page, "cluster-screen")


def test_a_machine_is_started_and_stopped_and_the_list_follows(
    person: Person, browser: Browser, machine: str, ada: str, image: None
) -> None:
    person.apply(OWN, "Halted")
    try:
        with opened(person, browser, ada) as page:
            show(page, OWN)
            await_state(page, "Stopped")
            act(page, "Start")
            await_state(page, "Running")
            person.await_boot(OWN)
            act(page, "Stop")
            page.get_by_role("dialog").get_by_role("button", name="Stop", exact=True).click()
            await_state(page, "Stopped")
        assert person.field(f"vm/{OWN}", "spec", "runStrategy") == "Halted"
    finally:
        person.delete_whole(OWN)
