"""Certificates of webhooks are written again where they were wiped, and requests are answered. These tests are the
first: a certificate that is short-lived would be written again anyhow."""

from collections.abc import Callable

import pytest

from garboard_e2e.cluster.admission import SOUND, dry_run
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, Object
from garboard_e2e.patience import wait_until

SECRET = "secret/garboard-webhook"
# Within which wiped parts have to be back.
SECONDS = 10


def wipe(kube: Kube, what: str, *paths: str) -> None:
    removal: list[Object] = [{"op": "remove", "path": path} for path in paths]
    kube.patch(what, removal, "json", namespace=INSTALLED_IN)


def await_answer(kube: Kube, is_whole: Callable[[], bool]) -> None:
    """Until what was wiped is back, and a sound machine is taken."""

    def is_answered() -> bool:
        return is_whole() and dry_run(kube, SOUND).returncode == 0

    wait_until("what was wiped, and an answer", is_answered, SECONDS, lambda: dry_run(kube, SOUND).stderr)


CONFIGURATIONS = ("validatingwebhookconfiguration/garboard", "mutatingwebhookconfiguration/garboard")


@pytest.mark.parametrize("what", ["caBundle", "service/path"])
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_what_was_wiped_of_webhooks_is_written_again_within_ten_seconds(
    kube: Kube, configuration: str, what: str
) -> None:
    def configs() -> list[Object]:
        return [each["clientConfig"] for each in kube.get(configuration, namespace=None)["webhooks"]]

    wiped = [f"/webhooks/{index}/clientConfig/{what}" for index in range(len(configs()))]
    wipe(kube, configuration, *wiped)
    await_answer(kube, lambda: all("caBundle" in each and "path" in each["service"] for each in configs()))


def test_a_wiped_secret_is_written_again_within_ten_seconds(kube: Kube) -> None:
    wipe(kube, SECRET, "/data")
    await_answer(kube, lambda: "data" in kube.get(SECRET, namespace=INSTALLED_IN))


@pytest.mark.parametrize("plural", ["virtualmachines", "virtualmachineinstances"])
def test_a_wiped_conversion_is_written_again_within_ten_seconds(kube: Kube, plural: str) -> None:
    definition = f"crd/{plural}.kubevirt.io"
    none: list[Object] = [{"op": "replace", "path": "/spec/conversion", "value": {"strategy": "None"}}]
    kube.patch(definition, none, "json", namespace=INSTALLED_IN)
    await_answer(kube, lambda: kube.get(definition, namespace=None)["spec"]["conversion"]["strategy"] == "Webhook")
