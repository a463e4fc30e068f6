"""What the page shows and does."""

import copy

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from garboard_e2e.dashboard import browser as chromium
from garboard_e2e.dashboard.pages import action, show
from garboard_e2e.dashboard.played_api import GREETING, PlayedApi, status
from garboard_e2e.dashboard.served import Served
from garboard_e2e.patience import wait_until

SUBRESOURCES = "/apis/subresources.kubevirt.io/v1/namespaces/tenant"


@pytest.fixture(autouse=True)
def patience() -> None:
    expect.set_options(timeout=60_000)


def names(page: Page) -> list[str]:
    return page.locator("#machines tbody th").all_inner_texts()


def machine(page: Page, name: str) -> None:
    show(page, name)
    expect(page.get_by_role("heading", name=name, level=1)).to_be_focused()


def test_the_list_has_every_machine_with_a_word_for_its_state(page: Page) -> None:
    assert names(page) == ["costly", "crashing", "diskless", "halted", "hello", "imageless", "killed", "large"]
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="large"))
    expect(row).to_contain_text("Unschedulable")
    expect(row).to_contain_text("not scheduled: ")
    expect(page.get_by_text("8 in all")).to_be_visible()
    expect(page.get_by_text("ada, context lab")).to_be_visible()
    expect(page.locator("#live")).to_have_text("● Live")
    chromium.keep(page, "list")


def test_it_is_filtered_and_sorted(page: Page) -> None:
    page.get_by_label("Search").fill("node-1")
    expect(page.locator("#count")).to_have_text("2 of 8")
    assert names(page) == ["crashing", "killed"]
    page.get_by_role("button", name="Show all").click()
    page.get_by_label("Status").select_option("Running")
    expect(page.locator("#count")).to_have_text("1 of 8")
    page.get_by_role("button", name="Show all").click()
    page.get_by_label("Phase").select_option("none")
    expect(page.locator("#count")).to_have_text("1 of 8")
    assert names(page) == ["halted"]
    page.get_by_role("button", name="Show all").click()
    expect(page.locator("#count")).to_have_text("8 in all")
    page.get_by_role("button", name="Status").click()
    expect(page.get_by_role("columnheader", name="Status")).to_have_attribute("aria-sort", "ascending")
    assert names(page)[0] == "crashing"


def test_what_changes_is_seen_at_once_and_again_after_the_watch_has_ended(page: Page, api: PlayedApi) -> None:
    machines = api.collections["virtualmachines"]
    changed = api.machine("halted")
    changed["status"]["printableStatus"] = "Provisioning"
    machines.put(changed)
    expect(page.get_by_role("row").filter(has_text="halted")).to_contain_text("Provisioning")
    machines.end_watches()
    new = api.machine("halted")
    new["metadata"] |= {"name": "later", "uid": "later"}
    machines.put(new)
    expect(page.get_by_role("rowheader", name="later")).to_be_visible()
    machines.delete("tenant/later")
    expect(page.get_by_role("rowheader", name="later")).to_have_count(0)


def test_a_lost_connection_is_named_and_made_again(page: Page, api: PlayedApi) -> None:
    path = "GET /apis/kubevirt.io/v1/virtualmachines"
    api.refusals[path] = status(503, "ServiceUnavailable", "the server is currently unable to handle the request")
    api.collections["virtualmachines"].end_watches()
    expect(page.locator("#live")).to_contain_text("Not up to date")
    expect(page.get_by_role("alert")).to_contain_text(
        "currently unable to handle the request (ServiceUnavailable, 503)"
    )
    del api.refusals[path]
    expect(page.locator("#live")).to_have_text("● Live")


def test_why_is_what_the_plugin_says(page: Page) -> None:
    machine(page, "large")
    card = page.locator(".card")
    expect(card).to_contain_text("Wrong")
    expect(card).to_contain_text("memory")
    expect(card.get_by_role("heading", name="To do")).to_be_visible()
    expect(page.locator("#events")).to_contain_text("FailedScheduling")
    expect(page.locator("#conditions")).to_contain_text("PodScheduled")
    chromium.keep(page, "machine")
    page.get_by_role("link", name="All machines").click()
    # The keyboard is where it was.
    expect(page.get_by_role("link", name="large", exact=True)).to_be_focused()


def test_a_stop_is_confirmed_and_the_keyboard_is_on_the_harmless_answer(page: Page, api: PlayedApi) -> None:
    machine(page, "hello")
    stop = action(page, "Stop")
    stop.click()
    question = page.get_by_role("dialog", name="Stop hello?")
    expect(question).to_contain_text("asked to power down")
    expect(question).to_contain_text("10 seconds")
    expect(question).to_contain_text("Always becomes Halted")
    chromium.keep(page, "stop")
    page.keyboard.press("Enter")
    expect(question).to_be_hidden()
    expect(stop).to_be_focused()
    assert api.changes() == []
    stop.press("Enter")
    question.get_by_role("button", name="Stop").click()
    expect(page.locator("#done")).to_contain_text("Stop: asked of tenant/hello")
    assert api.changes() == [f"{SUBRESOURCES}/virtualmachines/hello/stop"]


def test_what_the_api_refuses_is_shown_as_it_says_it(page: Page, api: PlayedApi) -> None:
    message = 'Operation cannot be fulfilled on virtualmachine.kubevirt.io "halted": VM is <b>already</b> running'
    api.refusals[f"PUT {SUBRESOURCES}/virtualmachines/halted/start"] = status(409, "Conflict", message)
    machine(page, "halted")
    action(page, "Start").click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text(f"{message} (Conflict, 409)")
    alert.get_by_role("button", name="Dismiss").click()
    expect(alert).to_be_empty()


def test_a_button_that_cannot_be_used_says_why_and_does_nothing(page: Page, api: PlayedApi) -> None:
    machine(page, "halted")
    stop = action(page, "Stop")
    expect(stop).to_have_attribute("aria-disabled", "true")
    expect(stop).to_have_attribute("title", "It does not run.")
    stop.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert api.changes() == []


def test_who_may_not_look_everywhere_sees_the_namespace_of_the_context(
    browser: Browser, served: Served, api: PlayedApi
) -> None:
    api.forbidden_everywhere = True
    with chromium.page(browser) as page:
        page.goto(served.address)
        expect(page.locator("#scope-reason")).to_contain_text('User "bob" cannot list resource "virtualmachine')
        expect(page.locator("#count")).to_have_text("8 in all")
        page.locator("#scope").get_by_label("Namespace").fill("other")
        page.get_by_role("button", name="Look there").click()
        expect(page.get_by_text("There are no machines here.")).to_be_visible()


def test_a_thousand_machines_are_pages_and_stay_quick(page: Page, api: PlayedApi) -> None:
    pattern = api.machine("halted")
    machines = api.collections["virtualmachines"]
    for number in range(1000):
        made = copy.deepcopy(pattern)
        made["metadata"] |= {"name": f"many-{number}", "uid": f"many-{number}"}
        machines.put(made)
    expect(page.locator("#count")).to_have_text("1008 in all")
    assert page.locator("#machines tbody tr").count() == 100
    expect(page.locator("#page")).to_have_text("Page 1 of 11")
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#page")).to_have_text("Page 2 of 11")
    chromium.keep(page, "many")
    page.get_by_label("Search").fill("many-99")
    expect(page.locator("#count")).to_have_text("11 of 1008")
    # A whole draw of the table, in the browser's own time: a frame that nobody waits for.
    spent = page.evaluate(
        """() => { const began = performance.now(); const field = document.querySelector("#filter input");
        field.value = ""; field.dispatchEvent(new Event("input", { bubbles: true }));
        return performance.now() - began; }"""
    )
    assert spent < 2000, spent
    # A list in parts, and the rest of it.
    page.reload()
    expect(page.locator("#count")).to_have_text("1008 in all")
    assert any("continue=" in path for _, path, _, _ in api.asked)


def test_the_page_is_used_by_keyboard_alone(page: Page) -> None:
    page.locator("body").press("Tab")
    expect(page.get_by_role("button", name="Skip to the machines")).to_be_focused()
    page.keyboard.press("Enter")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "hello":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="hello", level=1)).to_be_focused()


def test_each_control_has_a_name_and_each_table_headers(page: Page) -> None:
    machine(page, "hello")
    expect(page.locator(".card")).to_be_visible()
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, a, input, select")].filter((each) => each.offsetParent &&
        !(each.textContent.trim() || each.getAttribute("aria-label") || each.labels?.length))
        .map((each) => each.outerHTML)"""
    )
    assert nameless == []
    without = page.evaluate(
        """() => [...document.querySelectorAll("table")]
        .filter((each) => !each.querySelector("th[scope=col]")).length"""
    )
    assert without == 0
    assert page.locator("html").get_attribute("lang") == "en"


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_text_is_readable_in_both_colours(browser: Browser, served: Served, colours: str) -> None:
    with chromium.page(browser, "dark" if colours == "dark" else "light") as page:
        page.goto(served.address)
        page.get_by_role("link", name="hello").wait_for()
        worst = page.evaluate(CONTRAST)
        assert worst >= 4.5, worst
        chromium.keep(page, f"list-{colours}")


# The least ratio of contrast (WCAG 2) among the texts of the page.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parts = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = (colour) => parts(colour).slice(0, 3).map((one) => one / 255)
    .map((one) => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (each) => { for (let one = each; one; one = one.parentElement) {
    const colour = getComputedStyle(one).backgroundColor; if (parts(colour)[3] === 255) return colour; }
    return "white"; };
  const ratio = (each) => { const [one, other] = [light(getComputedStyle(each).color), light(behind(each))];
    return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05); };
  const texts = [...document.querySelectorAll("body *")].filter((each) => each.offsetParent &&
    [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
  return Math.min(...texts.map(ratio));
}"""


def test_the_serial_console_shows_types_and_gives_the_keyboard_back(page: Page, api: PlayedApi) -> None:
    machine(page, "hello")
    opener = action(page, "Console")
    opener.click()
    session = page.get_by_role("dialog", name="Serial console of tenant/hello")
    expect(session.locator(".xterm-rows")).to_contain_text("hello login:")
    page.keyboard.type("root\r")
    expect(session.locator(".xterm-rows")).to_contain_text("hello login: root")
    # Keys of browsers and dialogs are the guest's.
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    wait_until("the keys at the guest", lambda: bytes(api.typed) == b"root\r\t\x1b\x1b")
    expect(session).to_be_visible()
    chromium.keep(page, "console")
    page.keyboard.press("Control+]")
    expect(session.get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("Enter")
    expect(session).to_be_hidden()
    expect(opener).to_be_focused()


def test_a_console_connects_again_unless_another_user_took_it(page: Page, api: PlayedApi) -> None:
    machine(page, "hello")
    action(page, "Console").click()
    state = page.locator("#session-state")
    expect(state).to_have_text("Connected.")
    expect(page.locator("#session .xterm-rows")).to_contain_text("hello login:")
    api.consoles[0].close(1011, "the supervisor was replaced")
    expect(state).to_contain_text("the supervisor was replaced. Connecting again in 1 s")
    wait_until("a second session", lambda: len(api.consoles) == 2)
    expect(state).to_have_text("Connected.")
    # It goes on where it was.
    assert page.locator("#session .xterm-rows").inner_text().count("hello login:") == 1
    api.consoles[1].close(1001, "EOF: another client has opened this console")
    expect(state).to_have_text("Ended: another client has opened this console")
    page.get_by_role("button", name="Connect again").click()
    wait_until("a third session", lambda: len(api.consoles) == 3)
    # What connects again by itself ends nobody's session.
    opened = [path for _, path, _, _ in api.asked if path.partition("?")[0].endswith("/console")]
    place = f"position=5e1f.{len(GREETING)}"
    assert [path.partition("?")[2] for path in opened] == ["position=new", f"preserveSession=true&{place}", place]


# Of a tab that is hidden a browser draws rarely: here nothing, until it is let go on.
HOLD = """() => { const real = window.setTimeout, held = [];
  window.setTimeout = (act, wait, ...rest) => wait ? real(act, wait, ...rest) : held.push(act);
  window.goOn = () => { window.setTimeout = real; held.forEach((act) => act()); }; }"""


def test_a_console_that_prints_faster_than_it_is_drawn_waits_and_loses_nothing(page: Page, api: PlayedApi) -> None:
    machine(page, "hello")
    action(page, "Console").click()
    rows, state = page.locator("#session .xterm-rows"), page.locator("#session-state")
    expect(rows).to_contain_text("hello login:")
    page.evaluate(HOLD)
    # One piece more than the page keeps.
    piece, kept = 1 << 16, 16 << 20
    printed = b"".join(b"%014d\r\n" % number for number in range((kept + piece) // 16))
    for begin in range(0, len(printed), piece):
        api.consoles[0].send(printed[begin : begin + piece])
    expect(state).to_contain_text("faster than this page draws")
    assert len(api.consoles) == 1
    page.evaluate("() => window.goOn()")
    wait_until("a second session", lambda: len(api.consoles) == 2)
    expect(state).to_have_text("Connected.")
    again = [path for _, path, _, _ in api.asked if "/console?preserveSession=true" in path]
    read = int(again[0].rpartition(".")[2]) - len(GREETING)
    assert kept < read <= len(printed)
    # All that it has read is drawn, and nothing of it comes twice.
    expect(rows).to_contain_text(f"{read // 16 - 1:014d}")
    api.consoles[1].send(printed[read:] + b"and on")
    expect(rows).to_contain_text("and on")
    assert rows.inner_text().count(f"{len(printed) // 16 - 1:014d}") == 1


def test_a_console_that_cannot_go_on_where_it_was_begins_anew(page: Page, api: PlayedApi) -> None:
    """Its controller is of a version before: what comes was shown already."""
    machine(page, "hello")
    action(page, "Console").click()
    rows = page.locator("#session .xterm-rows")
    expect(rows).to_contain_text("hello login:")
    page.keyboard.type("root")
    expect(rows).to_contain_text("hello login: root")
    api.knows_places = False
    api.consoles[0].close(1011, "the node was cut off")
    wait_until("a second session", lambda: len(api.consoles) == 2)
    expect(rows).not_to_contain_text("root")
    expect(rows).to_contain_text("hello login:")
    assert rows.inner_text().count("hello login:") == 1


def test_a_console_that_was_lost_waits_for_the_session_that_is_there(page: Page, api: PlayedApi) -> None:
    machine(page, "hello")
    action(page, "Console").click()
    state = page.locator("#session-state")
    expect(state).to_have_text("Connected.")
    held = "another client has opened this console"
    api.refusals[f"GET {SUBRESOURCES}/virtualmachineinstances/hello/console"] = status(503, "ServiceUnavailable", held)
    api.consoles[0].close(1012, "this controller ends")
    expect(state).to_have_text(f"Waiting: {held}. Connecting again in 2 s …")
    api.refusals.clear()
    wait_until("a second session", lambda: len(api.consoles) == 2)
    expect(state).to_have_text("Connected.")


def test_a_console_that_is_refused_says_why(page: Page, api: PlayedApi) -> None:
    message = (
        "Unable to connect to Virtual Machine Instance because phase is Scheduling instead of Running"
        + " and more" * 30
    )
    api.refusals[f"GET {SUBRESOURCES}/virtualmachineinstances/hello/console"] = status(409, "Conflict", message)
    machine(page, "hello")
    action(page, "Console").click()
    expect(page.locator("#session-state")).to_have_text(f"Refused: {message} (Conflict, 409)")
    expect(page.get_by_role("button", name="Connect again")).to_be_visible()


def test_the_screen_is_drawn_and_takes_keys(page: Page, api: PlayedApi) -> None:
    machine(page, "hello")
    action(page, "Screen").click()
    session = page.get_by_role("dialog", name="Screen of tenant/hello")
    expect(session.get_by_role("img", name="Screen of tenant/hello")).to_be_visible()
    # The second of eight bars is yellow.
    second = """() => { const canvas = document.querySelector("#session canvas"); if (!canvas.width) return null;
        return [...canvas.getContext("2d").getImageData(60, 100, 1, 1).data].join(" "); }"""
    # Each look is a call of its own: Chromium lets `wait_for_function` evaluate again only where the policy does.
    wait_until("a yellow bar on the page", lambda: page.evaluate(second) == "255 255 0 255")
    page.keyboard.type("ab")
    wait_until("the keys at the guest", lambda: api.pressed == [ord("a"), ord("b")])
    chromium.keep(page, "screen")
    session.get_by_role("button", name="Ctrl-Alt-Del").click()
    wait_until("the keys of the button", lambda: api.pressed[2:] == [0xFFE3, 0xFFE9, 0xFFFF])
    page.keyboard.press("Control+]")
    expect(session.get_by_role("button", name="Close")).to_be_focused()


def test_a_read_that_got_no_answer_is_asked_again(browser: Browser, served: Served) -> None:
    """As when a network comes or goes: Chromium gives up what is under way."""
    failures = 2

    def fails_twice(route: Route) -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            route.abort("internetdisconnected")
        else:
            route.continue_()

    with chromium.page(browser) as page:
        page.route("**/about", fails_twice)
        page.goto(served.address)
        page.get_by_role("link", name="hello", exact=True).wait_for()
    assert failures < 0


def test_a_change_that_got_no_answer_is_not_asked_again(page: Page, api: PlayedApi) -> None:
    """It may have been done."""
    asked = list[str]()

    def fails(route: Route) -> None:
        asked.append(route.request.method)
        route.abort("internetdisconnected")

    page.route("**/virtualmachines/halted/start", fails)
    machine(page, "halted")
    action(page, "Start").click()
    expect(page.get_by_role("alert")).to_contain_text("the dashboard does not answer")
    assert asked == ["PUT"] and api.changes() == []
