"""The dashboard of `garboard cluster install --dashboard`: its pod has no rights, and its users sign in with tokens."""

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from garboard_e2e.cluster.forwarded import Forwarded
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, NAMESPACE
from garboard_e2e.cluster.person import Person
from garboard_e2e.dashboard import browser as chromium
from garboard_e2e.dashboard.pages import act, find_well, show
from garboard_e2e.patience import PATIENCE

NAME = "garboard-dashboard"
SELECTOR = "app.kubernetes.io/component=dashboard"
VIEWER = f"system:serviceaccount:{NAMESPACE}:viewer"
HALTED = "for-the-viewer"


@pytest.fixture(scope="module")
def port(kube: Kube, person: Person, installed: None) -> Iterator[int]:
    """Of this computer, where the dashboard is."""
    person.install("--dashboard")
    with Forwarded(kube, INSTALLED_IN, NAME, 443) as forwarded:
        yield forwarded.port
    person.install("--dashboard=false")
    kinds = "deployment,service,secret,serviceaccount,networkpolicy"
    assert kube.kubectl("get", kinds, "-l", SELECTOR, "-o", "name", namespace=INSTALLED_IN) == ""


@pytest.fixture(scope="module")
def token(kube: Kube, port: int) -> str:
    """Of a service account that may look into one namespace."""
    kube.kubectl("create", "serviceaccount", "viewer")
    kube.kubectl("create", "rolebinding", "viewer", "--clusterrole=view", f"--serviceaccount={NAMESPACE}:viewer")
    return kube.kubectl("create", "token", "viewer").strip()


@contextlib.contextmanager
def signed_in(browser: Browser, port: int, token: str) -> Iterator[Page]:
    with chromium.page(browser, any_certificate=True) as page:
        page.goto(f"https://localhost:{port}")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        yield page


def test_a_user_with_a_token_sees_the_machines_of_its_namespace_and_why(
    browser: Browser, port: int, token: str, machine: str
) -> None:
    with signed_in(browser, port, token) as page:
        expect(page.locator("#who")).to_have_text(VIEWER)
        find_well(page, machine)
        chromium.keep(page, "cluster-signed-in")


def test_a_start_and_a_console_are_refused_by_the_api_itself(
    person: Person, browser: Browser, port: int, token: str, machine: str
) -> None:
    person.apply(HALTED, "Halted")
    try:
        with signed_in(browser, port, token) as page:
            show(page, HALTED)
            act(page, "Start")
            alert = page.get_by_role("alert").filter(has_text=HALTED)
            expect(alert).to_contain_text(f'User "{VIEWER}" cannot update resource')
            page.get_by_role("link", name="All machines").click()
            show(page, machine)
            act(page, "Console")
            expect(page.locator("#session-state")).to_contain_text(f'User "{VIEWER}" cannot get resource')
        assert person.field(f"vm/{HALTED}", "spec", "runStrategy") == "Halted"
    finally:
        person.delete_whole(HALTED)


def test_a_user_who_may_edit_has_a_console(kube: Kube, browser: Browser, port: int, token: str, machine: str) -> None:
    kube.kubectl("create", "serviceaccount", "editor")
    editor = ["--clusterrole=kubevirt.io:edit", f"--serviceaccount={NAMESPACE}:editor"]
    kube.kubectl("create", "rolebinding", "editor", *editor)
    with signed_in(browser, port, kube.kubectl("create", "token", "editor").strip()) as page:
        show(page, machine)
        act(page, "Console")
        expect(page.locator("#session-state")).to_have_text("Connected.")
        page.keyboard.type("echo $((6 * 7)) by token\r")
        expect(page.locator(".xterm-rows")).to_contain_text("42 by token")


def test_a_token_of_nobody_is_refused(browser: Browser, port: int) -> None:
    with signed_in(browser, port, "of.no.body") as page:
        expect(page.locator("#signin-error")).to_contain_text("does not accept this token")


def test_status_shows_it(person: Person, port: int) -> None:
    person.cluster.prints(r"ok +dashboard +1 of 1 ready", "status")


def test_its_certificate_is_of_the_authority_that_the_controller_publishes(kube: Kube, port: int) -> None:
    authorities = json.loads(
        kube.kubectl("get", "configmap", "garboard-authorities", "-o", "json", namespace=INSTALLED_IN)
    )
    trusting = ssl.create_default_context(cadata=authorities["data"]["ca.crt"])
    for name in ("localhost", f"{NAME}.{INSTALLED_IN}.svc"):
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
            trusting.wrap_socket(connection, server_hostname=name).close()


def test_what_the_page_does_not_use_is_not_handed_on(port: int, token: str) -> None:
    anything = ssl.create_default_context()
    anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE
    for path in (f"/api/v1/namespaces/{NAMESPACE}/pods", "/api/v1/secrets", "/version"):
        connection = http.client.HTTPSConnection("localhost", port, context=anything)
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        assert connection.getresponse().status == 404, path


def test_its_pod_has_no_token_and_is_as_restricted_as_pods_can_be(kube: Kube, person: Person, port: int) -> None:
    (pod,) = kube.items("pods", "-l", SELECTOR, namespace=INSTALLED_IN)
    assert "serviceAccountToken" not in json.dumps(pod["spec"]["volumes"])
    account = f"system:serviceaccount:{INSTALLED_IN}:{NAME}"
    may = kube.kubectl("auth", "can-i", "list", "virtualmachines.kubevirt.io", "-A", f"--as={account}", code=1)
    assert may.startswith("no"), may
    # What the level `restricted` would say of this namespace: it names the node agents, and no dashboard.
    label = ["label", "--dry-run=server", "--overwrite", "namespace", INSTALLED_IN]
    done = person.kubectl.call(*label, "pod-security.kubernetes.io/enforce=restricted")
    assert done.returncode == 0 and "garboard-node" in done.stderr and NAME not in done.stderr, done.stderr
