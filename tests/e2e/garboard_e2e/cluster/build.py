"""What a test cluster is made of: the program of tests/cluster, the programs of Kubernetes, and images of Garboard,
built once for all tests."""

import dataclasses
import functools
import hashlib
import os
import pathlib
import re
import subprocess

from ..guests import HELLO, layout
from ..outcome import Failure
from ..places import REPOSITORY, SCRIPTS, hold


@functools.cache
def tools() -> pathlib.Path:
    """The directory of kubectl and all others; built the first time, which takes some ten minutes."""
    return printed_by(SCRIPTS / "fetch-cluster")


@functools.cache
def version() -> str:
    """That of this checkout, and of its images."""
    return str(printed_by(SCRIPTS / "version"))


def printed_by(*command: str | pathlib.Path) -> pathlib.Path:
    made = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if made.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))} ended with {made.returncode}")
    return hold(pathlib.Path(made.stdout.strip()))


@dataclasses.dataclass(frozen=True)
class Images:
    """A directory of Garboard's images, and what installs them."""

    directory: pathlib.Path

    @classmethod
    def built(cls) -> "Images":
        """Those of GARBOARD_IMAGES, or those of this checkout, which are built where they are not in the cache."""
        ready = os.environ.get("GARBOARD_IMAGES")
        return cls(hold(pathlib.Path(ready)) if ready else printed_by(REPOSITORY / "deploy/images/build", "--dev"))

    @property
    def archives(self) -> list[pathlib.Path]:
        return sorted(self.directory.glob("*.tar"))

    @property
    def manifest(self) -> pathlib.Path:
        return self.directory / "garboard.yaml"

    @property
    def launcher(self) -> str:
        """The name of the image of launcher pods that the manifest installs."""
        found = re.search(r"--launcher-image=(\S+)", self.manifest.read_text())
        if not found:
            raise Failure(f"{self.manifest} names no image for launchers")
        return found[1]


@dataclasses.dataclass(frozen=True)
class Build:
    """Everything that a cluster is made of."""

    program: pathlib.Path
    images: Images
    hello: pathlib.Path

    @classmethod
    def made(cls, program: pathlib.Path) -> "Build":
        return cls(program, Images.built(), layout(HELLO))

    @functools.cached_property
    def key(self) -> dict[str, str]:
        """What is the same for clusters of the same build. The cache names a directory by what is in it."""
        return {
            "program": hashlib.sha256(self.program.read_bytes()).hexdigest(),
            "tools": str(tools().resolve()),
            "images": str(self.images.directory.resolve()),
            "manifest": hashlib.sha256(self.images.manifest.read_bytes()).hexdigest(),
            "hello": str(self.hello.resolve()),
        }
