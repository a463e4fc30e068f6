"""Who is let in, and what is let through."""

import os
import pathlib
import signal
import socket
import subprocess
import urllib.parse

import pytest
from playwright.sync_api import Browser, expect

from garboard_e2e.dashboard import browser as chromium
from garboard_e2e.dashboard.in_cluster import InCluster
from garboard_e2e.dashboard.played_api import PlayedApi
from garboard_e2e.dashboard.served import Served
from garboard_e2e.patience import PATIENCE, wait_until

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


def ask(served: Served | InCluster, method: str, path: str, headers: dict[str, str], body: str = "") -> tuple[int, str]:
    """Code and body; the headers are all that are sent beside a length."""
    connection = served.connect()
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    if body:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body.encode() if body else None)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def own(served: Served | InCluster) -> dict[str, str]:
    return {"Host": f"127.0.0.1:{served.port}", "Origin": served.origin, "Sec-Fetch-Site": "same-origin"}


def redeem(served: Served) -> tuple[int, str]:
    key = urllib.parse.urlsplit(served.address).fragment.removeprefix("key=")
    return ask(served, "POST", "/session", own(served), key)


@pytest.fixture
def token(served: Served) -> str:
    code, body = redeem(served)
    assert code == 200
    return body.split('"')[3]


def test_an_address_that_is_opened_twice_lets_nobody_in_any_more(served: Served, token: str) -> None:
    headers = own(served) | {"Authorization": f"Bearer {token}"}
    assert ask(served, "GET", "/about", headers)[0] == 200
    code, body = redeem(served)
    assert code == 403 and "this address was used before" in body
    assert ask(served, "GET", "/about", headers)[0] == 401
    served.process.send_signal(signal.SIGTERM)
    assert "opened a second time" in served.process.communicate(timeout=PATIENCE)[1]


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
        {"Host": "localhost:{port}", "Origin": "http://localhost:{port}"},
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
    connection = served.connect()
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
        assert outcome[2] == "closed", "another page learns nothing of a websocket, not even why it is refused"
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
    kubectl = served.kubectl()
    assert served.end(number) == 0
    served.await_gone(kubectl)


def test_kubectl_ends_although_nothing_could_end_it(served: Served) -> None:
    kubectl = served.kubectl()
    served.process.kill()
    served.await_gone(kubectl)


def test_kubectl_has_the_context_of_the_start_and_the_path_of_the_server(served: Served) -> None:
    arguments = pathlib.Path(f"/proc/{served.kubectl()}/cmdline").read_text().split("\0")
    assert "--context=lab" in arguments and "--append-server-path" in arguments


def test_it_ends_with_what_started_it(argv: list[str], environment: dict[str, str]) -> None:
    """sshd without a terminal leaves pipes that end, and sends no signal."""
    with Served(argv, environment, stdin=subprocess.PIPE) as served:
        kubectl = served.kubectl()
        assert served.process.stdin is not None
        served.process.stdin.close()
        assert served.process.wait(PATIENCE) == 0
        served.await_gone(kubectl)
    with Served(argv, environment) as served:
        assert served.process.stdout is not None
        served.process.stdout.close()
        assert served.process.wait(PATIENCE) == 0


def test_a_browser_is_given_a_file_and_no_key(
    browser: Browser, argv: list[str], environment: dict[str, str], directory: pathlib.Path
) -> None:
    programs, opened = directory / "programs", directory / "opened"
    programs.mkdir()
    opener = programs / "xdg-open"
    opener.write_text(f'#!/bin/sh\necho "$@" >"{opened}.new"\nmv "{opened}.new" "{opened}"\n')
    opener.chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    with Served([*argv, "--open"], {**environment, "PATH": path}) as served:
        wait_until("the browser's file", opened.exists)
        file = pathlib.Path(opened.read_text().strip())
        assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
        with chromium.page(browser) as page:
            page.goto(file.as_uri())
            page.get_by_role("link", name="hello").wait_for()
        wait_until("the end of the file", lambda: not file.exists())
        assert served.end(signal.SIGTERM) == 0
    assert not file.parent.exists()


def test_it_ends_when_kubectl_does(served: Served, api: PlayedApi) -> None:
    os.kill(served.kubectl(), signal.SIGKILL)
    _, errors = served.process.communicate(timeout=60)
    assert served.process.returncode == 1 and "kubectl proxy ended" in errors


# ---- as a cluster serves it


def of_ada(in_cluster: InCluster, api: PlayedApi) -> dict[str, str]:
    api.tokens["of-ada"] = "ada"
    return own(in_cluster) | {"Authorization": "Bearer of-ada"}


def test_in_a_cluster_a_request_goes_on_as_its_token_alone(in_cluster: InCluster, api: PlayedApi) -> None:
    others = {
        "Impersonate-User": "root",
        "Impersonate-Group": "system:masters",
        "X-Remote-User": "root",
        "Cookie": "a=b",
    }
    headers = of_ada(in_cluster, api) | others
    code, body = ask(in_cluster, "GET", LIST, headers)
    assert code == 200 and "VirtualMachineList" in body
    assert ask(in_cluster, "PUT", START, headers, "{}")[0] == 202
    assert len(api.asked) == 2
    for sent in api.sent("/"):
        assert sent["authorization"] == "Bearer of-ada"
        assert sent.keys() <= {"host", "authorization", "accept", "content-type", "content-length"}, sent


@pytest.mark.parametrize(
    "change",
    [
        {"Authorization": None},
        {"Authorization": "Basic YWRhOng="},
        {"Authorization": None, "Cookie": "garboard-token=of-ada"},
        {"Host": "evil.example"},
        {"Host": "evil.example:{port}", "Origin": "https://evil.example:{port}"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:{port}"},
        {"Origin": "null"},
        {"Origin": None},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_in_a_cluster_nothing_else_is_handed_on(
    in_cluster: InCluster, api: PlayedApi, change: dict[str, str | None]
) -> None:
    headers = of_ada(in_cluster, api)
    for name, value in change.items():
        headers.pop(name, None)
        if value is not None:
            headers[name] = value.replace("{port}", str(in_cluster.port))
    code, body = ask(in_cluster, "PUT", START, headers, "{}")
    assert code in (401, 403), body
    assert '"kind":"Status"' in body and api.asked == []


def test_in_a_cluster_other_paths_are_not_handed_on(in_cluster: InCluster, api: PlayedApi) -> None:
    headers = of_ada(in_cluster, api)
    reviews = ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews")
    for method, path in [*OTHERS, reviews, ("POST", "/session")]:
        assert ask(in_cluster, method, path, headers)[0] == 404, path
    assert api.asked == []


def test_in_a_cluster_the_api_server_judges_the_token(in_cluster: InCluster, api: PlayedApi) -> None:
    headers = of_ada(in_cluster, api) | {"Authorization": "Bearer of-nobody"}
    code, body = ask(in_cluster, "GET", "/about", headers)
    assert code == 401 and "does not accept the token" in body
    assert ask(in_cluster, "GET", LIST, headers)[0] == 401
    assert ask(in_cluster, "GET", "/why/tenant/large", headers)[0] == 401
    assert ask(in_cluster, "GET", "/about", of_ada(in_cluster, api))[1].count('"ada"') == 1


def test_in_a_cluster_files_say_what_a_browser_may_do_with_them(in_cluster: InCluster) -> None:
    connection = in_cluster.connect()
    connection.request("GET", "/")
    answer = connection.getresponse()
    policy = answer.headers["Content-Security-Policy"]
    assert f"connect-src 'self' wss://127.0.0.1:{in_cluster.port};" in policy and "form-action 'none'" in policy
    assert "Set-Cookie" not in answer.headers and "Access-Control-Allow-Origin" not in answer.headers


def test_in_a_cluster_it_ends_when_it_is_asked_to(in_cluster: InCluster) -> None:
    assert in_cluster.end() == 0
