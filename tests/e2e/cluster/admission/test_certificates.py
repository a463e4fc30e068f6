"""Certificates of webhooks are renewed, and written again where they were wiped. Requests are answered meanwhile."""

import dataclasses
import time
from collections.abc import Callable

import pytest

from garboard_e2e.cluster.admission import SOUND, dry_run, settings, with_gates
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, Object
from garboard_e2e.patience import PATIENCE, wait_until

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


# A serving certificate of one minute is renewed after 20 s.
LIVES = {
    "ca": {"duration": "3m", "renewBefore": "2m20s"},
    "server": {"duration": "1m", "renewBefore": "40s"},
}


@dataclasses.dataclass(frozen=True)
class Renewals:
    """What was seen while certificates were short-lived."""

    serving: set[str]
    authorities: set[str]
    refusals: list[str]


@pytest.fixture(scope="module")
def renewals(kube: Kube) -> Renewals:
    kube.apply(settings({"certificateRotateStrategy": {"selfSigned": LIVES}}), namespace=INSTALLED_IN)
    seen, end = Renewals(set(), set(), []), time.monotonic() + PATIENCE
    while time.monotonic() < end and not (len(seen.serving) > 2 and len(seen.authorities) > 2):
        data = kube.get(SECRET, namespace=INSTALLED_IN)["data"]
        seen.serving.add(data["tls.crt"])
        seen.authorities.add(data["authorities.crt"])
        done = dry_run(kube, SOUND)
        if done.returncode != 0:
            seen.refusals.append(done.stderr.strip())
    kube.apply(with_gates([]), namespace=INSTALLED_IN)
    return seen


def test_certificates_and_authorities_are_renewed(renewals: Renewals) -> None:
    assert len(renewals.serving) > 2, f"only {len(renewals.serving)} serving certificates were seen"
    assert len(renewals.authorities) > 2, f"only {len(renewals.authorities)} sets of authorities were seen"


def test_no_request_meets_a_certificate_that_is_not_trusted(renewals: Renewals) -> None:
    assert not renewals.refusals, f"{len(renewals.refusals)} requests failed: {renewals.refusals[0]}"
