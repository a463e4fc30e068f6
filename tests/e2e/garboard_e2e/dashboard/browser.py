"""Debian's Chromium, without a window."""

import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright

from ..outcome import Failure
from ..patience import PATIENCE

PROGRAM = pathlib.Path("/usr/bin/chromium")
# Tests run as root, and nothing but the page is asked for.
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
           "--disable-component-update", "--disable-sync"]  # fmt: skip
SIZE = {"width": 1280, "height": 800}


@contextlib.contextmanager
def started() -> Iterator[Browser]:
    if not PROGRAM.is_file():
        raise Failure(f"there is no {PROGRAM}: `scripts/test dashboard` installs Debian's package chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=OPTIONS)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def page(
    browser: Browser, colours: Literal["light", "dark"] = "light", any_certificate: bool = False
) -> Iterator[Page]:
    """A page of a browser without a past. What its scripts do wrong, or its policy forbids, fails the test."""
    context = browser.new_context(
        viewport={"width": SIZE["width"], "height": SIZE["height"]},
        color_scheme=colours,
        ignore_https_errors=any_certificate,
    )
    context.set_default_timeout(PATIENCE * 1000)
    made, wrong = context.new_page(), list[str]()
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on(
        "console", lambda message: wrong.append(message.text) if "Content Security Policy" in message.text else None
    )
    try:
        yield made
        if wrong:
            raise Failure(f"the page's scripts: {wrong}")
    finally:
        context.close()


def keep(made: Page, name: str) -> None:
    """What it looks like, for a person, where GARBOARD_SCREENSHOTS says."""
    if place := os.environ.get("GARBOARD_SCREENSHOTS"):
        made.screenshot(path=pathlib.Path(place) / f"dashboard-{name}.png")
