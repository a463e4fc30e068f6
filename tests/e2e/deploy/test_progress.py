"""What scripts print while cargo builds: which build it is, and a line for each crate only on a terminal."""

import os
import pathlib
import pty
import subprocess

import pytest

from garboard_e2e.places import SCRIPTS

BUILD = f'. {SCRIPTS}/lib.sh; CARGO_TARGET_DIR=/none; building="node (2 of 3)"; build_programs service garboard-node'


@pytest.fixture
def environment(tmp_path: pathlib.Path) -> dict[str, str]:
    """With a cargo that prints its arguments."""
    cargo = tmp_path / "cargo"
    cargo.write_text('#!/bin/sh\necho "cargo $*"\n')
    cargo.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}


def test_in_a_log_cargo_prints_no_line_for_each_crate(environment: dict[str, str]) -> None:
    done = subprocess.run(["bash", "-c", BUILD], env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "==> building Garboard: node (2 of 3)",
        "cargo build --locked --quiet --profile service --package=garboard-node",
    ]


def test_on_a_terminal_cargo_shows_its_progress(environment: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as shown:
        done = subprocess.run(["bash", "-c", BUILD], env=environment, stderr=theirs)
        os.close(theirs)
        text = shown.read(65536).decode()
    assert done.returncode == 0, text
    assert "building Garboard: node (2 of 3)" in text and "cargo build --locked --profile service" in text
