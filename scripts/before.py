"""The build of an earlier commit, beside that of this checkout: its programs and its images, kept in the cache by commit."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys

from kube import CACHE

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
# As `scripts/test` builds them.
PROGRAMS = ("garboard-cli", "garboard-launcher", "garboard-host")


@dataclasses.dataclass(frozen=True)
class Build:
    """Programs of one version, and where its sources are."""

    source: pathlib.Path
    programs: pathlib.Path
    version: str

    def images(self) -> pathlib.Path:
        """The directory of its images; they are built if they are not there."""
        command = [self.source / "deploy/images/build", "--dev"]
        return pathlib.Path(output(command, environment=self.environment()))

    def environment(self) -> dict[str, str]:
        """Its own version, as its programs have it, and not the one of whoever calls."""
        rest = {name: value for name, value in os.environ.items() if name != "GARBOARD_VERSION"}
        told = {"GARBOARD_VERSION": self.version} if self.version else {}
        return rest | told | {"CARGO_TARGET_DIR": str(self.programs.parent)}

    def manifest(self) -> str:
        """What installs these images."""
        beside = self.images() / "garboard.yaml"
        # Before images had versions of their own, the file of the sources named them.
        return (beside if beside.exists() else self.source / "deploy/garboard.yaml").read_text()


def launcher_image(manifest: str) -> str:
    """The image that a manifest gives to launcher pods."""
    found = re.search(r"--launcher-image=(\S+)", manifest)
    if not found:
        sys.exit("the manifest names no image for launchers")
    return found[1]


def output(command: list[str | pathlib.Path], environment: dict[str, str] | None = None) -> str:
    """What a command prints; its standard error is ours."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout.strip()


def git(*arguments: str, directory: pathlib.Path = REPOSITORY) -> str:
    return output(["git", "-c", "safe.directory=*", "-C", directory, *arguments])


def commit_before() -> str:
    """The newest commit that this checkout is not."""
    return "HEAD" if git("status", "--porcelain") else "HEAD~1"


def today(programs: pathlib.Path) -> Build:
    """This checkout, which was built by whoever calls."""
    return Build(REPOSITORY, programs.resolve(), version_of(programs / "garboard"))


def before(commit: str) -> Build:
    """Another commit of this repository, checked out and built where it is not yet."""
    commit = git("rev-parse", "--verify", f"{commit}^{{commit}}")
    home = CACHE / "upgrade"
    home.mkdir(parents=True, exist_ok=True)
    source, target = home / f"source-{commit[:12]}", home / f"target-{commit[:12]}"
    with open(home / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not source.exists():
            git("worktree", "prune")
            git("worktree", "add", "--detach", str(source), commit)
        if not target.exists():
            borrow_dependencies(target)
        build = Build(source, target / "debug", "")
        # Earlier commits have the background process of a machine in the command.
        programs = [*PROGRAMS, *(["garboard-shim"] if (source / "launcher/shim").exists() else [])]
        command = ["cargo", "build", "--locked", *(f"--package={name}" for name in programs)]
        version = source / "scripts/version"
        told = {"GARBOARD_VERSION": output([version], build.environment())} if version.exists() else {}
        print(f"==> building Garboard of {commit[:12]}", file=sys.stderr)
        subprocess.run(command, check=True, cwd=source, env=build.environment() | told, stdout=sys.stderr)
    return dataclasses.replace(build, version=version_of(build.programs / "garboard"))


def borrow_dependencies(target: pathlib.Path) -> None:
    """What this checkout was built with is mostly what the other one needs; all of it would take minutes to compile."""
    ours = os.environ.get("CARGO_TARGET_DIR")
    if ours and pathlib.Path(ours, "debug").exists():
        shutil.copytree(pathlib.Path(ours, "debug"), target / "debug", symlinks=True,
                        ignore=shutil.ignore_patterns("incremental", "garboard*"))


def version_of(program: pathlib.Path) -> str:
    return output([program, "--version"]).split("\n", maxsplit=1)[0].split()[-1]
