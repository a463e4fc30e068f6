"""Who is let in, and what is let through."""

import http.client
import os
import signal
import socket
import urllib.parse

import pytest
from playwright.sync_api import Browser, expect

from garboard_e2e.dashboard import browser as chromium
from garboard_e2e.dashboard.played_api import PlayedApi
from garboard_e2e.dashboard.served import Served

LIST = "/apis/kubevirt.io/v1/virtualmachines"
START = "/apis/subresources.kubevirt.io/v1/namespaces/tenant/virtualmachines/halted/start"


OTHERS = [
    ("GET", "/api/v1/secrets"),
    ("GET", "/api/v1/namespaces/tenant/secrets"),
    ("GET", "/api/v1/namespaces/../secrets"),
    ("GET", f"{LIST}/../../../../api/v1/secrets"),
    ("GET", "http://127.0.0.1/api/v1/secrets"),
    ("GET", f"{LIST}?watch=true"),
    ("GET", START),
    ("DELETE", LIST),
    ("PUT", f"{LIST}/halted"),
]


def ask(served: Served, method: str, path: str, headers: dict[str, str], body: str = "") -> tuple[int, str]:
    """Code and body; the headers are all that are sent beside a length."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    if body:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body.encode() if body else None)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def own(served: Served) -> dict[str, str]:
    return {"Host": f"127.0.0.1:{served.port}", "Origin": served.origin, "Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def token(served: Served) -> str:
    key = urllib.parse.urlsplit(served.address).fragment.removeprefix("key=")
    code, body = ask(served, "POST", "/session", own(served), key)
    assert code == 200
    again, _ = ask(served, "POST", "/session", own(served), key)
    assert again == 403, "an address lets one browser in, once"
    return body.split('"')[3]


def test_the_page_itself_is_admitted_and_no_header_of_it_reaches_the_api(
    served: Served, token: str, api: PlayedApi
) -> None:
    headers = own(served) | {"Authorization": f"Bearer {token}", "Impersonate-User": "root", "Cookie": "a=b"}
    code, body = ask(served, "GET", LIST, headers)
    assert code == 200 and "VirtualMachineList" in body
    assert ask(served, "PUT", START, headers, "{}")[0] == 202
    for _, _, sent, _ in api.asked:
        assert not {name.lower() for name in sent} & {"authorization", "impersonate-user", "cookie", "origin"}
        assert token not in str(sent)


@pytest.mark.parametrize(
    "change",
    [
        {"Authorization": None},
        {"Authorization": "Bearer x"},
        {"Host": "evil.example"},
        {"Host": "evil.example:{port}"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": None},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_what_is_not_the_page_is_refused(
    served: Served, token: str, api: PlayedApi, change: dict[str, str | None]
) -> None:
    headers: dict[str, str] = own(served) | {"Authorization": f"Bearer {token}"}
    for name, value in change.items():
        del headers[name]
        if value is not None:
            headers[name] = value.replace("{port}", str(served.port))
    code, body = ask(served, "PUT", START, headers, "{}")
    assert code in (401, 403), body
    assert '"kind":"Status"' in body and api.changes() == []


def test_other_paths_are_not_forwarded(served: Served, token: str, api: PlayedApi) -> None:
    headers = own(served) | {"Authorization": f"Bearer {token}"}
    for method, path in OTHERS:
        assert ask(served, method, path, headers)[0] == 404, path
    assert api.asked == []


def test_files_say_what_a_browser_may_do_with_them(served: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port)
    connection.request("GET", "/")
    answer = connection.getresponse()
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'self';" in policy and "frame-ancestors 'none'" in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Set-Cookie" not in answer.headers and "Access-Control-Allow-Origin" not in answer.headers


def test_it_listens_on_loopback_alone(served: Served) -> None:
    address = socket.gethostbyname(socket.gethostname())
    if not address.startswith("127."):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address, served.port), 5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", served.port), 5).close()


def test_another_page_in_the_same_browser_can_do_nothing(browser: Browser, served: Served, api: PlayedApi) -> None:
    """Another server of this computer is the same site, to which a browser would send every cookie."""
    with chromium.page(browser) as page:
        page.goto(served.address)
        page.get_by_role("link", name="hello").wait_for()
        other = page.context.new_page()
        other.route("http://127.0.0.1:9/**", lambda route: route.fulfill(body="<p>other</p>", content_type="text/html"))
        other.goto("http://127.0.0.1:9/")
        outcome = other.evaluate(
            """async ([origin, start]) => {
            const tried = async (options) => {
                try { return (await fetch(origin + start, options)).type; } catch { return "blocked"; } };
            const socket = new Promise((done) => { const one = new WebSocket(origin.replace("http", "ws") +
                "/apis/kubevirt.io/v1/virtualmachines?watch=true");
                one.onmessage = ({ data }) => done(data); one.onclose = () => done("closed"); });
            const simple = { method: "POST", mode: "no-cors", body: "{}" };
            return [await tried({ method: "PUT", body: "{}" }), await tried(simple), await socket];
            }""",
            [served.origin, START],
        )
        assert outcome[0] == "blocked"
        assert 'VirtualMachine"' not in outcome[2]
        assert api.changes() == []


def test_without_the_address_the_page_says_what_to_do(browser: Browser, served: Served) -> None:
    with chromium.page(browser) as page:
        page.goto(served.origin)
        expect(page.get_by_role("heading", name="No way in yet")).to_be_visible()
        page.goto(served.address)
        page.goto("about:blank")
        page.goto(served.address)
    with chromium.page(browser) as page:
        page.goto(served.address)
        expect(page.locator("#entrance-reason")).to_contain_text("this address was used before")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name)
def test_kubectl_ends_with_it(served: Served, number: signal.Signals) -> None:
    (kubectl,) = served.children()
    assert served.end(number) == 0
    served.await_gone(kubectl)


def test_it_ends_when_kubectl_does(served: Served, api: PlayedApi) -> None:
    (kubectl,) = served.children()
    os.kill(kubectl, signal.SIGKILL)
    _, errors = served.process.communicate(timeout=60)
    assert served.process.returncode == 1 and "kubectl proxy ended" in errors
