"""The licences of what programs link: every crate is named, with a text, and nothing that is only for tests is."""

import re
import subprocess

import pytest

from garboard_e2e.places import SCRIPTS

LINE = re.compile(r"^  (\S+ \S+) +(\S.*)$", re.M)


def printed(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([SCRIPTS / "licences", *arguments], text=True, capture_output=True)
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.parametrize(
    "crates",
    [
        ("garboard-launcher", "garboard-host", "garboard-container-disk"),
        ("garboard-node",),
        ("garboard-controller", "garboard-dashboard"),
        ("garboard-kubectl",),
        ("garboard-cli", "garboard-shim"),
    ],
    ids=" ".join,
)
def test_every_crate_that_is_linked_has_a_text(crates: tuple[str, ...]) -> None:
    head, _, texts = printed(*crates).stdout.partition("\nThe source of each is at ")
    named = dict(LINE.findall(head))
    assert len(named) > 20 and all(named.values())
    owners = {name for line in re.findall(r"-{100}\n(.*)\n", texts) for name in line.split(", ")}
    assert owners == named.keys()
    assert "Apache License" in texts and "Permission is hereby granted" in texts


def test_what_only_tests_and_builds_use_is_not_named() -> None:
    named = {line.split()[0] for line, _ in LINE.findall(printed("garboard-node").stdout)}
    assert "tokio" in named
    # For tests; for its build; a macro.
    assert not named & {"proptest", "tonic-prost-build", "serde_derive"}


def test_a_crate_of_others_is_no_crate_of_the_workspace() -> None:
    assert "no crate of the workspace: nothing" in printed("nothing", code=1).stderr
