"""Certificates of webhooks are renewed, and requests are answered meanwhile: those of the tests before this one, and
one after each look."""

from collections.abc import Callable

import pytest

from garboard_e2e.cluster.renewals import ENOUGH, Renewals, Watch


@pytest.fixture(scope="module")
def seen(renewals: Watch) -> Renewals:
    return renewals.await_enough()


def test_certificates_and_authorities_are_renewed(seen: Renewals, note: Callable[[str], None]) -> None:
    assert len(seen.serving) >= ENOUGH and len(seen.authorities) >= ENOUGH, str(seen)
    note(str(seen))


def test_no_request_meets_a_certificate_that_is_not_trusted(seen: Renewals) -> None:
    assert not seen.refusals, f"{len(seen.refusals)} requests failed: {seen.refusals[0]}"
