"""The plugin for systems other than Linux: it is compiled for them, as far as that goes without their linkers."""

import os
import pathlib
import subprocess

import pytest

from garboard_e2e.places import CACHE, REPOSITORY, SCRIPTS

NO_SOURCES = 75  # scripts/fetch-rust-source


@pytest.fixture(scope="module")
def toolchain() -> pathlib.Path:
    """Rust with the sources of its standard library."""
    made = subprocess.run([SCRIPTS / "fetch-rust-source"], stdout=subprocess.PIPE, text=True)
    if made.returncode == NO_SOURCES:
        pytest.skip("the packages have no sources of the standard library of this version of Rust")
    assert made.returncode == 0, "scripts/fetch-rust-source failed"
    return pathlib.Path(made.stdout.strip())


@pytest.mark.parametrize("target", ["aarch64-apple-darwin", "x86_64-pc-windows-msvc"])
def test_the_plugin_compiles_for_other_systems(toolchain: pathlib.Path, target: str) -> None:
    """Types, traits and borrows of it, of all crates that it uses and of the standard library of that system."""
    command = (
        toolchain / "bin/cargo",
        "check",
        "-Zbuild-std",
        "--locked",
        f"--target={target}",
        "-p",
        "garboard-kubectl",
    )
    # Options that begin with -Z are for a nightly Rust, unless this variable is set.
    environment = {
        **os.environ,
        "RUSTC_BOOTSTRAP": "1",
        "RUSTC": str(toolchain / "bin/rustc"),
        "CARGO_TARGET_DIR": str(CACHE / "target-platforms"),
    }
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
