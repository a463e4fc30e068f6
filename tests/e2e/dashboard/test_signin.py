"""The page as a cluster serves it: its users sign in with a token, which their tab keeps."""

import base64
import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from garboard_e2e.dashboard import browser as chromium
from garboard_e2e.dashboard.in_cluster import InCluster, token_until
from garboard_e2e.dashboard.pages import act, await_screen, show
from garboard_e2e.dashboard.played_api import Collection, PlayedApi, status
from garboard_e2e.patience import wait_until

TOKEN = "of-ada.is~not/a+web-token="
SUBRESOURCES = "/apis/subresources.kubevirt.io/v1/namespaces/tenant"
# So long a token is good in a test, seconds: long enough to sign in and to open a console on a busy machine.
LIFE = 30


@pytest.fixture(autouse=True)
def patience() -> None:
    expect.set_options(timeout=60_000)


@pytest.fixture
def page(browser: Browser, in_cluster: InCluster, api: PlayedApi) -> Iterator[Page]:
    """The way in."""
    api.tokens[TOKEN] = "ada"
    with chromium.page(browser, any_certificate=True) as opened:
        opened.goto(in_cluster.origin)
        expect(opened.get_by_role("heading", name="Sign in")).to_be_visible()
        yield opened


def sign_in(page: Page, token: str = TOKEN) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()


def kept(page: Page) -> list[str]:
    """Every value that the browser keeps of the page."""
    values: list[str] = page.evaluate("[...Object.values(sessionStorage), ...Object.values(localStorage)]")
    return values


def test_a_token_lets_its_user_in_and_the_tab_alone_keeps_it(page: Page, api: PlayedApi) -> None:
    expect(page.get_by_label("Token")).to_be_focused()
    assert page.get_by_label("Token").get_attribute("type") == "password"
    chromium.keep(page, "signin")
    sign_in(page)
    expect(page.get_by_role("link", name="hello", exact=True)).to_be_visible()
    expect(page.locator("#who")).to_have_text("ada")
    expect(page.locator("#live")).to_have_text("● Live")
    assert page.evaluate("sessionStorage.getItem('garboard-token')") == TOKEN
    assert TOKEN not in page.evaluate("Object.values(localStorage)")
    assert page.context.cookies() == []
    assert page.get_by_label("Token").input_value() == "" and TOKEN not in page.content()
    # Each websocket has named the token in a protocol, and the API server has got it as a header.
    watched = api.sent("watch=true")
    assert watched and all(sent["authorization"] == f"Bearer {TOKEN}" for sent in watched)
    assert all("sec-websocket-protocol" not in sent for sent in watched)
    encoded = base64.urlsafe_b64encode(TOKEN.encode()).decode().rstrip("=")
    assert encoded not in str(api.asked) and not any(TOKEN in path for _, path, _, _ in api.asked)
    page.reload()
    expect(page.get_by_role("link", name="hello", exact=True)).to_be_visible()


def test_another_tab_is_not_in(page: Page, in_cluster: InCluster) -> None:
    sign_in(page)
    expect(page.get_by_role("link", name="hello", exact=True)).to_be_visible()
    other = page.context.new_page()
    other.goto(in_cluster.origin)
    expect(other.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.parametrize("token", ["of-nobody", "of ada", "tökén"])
def test_a_wrong_token_is_refused_where_it_is_typed(page: Page, token: str) -> None:
    sign_in(page, token)
    error = page.locator("#signin-error")
    expect(error).to_contain_text("does not accept this token" if token == "of-nobody" else "this is no token")
    expect(page.get_by_label("Token")).to_be_focused()
    expect(page.get_by_label("Token")).to_have_attribute("aria-invalid", "true")
    assert page.locator("#list").is_hidden() and kept(page) == []
    chromium.keep(page, "signin-wrong")
    sign_in(page)
    expect(page.get_by_role("link", name="hello", exact=True)).to_be_visible()


def test_who_signs_out_leaves_nothing_behind(page: Page, api: PlayedApi) -> None:
    sign_in(page)
    show(page, "hello")
    expect(page.locator(".card")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_focused()
    expect(page.locator("#entrance-reason")).to_have_text("You are signed out.")
    assert TOKEN not in kept(page)
    assert "hello" not in page.locator("main").inner_text()
    wait_until("the end of the watches", lambda: not any(each.watchers for each in watched_again(api)))
    page.reload()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.get_by_role("button", name="Sign out")).to_be_hidden()


def test_a_read_that_got_no_answer_is_given_up_with_its_user(page: Page) -> None:
    asked = list[str]()

    def fails(route: Route) -> None:
        asked.append(route.request.url)
        route.abort("internetdisconnected")

    events = re.compile(r"/events\?")
    page.route(events, fails)
    sign_in(page)
    with page.expect_request(events):
        show(page, "hello")
    expect(page.get_by_role("heading", name="hello", level=1)).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_focused()
    before = len(asked)
    # Longer than the page waits before it asks for the last time.
    page.wait_for_timeout(5_000)
    assert 0 < before == len(asked)


def watched_again(api: PlayedApi) -> list[Collection]:
    """Collections, after a change by which an API server notices that a watcher has left."""
    machines = api.collections["virtualmachines"]
    machines.put(api.machine("hello"))
    return [machines]


def test_why_judges_by_what_the_user_may_see(page: Page, api: PlayedApi) -> None:
    refused = status(403, "Forbidden", 'nodes is forbidden: User "ada" cannot list resource "nodes"')
    api.refusals["GET /api/v1/nodes"] = refused
    sign_in(page)
    show(page, "large")
    card = page.locator(".card")
    expect(card).to_contain_text("Wrong")
    expect(card).to_contain_text("nodes: you may not see them")
    asked = api.sent("/api/v1/nodes")
    assert asked and asked[0]["authorization"] == f"Bearer {TOKEN}"
    expect(page.locator("#events")).to_contain_text("FailedScheduling")


def test_what_the_api_refuses_is_shown_as_it_says_it(page: Page, api: PlayedApi) -> None:
    message = 'virtualmachines.subresources.kubevirt.io "halted" is forbidden: User "ada" cannot update resource'
    api.refusals[f"PUT {SUBRESOURCES}/virtualmachines/halted/start"] = status(403, "Forbidden", message)
    sign_in(page)
    show(page, "halted")
    act(page, "Start")
    expect(page.get_by_role("alert").filter(has_text="halted")).to_contain_text(f"{message} (Forbidden, 403)")


def test_console_and_screen_are_streams_of_the_token(page: Page, api: PlayedApi) -> None:
    sign_in(page)
    show(page, "hello")
    act(page, "Console")
    rows = page.locator(".xterm-rows")
    expect(rows).to_contain_text("hello login:")
    page.keyboard.type("root\r")
    expect(rows).to_contain_text("hello login: root")
    page.keyboard.press("Control+]")
    page.keyboard.press("Enter")
    act(page, "Screen")
    await_screen(page)
    streams = api.sent("/hello/console") + api.sent("/hello/vnc")
    assert len(streams) == 2
    for sent in streams:
        assert sent["authorization"] == f"Bearer {TOKEN}"
        assert sent["sec-websocket-protocol"] == "plain.kubevirt.io"


def test_a_token_that_ends_ends_its_console_and_another_one_goes_on_from_there(page: Page, api: PlayedApi) -> None:
    end = time.time() + LIFE
    short = token_until(end)
    api.tokens[short] = "ada"
    sign_in(page, short)
    show(page, "hello")
    expect(page.locator(".card")).to_be_visible()
    act(page, "Console")
    expect(page.locator(".xterm-rows")).to_contain_text("hello login:")
    assert time.time() < end, "the console came too late for this test"
    del api.tokens[short]
    expect(page.get_by_label("Token")).to_be_focused()
    expect(page.locator("#entrance-reason")).to_contain_text("does not accept your token any more: sign in again")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert time.time() >= end - 1, "its streams ended before the token did"
    assert short not in kept(page)
    chromium.keep(page, "signin-again")
    sign_in(page)
    expect(page.get_by_role("heading", name="hello", level=1)).to_be_visible()
    expect(page.locator("#live")).to_have_text("● Live")


def test_another_user_in_the_same_tab_sees_nothing_of_the_one_before(page: Page, api: PlayedApi) -> None:
    api.tokens["of-bob"] = "bob"
    sign_in(page)
    expect(page.get_by_role("link", name="hello", exact=True)).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    api.forbidden_everywhere = True
    sign_in(page, "of-bob")
    expect(page.locator("#who")).to_have_text("bob")
    expect(page.locator("#scope-reason")).to_contain_text("at the cluster scope")
    expect(page.get_by_text("There are no machines here.")).to_be_visible()
    expect(page.get_by_role("link", name="hello", exact=True)).to_have_count(0)


def test_where_one_user_looked_the_next_one_need_not_look(page: Page, api: PlayedApi) -> None:
    api.tokens["of-bob"], api.forbidden_everywhere = "bob", True
    sign_in(page)
    expect(page.locator("#scope-reason")).to_contain_text("at the cluster scope")
    expect(page.get_by_text("There are no machines here.")).to_be_visible()
    # A token that ends, and not a user who signs out.
    del api.tokens[TOKEN]
    page.reload()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    api.forbidden_everywhere = False
    sign_in(page, "of-bob")
    expect(page.get_by_role("link", name="hello", exact=True)).to_be_visible()
    page.reload()
    expect(page.get_by_role("link", name="hello", exact=True)).to_be_visible()


def test_one_signs_in_by_keyboard_alone(page: Page) -> None:
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Machines")).to_be_focused()
    out = page.get_by_role("button", name="Sign out")
    out.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Token")).to_be_focused()
    described = page.get_by_label("Token").get_attribute("aria-describedby") or ""
    assert [page.locator(f"#{each}").count() for each in described.split()] == [1, 1]
