"""The manifest for krew, from archives of the plugin: krew's own programs judge it and install by it."""

import os
import pathlib
import platform
import subprocess

import pytest
import yaml

from garboard_e2e.places import REPOSITORY, SCRIPTS

KREW = REPOSITORY / "deploy/krew"
PLATFORMS = ("linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64", "windows-amd64")
URL = "https://releases.example/garboard/v1.2.3"


def printed_by(*command: str | pathlib.Path) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture(scope="module")
def krew() -> pathlib.Path:
    """The directory of krew's programs; they are built where they are not in the cache."""
    return pathlib.Path(printed_by(SCRIPTS / "fetch-krew").strip())


@pytest.fixture(scope="module")
def archives(programs: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> list[pathlib.Path]:
    """An archive for each platform; only for this machine with a program, for no other one can be built here."""
    directory, program = tmp_path_factory.mktemp("archives"), programs / "kubectl-garboard"
    assert program.is_file(), f"there is no {program}: `cargo build -p garboard-kubectl` builds it"
    (other := directory / "program").write_text("of another platform")
    chosen = [program if each == PLATFORMS[0] else other for each in PLATFORMS]
    packed = [printed_by(KREW / "archive", file, each, directory) for file, each in zip(chosen, PLATFORMS, strict=True)]
    return [pathlib.Path(each.strip()) for each in packed]


@pytest.fixture(scope="module")
def manifest(archives: list[pathlib.Path], tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    file = tmp_path_factory.mktemp("manifest") / "garboard.yaml"
    file.write_text(printed_by(KREW / "manifest", "1.2.3", URL, *archives))
    return file


def test_the_index_of_krew_takes_the_manifest(krew: pathlib.Path, manifest: pathlib.Path) -> None:
    command = [str(krew / "validate-krew-manifest"), "-skip-install", "-manifest", str(manifest)]
    done = subprocess.run(command, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    for line in ("structural validation OK", "all spec.platform[] items are used", "no overlapping"):
        assert line in done.stderr


def test_each_platform_has_its_archive_and_its_program(manifest: pathlib.Path, archives: list[pathlib.Path]) -> None:
    platforms = yaml.safe_load(manifest.read_text())["spec"]["platforms"]
    assert len(platforms) == len(PLATFORMS)
    for wanted, archive, found in zip(PLATFORMS, archives, platforms, strict=True):
        system, architecture = wanted.split("-")
        assert found["selector"]["matchLabels"] == {"os": system, "arch": architecture}
        assert found["uri"] == f"{URL}/{archive.name}"
        assert found["bin"] == ("kubectl-garboard.exe" if system == "windows" else "kubectl-garboard")


def test_krew_installs_the_plugin_and_its_licences(
    krew: pathlib.Path, manifest: pathlib.Path, archives: list[pathlib.Path], tmp_path: pathlib.Path
) -> None:
    assert platform.machine() == "x86_64"
    environment = dict(os.environ) | {"KREW_ROOT": str(tmp_path), "KREW_NO_UPGRADE_CHECK": "1"}
    command = [str(krew / "krew"), "install", f"--manifest={manifest}", f"--archive={archives[0]}"]
    done = subprocess.run(command, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    plugin = tmp_path / "bin/kubectl-garboard"
    assert "kubectl garboard" in printed_by(plugin, "--help")
    # As in the caveats.
    assert "kubectl_complete-garboard" in done.stdout + done.stderr
    (tmp_path / "bin/kubectl_complete-garboard").symlink_to("kubectl-garboard")
    assert "restart" in printed_by(tmp_path / "bin/kubectl_complete-garboard", "resta")
    store = tmp_path / "store/garboard/v1.2.3"
    assert {each.name for each in store.iterdir()} == {
        "kubectl-garboard",
        "LICENSE",
        "NOTICE",
        "CRATES",
        "RUST-LIBRARY.html",
    }


def test_an_archive_that_was_changed_is_refused(
    krew: pathlib.Path, manifest: pathlib.Path, archives: list[pathlib.Path], tmp_path: pathlib.Path
) -> None:
    changed = tmp_path / archives[0].name
    changed.write_bytes(archives[0].read_bytes() + b"\0")
    environment = dict(os.environ) | {"KREW_ROOT": str(tmp_path), "KREW_NO_UPGRADE_CHECK": "1"}
    command = [str(krew / "krew"), "install", f"--manifest={manifest}", f"--archive={changed}"]
    done = subprocess.run(command, env=environment, text=True, capture_output=True)
    assert done.returncode != 0 and "checksum does not match" in done.stderr, done.stderr
