"""Two builds beside each other: this checkout, and an earlier commit, whose programs and images the cache keeps."""

import dataclasses
import fcntl
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence

from . import names
from .cluster.build import Images
from .outcome import Failure
from .places import CACHE, REPOSITORY, SCRIPTS, hold

# What the programs are made of, as `scripts/test` builds them.
PACKAGES = ("garboard-cli", "garboard-launcher", "garboard-host")


@dataclasses.dataclass(frozen=True)
class Version:
    """Programs of one version, and where its sources are."""

    name: str
    source: pathlib.Path
    programs: pathlib.Path

    @functools.cached_property
    def images(self) -> Images:
        """They are built where they are not there."""
        command = (self.source / "deploy/images/build", "--dev")
        return Images(hold(pathlib.Path(printed(command, environment(self.programs, self.name)))))

    @functools.cached_property
    def manifest(self) -> str:
        """What installs it."""
        return self.images.manifest.read_text()

    def manifest_with(self, launcher: str) -> str:
        """The same with another image for launchers."""
        return self.manifest.replace(f"--launcher-image={self.images.launcher}", f"--launcher-image={launcher}")


def today(programs: pathlib.Path) -> Version:
    """This checkout, which was built before."""
    return Version(version_of(programs), REPOSITORY, programs.resolve())


def earlier(commit: str | None) -> Version:
    """Another commit of this repository, checked out and built where it is not yet; by default the newest one that this
    checkout is not."""
    default = "HEAD" if git("status", "--porcelain") else "HEAD~1"
    commit = git("rev-parse", "--verify", f"{commit or default}^{{commit}}")
    home = CACHE / "upgrade"
    home.mkdir(parents=True, exist_ok=True)
    source, target = home / f"source-{commit[:12]}", home / f"target-{commit[:12]}"
    with open(home / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            subprocess.run([SCRIPTS / "clear-cache", "upgrade/source", "upgrade/target"], check=True, stdout=sys.stderr)
        if not source.exists():
            check_out(commit, source)
        if not target.exists():
            borrow_dependencies(target)
        for each in (source, target):
            hold(each)
            os.utime(each)
        build(source, target / "debug")
    return Version(version_of(target / "debug"), source, target / "debug")


def check_out(commit: str, source: pathlib.Path) -> None:
    """A clone that borrows this repository's objects, so that nothing of it is changed."""
    fresh = source.with_name(f".{source.name}")
    shutil.rmtree(fresh, ignore_errors=True)
    safe = ["git", "-c", "safe.directory=*"]
    subprocess.run([*safe, "clone", "--quiet", "--shared", "--no-checkout", REPOSITORY, fresh], check=True)
    subprocess.run([*safe, "-C", fresh, "checkout", "--quiet", "--detach", commit], check=True)
    fresh.rename(source)


def borrow_dependencies(target: pathlib.Path) -> None:
    """What this checkout was built with is mostly what the other one needs; all of it would take minutes to compile."""
    ours = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", f"{CACHE}/target"), "debug")
    if ours.exists():
        shutil.copytree(ours, target / "debug", symlinks=True, ignore=is_no_dependency)


# Of a directory that cargo compiles into: the crates, what their build scripts printed, and what cargo knows of them.
PARTS = {"deps", "build", ".fingerprint"}


def is_no_dependency(directory: str, names: list[str]) -> set[str]:
    """What the other checkout has no use for: our own crates, programs, tests, and what was only checked (a crate that
    was compiled has an .rlib, or an .so that the compiler loads)."""
    where = pathlib.Path(directory).name
    if where == "debug":
        return set(names) - PARTS
    if where == "deps":
        compiled = {name.partition(".")[0] for name in names if name.endswith((".rlib", ".so"))}
        compiled = {each for each in compiled if not each.startswith("libgarboard")}
        return {name for name in names if not {(stem := name.partition(".")[0]), f"lib{stem}"} & compiled}
    return {name for name in names if where in PARTS and name.startswith("garboard")}


def build(source: pathlib.Path, programs: pathlib.Path) -> None:
    # Earlier commits have the background process of a machine in the command.
    packages = [*PACKAGES, *(["garboard-shim"] if (source / "launcher/shim").exists() else [])]
    command = ["cargo", "build", "--locked", *(f"--package={name}" for name in packages)]
    version = printed([source / "scripts/version"], environment(programs))
    print(f"==> building Garboard {version}", file=sys.stderr)  # noqa: T201
    subprocess.run(command, check=True, cwd=source, env=environment(programs, version), stdout=sys.stderr)


def environment(programs: pathlib.Path, version: str | None = None) -> dict[str, str]:
    """That of commands of the version which has these programs, and not the version of this checkout."""
    rest = {name: value for name, value in os.environ.items() if name not in ("GARBOARD_VERSION", "GARBOARD_BUILD")}
    own = {"GARBOARD_VERSION": version} if version else {}
    return rest | own | {"CARGO_TARGET_DIR": str(programs.parent)}


def version_of(programs: pathlib.Path) -> str:
    output = printed([programs / names.COMMAND, "--version"])
    if not (found := re.match(r"\S+ (\S+)", output)):
        raise Failure(f"`{names.COMMAND} --version` prints {output}")
    return found[1]


def printed(command: Sequence[str | pathlib.Path], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
    if done.returncode:
        raise Failure(f"`{' '.join(map(str, command))}` ended with {done.returncode}")
    return done.stdout.strip()


def git(*arguments: str) -> str:
    return printed(["git", "-c", "safe.directory=*", "-C", REPOSITORY, *arguments])
