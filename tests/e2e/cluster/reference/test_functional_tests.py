"""A dozen of KubeVirt's functional tests (v1.7.0), unmodified: quick ones, which wait for no guest's login."""

import pathlib
import re
import subprocess

import pytest

from garboard_e2e.cluster.shared import Shared
from garboard_e2e.guests import FEDORA
from garboard_e2e.places import REPOSITORY, SCRIPTS, temporary_directory
from garboard_e2e.reference import results
from garboard_e2e.reference.campaign import clear, prepared
from garboard_e2e.reference.results import Result
from garboard_e2e.reference.suite import Suite

QUICK = (REPOSITORY / "tests/reference/quick.txt").read_text().splitlines()
# So many side by side: each waits half a minute for the rate limit of its own client when it cleans up.
PROCESSES = 4


def number(text: str) -> str:
    """The suite's own short name for a specification."""
    found = re.search(r"test_id:\s*(\w+)", text)
    return found[1] if found else text


@pytest.fixture(scope="module")
def suite() -> pathlib.Path:
    """The compiled tests; five to twenty minutes the first time."""
    made = subprocess.run([SCRIPTS / "fetch-reference", "suite"], check=True, stdout=subprocess.PIPE, text=True)
    return pathlib.Path(made.stdout.strip()) / "suite"


@pytest.fixture(scope="module")
def outcomes(shared: Shared, suite: pathlib.Path) -> dict[str, Result]:
    """What a single run of the suite came to, by the texts of its specifications. None of them boots the Fedora, whose
    image is the largest by far."""
    with temporary_directory() as directory:
        tests = Suite(suite, directory, PROCESSES)
        with prepared(shared, tests, without=[FEDORA]) as kube:
            clear(kube)
            found = [results.of(spec, "", "") for spec in tests.run(kube, QUICK, collect=False)]
    return results.merge({}, found)


@pytest.mark.parametrize("text", QUICK, ids=number)
def test_this_one_of_kubevirt_passes(outcomes: dict[str, Result], text: str) -> None:
    assert text in outcomes, "the suite has no specification of this name, or it was skipped without a reason"
    assert outcomes[text].state == "passed", outcomes[text].failure
