"""The version that a checkout has by its commit."""

import os
import pathlib
import re
import subprocess

from garboard_e2e.places import REPOSITORY

BY_COMMIT = r"\d+\.\d+\.\d+-dev\.\d{14}\.g[0-9a-f]{7}"
AUTHOR = ["-c", "user.name=a", "-c", "user.email=a@example.com"]


def run(directory: pathlib.Path, *command: str) -> str:
    ours = ("GARBOARD_VERSION", "GARBOARD_BUILD")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(command, cwd=directory, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def version(checkout: pathlib.Path) -> str:
    return run(checkout, "scripts/version")


def checkout(directory: pathlib.Path) -> pathlib.Path:
    """A repository of two commits with this script in it."""
    made = directory / "whole"
    (made / "scripts").mkdir(parents=True)
    (made / "Cargo.toml").write_bytes((REPOSITORY / "Cargo.toml").read_bytes())
    script = made / "scripts/version"
    script.write_bytes((REPOSITORY / "scripts/version").read_bytes())
    script.chmod(0o755)
    run(made, "git", "init", "--quiet")
    for name in ("one", "two"):
        (made / name).write_text(name)
        run(made, "git", "add", ".")
        run(made, "git", *AUTHOR, "commit", "--quiet", "-m", name)
    return made


def test_a_shallow_clone_has_the_version_of_a_whole_one(directory: pathlib.Path) -> None:
    whole = checkout(directory)
    run(directory, "git", "clone", "--quiet", "--depth=1", f"file://{whole}", "shallow")
    assert re.fullmatch(BY_COMMIT, version(whole))
    assert version(directory / "shallow") == version(whole)


def test_other_files_are_another_version(directory: pathlib.Path) -> None:
    whole = checkout(directory)
    clean, seen = version(whole), set[str]()
    for name, text in (("two", "2"), ("two", "II"), ("new", "1"), ("new", "2"), ("newer", "2")):
        (whole / name).write_text(text)
        seen.add(version(whole))
    assert len(seen) == 5 and all(re.fullmatch(rf"{re.escape(clean)}\.dirty-[0-9a-f]{{7}}", each) for each in seen)
    run(whole, "git", "tag", "v" + clean.partition("-")[0])
    assert re.fullmatch(r"\d+\.\d+\.\d+-dirty-[0-9a-f]{7}", version(whole))
    run(whole, "git", "clean", "--quiet", "-fd")
    run(whole, "git", "checkout", "--quiet", ".")
    assert re.fullmatch(r"\d+\.\d+\.\d+", version(whole))


def of_build(checkout: pathlib.Path) -> dict[str, str]:
    pairs = run(checkout, "scripts/version", "--build").split()
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def test_a_build_names_its_commit_and_its_time(directory: pathlib.Path) -> None:
    whole = checkout(directory)
    found = of_build(whole)
    assert found["commit"] == run(whole, "git", "rev-parse", "HEAD")
    digits = re.sub(r"\D", "", found["date"])
    assert version(whole).split(".")[3] == digits and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found["date"])
    assert run(whole, "rustc", "--version").split()[1] == found["rustc"]


def test_an_archive_has_the_version_of_its_sources_alone(directory: pathlib.Path) -> None:
    whole = checkout(directory)
    (whole / ".git").rename(directory / "elsewhere")
    assert re.fullmatch(r"\d+\.\d+\.\d+-dev", version(whole))
    assert "commit" not in of_build(whole) and "date" not in of_build(whole)
