"""Variables of EFI. OVMF counts its boots in the variable MTC, so the count shows whose variables it found."""

import dataclasses
import pathlib

import pytest

from garboard_e2e.namespace import Namespace

NAMESPACE = "variables"
ADDRESS = r"garboard-hello: address \S+"


@dataclasses.dataclass(frozen=True)
class Kept:
    """A --state-dir after two runs, and the boots that each counted."""

    directory: pathlib.Path
    variables: pathlib.Path
    counts: tuple[int, int]


def run_once(namespace: Namespace, directory: pathlib.Path, manifest: pathlib.Path, image: str) -> None:
    namespace.run("run", "--detach", "--state-dir", directory, manifest, image)
    namespace.wait_for_serial("efi", ADDRESS)
    namespace.run("stop", namespace.id("efi"))


@pytest.fixture(scope="module")
def kept(namespace: Namespace, hello_image: str) -> Kept:
    directory = namespace.directory / "kept"
    variables = directory / "firmware" / namespace.namespace / "efi_VARS.fd"
    manifest = namespace.example("vm-efi")
    run_once(namespace, directory, manifest, hello_image)
    first = boots_counted(variables.read_bytes())
    run_once(namespace, directory, manifest, hello_image)
    return Kept(directory, variables, (first, boots_counted(variables.read_bytes())))


def boots_counted(flash: bytes) -> int:
    """The upper half of EDK2's monotonic counter: the newest variable record of that name whose state is `added`."""
    name = "MTC\0".encode("utf-16-le")
    found = None
    at = flash.find(name)
    while at >= 0:
        # struct AUTHENTICATED_VARIABLE_HEADER: 60 bytes before the name, start mark 0x55AA, state in the third byte.
        if flash[at - 60 : at - 58] == b"\xaa\x55" and flash[at - 58] == 0x3F:
            found = int.from_bytes(flash[at + len(name) : at + len(name) + 4], "little")
        at = flash.find(name, at + 1)
    assert found is not None, "the firmware wrote no variable MTC"
    return found


def test_persistent_efi_variables_are_in_state_dir_and_the_second_run_s_firmware_finds_them(kept: Kept) -> None:
    first, second = kept.counts
    assert second == first + 1


def test_variables_that_are_not_persistent_are_not_kept(namespace: Namespace, kept: Kept, hello_image: str) -> None:
    manifest = namespace.example("vm-efi", ("persistent: true", "persistent: false"))
    before = kept.variables.read_bytes()
    run_once(namespace, kept.directory, manifest, hello_image)
    assert kept.variables.read_bytes() == before, "variables that are not persistent were kept"
    assert len(list((kept.directory / "firmware").rglob("*.fd"))) == 1, "variables that are not persistent were kept"
