"""Where things are: the repository, the cache that all checkouts share, and directories to keep machines in."""

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
EXAMPLES, SCRIPTS = REPOSITORY / "examples", REPOSITORY / "scripts"
# Of directories that machines are kept in.
PREFIX = "gb-"
CACHE = pathlib.Path(os.environ.get("GARBOARD_CACHE", "/var/cache/garboard-test"))


@contextlib.contextmanager
def temporary_directory(prefix: str = PREFIX) -> Iterator[pathlib.Path]:
    """A directory that machines may be kept in, removed afterwards."""
    # Short: a socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix=prefix) as directory:
        os.chmod(directory, 0o755)  # the machine's own user must get through
        yield pathlib.Path(directory)
