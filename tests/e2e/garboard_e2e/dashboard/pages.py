"""What a person does on the page, and finds there."""

import re

from playwright.sync_api import Locator, Page, expect

from ..patience import wait_until

# A canvas that nobody has given a size is so wide, pixels.
USUAL_WIDTH = 300


def show(page: Page, name: str) -> None:
    """A machine of the list."""
    page.get_by_role("link", name=name, exact=True).click()


def action(page: Page, name: str) -> Locator:
    """A button of the machine that is shown."""
    return page.locator("#actions").get_by_role("button", name=name, exact=True)


def act(page: Page, name: str) -> None:
    action(page, name).click()


def await_state(page: Page, state: str) -> None:
    """The machine that is shown is in this state, and so is its instance: `Stopped (phase Running)` is neither."""
    expect(page.locator("#state")).to_have_text(re.compile(rf"^\W*{state}$"))


def find_well(page: Page, name: str) -> None:
    """A machine that runs, as a user of its namespace alone finds it: in the list, and by itself."""
    expect(page.locator("#scope-reason")).to_contain_text("at the cluster scope")
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name))
    expect(row).to_contain_text("Running")
    expect(page.locator("#live")).to_have_text("● Live")
    show(page, name)
    expect(page.locator(".card")).to_contain_text("Well")
    expect(page.locator("#events")).to_contain_text("Started")


def await_screen(page: Page) -> None:
    width = "() => document.querySelector('#session canvas')?.width ?? 0"
    wait_until("a screen", lambda: page.evaluate(width) > USUAL_WIDTH)
