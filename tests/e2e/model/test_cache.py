"""The cache of tests: what goes when more of the same name is made, and what of a build is lent to another."""

import fcntl
import os
import pathlib
import subprocess
import time

import pytest

from garboard_e2e import places, versions
from garboard_e2e.places import SCRIPTS

HOUR = 3600
NAME = "oci/thing"


@pytest.fixture
def cache(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "oci").mkdir()
    return tmp_path


def key(number: int) -> str:
    return f"{number:016x}"


def entry(cache: pathlib.Path, number: int, hours: float, name: str = NAME) -> pathlib.Path:
    """One that was used last so many hours ago."""
    made = cache / f"{name}-{key(number)}"
    made.mkdir()
    (made / "content").write_text(str(number))
    used = time.time() - hours * HOUR
    os.utime(made, (used, used))
    return made


def run(cache: pathlib.Path, *command: str | pathlib.Path) -> str:
    environment = os.environ | {"GARBOARD_CACHE": str(cache)}
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def cached(cache: pathlib.Path, number: int, build: str = 'touch "$1/built"') -> pathlib.Path:
    """What a script has that needs this entry."""
    text = f'. "$0"; build() {{ {build}; }}; cached {NAME} {key(number)} build'
    return pathlib.Path(run(cache, "bash", "-c", text, SCRIPTS / "lib.sh").strip())


def numbers(cache: pathlib.Path) -> list[int]:
    """Of the entries that there are."""
    return sorted(int(each.name.removeprefix("thing-"), 16) for each in (cache / "oci").glob(f"thing-{'?' * 16}"))


def test_when_another_one_is_made_the_newest_of_a_name_stay(cache: pathlib.Path) -> None:
    for number in range(1, 6):
        entry(cache, number, hours=100 - number)
    beside = entry(cache, 1, hours=200, name="oci/thing-else")
    other = entry(cache, 1, hours=200, name="oci/something")
    made = cached(cache, 9)
    assert (made / "built").exists() and (cache / NAME).resolve() == made
    assert numbers(cache) == [4, 5, 9]
    assert beside.exists() and other.exists(), "an entry of another name is gone"


def test_what_is_found_makes_nothing_go_and_counts_as_used(cache: pathlib.Path) -> None:
    for number in range(1, 6):
        entry(cache, number, hours=100 - number)
    assert cached(cache, 1).name.endswith(key(1))
    assert numbers(cache) == [1, 2, 3, 4, 5]
    cached(cache, 9)
    assert numbers(cache) == [1, 5, 9]


def test_what_was_used_in_the_last_hours_stays(cache: pathlib.Path) -> None:
    for number in range(1, 6):
        entry(cache, number, hours=0.1 * number)
    cached(cache, 9)
    assert numbers(cache) == [1, 2, 3, 4, 5, 9]


def test_what_a_link_names_stays(cache: pathlib.Path) -> None:
    for number in range(1, 6):
        entry(cache, number, hours=100 - number)
    (cache / NAME).symlink_to(f"thing-{key(1)}")
    cached(cache, 9)
    assert numbers(cache) == [1, 4, 5, 9]


def test_what_is_held_stays_until_it_is_not(cache: pathlib.Path) -> None:
    """By a lock, as this library has it, and by a program that runs from there."""
    for number in range(1, 6):
        entry(cache, number, hours=100 - number)
    with open(cache / f"{NAME}-{key(1)}/program", "wb") as program:
        program.write(pathlib.Path("/bin/sleep").read_bytes())
    os.chmod(program.name, 0o755)
    age = time.time() - 100 * HOUR
    os.utime(pathlib.Path(program.name).parent, (age, age))
    lock = os.open(cache / f"{NAME}-{key(2)}", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    runs = subprocess.Popen([program.name, "1000"])
    try:
        cached(cache, 9)
        assert numbers(cache) == [1, 2, 4, 5, 9]
    finally:
        runs.kill()
        runs.wait()
        os.close(lock)
    cached(cache, 10)
    assert numbers(cache) == [5, 9, 10]


def test_a_process_holds_the_entry_of_a_path_until_it_ends(cache: pathlib.Path) -> None:
    held = entry(cache, 1, hours=100)
    text = f"import pathlib\nfrom garboard_e2e import places\nplaces.hold(pathlib.Path({str(held / 'content')!r}))\n"
    wait = "print('held', flush=True)\ninput()"
    environment = os.environ | {"PYTHONPATH": str(places.REPOSITORY / "tests/e2e")}
    for number in (2, 3, 4):
        entry(cache, number, hours=50)
    command = ["python3", "-c", text + wait]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"held\n"
        run(cache, SCRIPTS / "clear-cache", NAME)
        assert held.exists()
        process.communicate(b"\n")
    run(cache, SCRIPTS / "clear-cache", NAME)
    assert not held.exists()


def test_what_a_killed_run_has_left_goes_and_what_fails_leaves_nothing(cache: pathlib.Path) -> None:
    half = cache / f"{NAME}-{key(7)}.aB3dEf"
    half.mkdir()
    with pytest.raises(subprocess.CalledProcessError):
        cached(cache, 9, build="false")
    assert not half.exists() and numbers(cache) == []


def test_what_a_killed_run_has_left_stays_while_a_process_is_in_there(cache: pathlib.Path) -> None:
    """As what it has mounted there: nothing of that is removed."""
    half = cache / f"{NAME}-{key(7)}.aB3dEf"
    half.mkdir()
    with subprocess.Popen(["sleep", "1000"], cwd=half) as stays:
        try:
            cached(cache, 9)
            assert half.exists()
        finally:
            stays.kill()
    cached(cache, 10)
    assert not half.exists()


def test_what_cannot_be_removed_keeps_nothing_from_being_made(cache: pathlib.Path) -> None:
    """As files of another user. It goes later, when it can be removed."""
    for number in range(1, 6):
        entry(cache, number, hours=100 - number)
    text = f'. "$0"; rm() {{ return 1; }}; build() {{ touch "$1/built"; }}; cached {NAME} {key(9)} build'
    made = run(cache, "bash", "-c", text, SCRIPTS / "lib.sh").strip()
    assert (pathlib.Path(made) / "built").exists() and numbers(cache) == [4, 5, 9]
    left = list((cache / "oci").glob("thing-*.??????"))
    assert len(left) == 3
    cached(cache, 10)
    assert not any(each.exists() for each in left)


@pytest.mark.parametrize("name", ["../stranger", "/tmp/stranger", "oci/../oci/thing", "-x", "a/b/c", ""])
def test_what_is_no_name_in_the_cache_is_refused(cache: pathlib.Path, name: str) -> None:
    environment = os.environ | {"GARBOARD_CACHE": str(cache)}
    done = subprocess.run(
        [SCRIPTS / "clear-cache", name], env=environment, stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 1 and "is no name in the cache: write one" in done.stderr, done.stderr


def test_all_names_are_cleared_and_what_goes_is_printed(cache: pathlib.Path) -> None:
    """What has no lock there is not ours: GARBOARD_CACHE may name a directory with much else in it."""
    (cache / f"{NAME}.lock").touch()
    (cache / "upgrade").mkdir()
    (cache / "upgrade/lock").touch()
    strangers = [entry(cache, number, hours=1000, name="oci/stranger") for number in range(1, 5)]
    for number in range(1, 5):
        entry(cache, number, hours=100 - number)
        (cache / f"upgrade/target-{number:012x}").mkdir(parents=True)
        os.utime(cache / f"upgrade/target-{number:012x}", (number, number))
    (cache / "target/debug/deps").mkdir(parents=True)
    gone = [cache / f"{NAME}-{key(number)}" for number in (1, 2)]
    gone += [cache / f"upgrade/target-{number:012x}" for number in (1, 2)]
    assert run(cache, SCRIPTS / "clear-cache").splitlines() == [str(each) for each in gone]
    assert not any(each.exists() for each in gone) and (cache / "target/debug/deps").exists()
    assert all(each.exists() for each in strangers)


def test_a_cache_may_be_a_link_to_a_directory_elsewhere(tmp_path: pathlib.Path) -> None:
    elsewhere, linked = tmp_path / "elsewhere", tmp_path / "cache"
    (elsewhere / "oci").mkdir(parents=True)
    linked.symlink_to(elsewhere)
    for number in range(1, 5):
        entry(linked, number, hours=100 - number, name="thing")
    (linked / "thing.lock").touch()
    run(linked, SCRIPTS / "clear-cache")
    assert sorted(each.name for each in elsewhere.glob("thing-*")) == [f"thing-{key(3)}", f"thing-{key(4)}"]


LENT = [
    ".fingerprint/serde-0123456789abcdef/lib-serde",
    "build/serde-0123456789abcdef/output",
    "deps/libserde-0123456789abcdef.rlib",
    "deps/libserde-0123456789abcdef.rmeta",
    "deps/serde-0123456789abcdef.d",
    "deps/libserde_derive-0123456789abcdef.so",
]
KEPT = [
    ".cargo-lock",
    ".fingerprint/garboard-api-0123456789abcdef/lib-garboard_api",
    "build/garboard-node-0123456789abcdef/output",
    "deps/libgarboard_api-0123456789abcdef.rlib",
    "deps/libgarboard_api-0123456789abcdef.rmeta",
    "deps/garboard_api-0123456789abcdef.d",
    # A program, a test, and a crate that was only checked.
    "deps/kubectl_garboard-0123456789abcdef",
    "deps/golden-0123456789abcdef",
    "deps/golden-0123456789abcdef.d",
    "deps/libserde-fedcba9876543210.rmeta",
    "deps/rustcVaBtYt/syn.o",
    "deps/syn-0123456789abcdef.syn.0-cgu.00.rcgu.o",
    "examples/probe",
    "incremental/garboard_api-1/s",
    "garboard",
    "garboard.d",
    "libgarboard_host.rlib",
]


def test_a_build_lends_its_dependencies_and_nothing_else(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in (*LENT, *KEPT):
        path = tmp_path / "ours/debug" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path / "ours"))
    versions.borrow_dependencies(tmp_path / "theirs")
    there = tmp_path / "theirs/debug"
    assert {str(each.relative_to(there)) for each in there.rglob("*") if each.is_file()} == set(LENT)
