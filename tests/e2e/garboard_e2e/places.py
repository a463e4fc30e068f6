"""Where things are: the repository, the cache that all checkouts share, and directories to keep machines in."""

import contextlib
import fcntl
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterator

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
EXAMPLES, SCRIPTS = REPOSITORY / "examples", REPOSITORY / "scripts"
# Of directories that machines are kept in.
PREFIX = "gb-"
CACHE = pathlib.Path(os.environ.get("GARBOARD_CACHE", "/var/cache/garboard-test"))

# How the name of an entry of the cache ends: with its key, or a commit.
KEY = re.compile(r"-[0-9a-f]{12,16}$")


def hold(path: pathlib.Path) -> pathlib.Path:
    """The same path. The entry of the cache that has it, if one does, is not removed while this process lives
    (`remove_entry` in scripts/lib.sh)."""
    entry = next((each for each in (path, *path.parents) if KEY.search(each.name)), None)
    if entry and entry.is_dir():
        # Never closed: the lock ends with the process.
        fcntl.flock(os.open(entry, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_SH)
    return path


# The libraries of the tests themselves are one: some are read long after the beginning.
hold(pathlib.Path(sys.prefix))


@contextlib.contextmanager
def temporary_directory(prefix: str = PREFIX) -> Iterator[pathlib.Path]:
    """A directory that machines may be kept in, removed afterwards."""
    # Short: a socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix=prefix) as directory:
        os.chmod(directory, 0o755)  # the machine's own user must get through
        yield pathlib.Path(directory)
