"""Network and mounts of a test's own: what other machines of this host do is not taken for leftovers, and what a
failure leaves behind goes with the namespaces."""

import contextlib
import ctypes
import errno
import os
import subprocess
from collections.abc import Iterator
from typing import IO

from .patience import wait_until

# unshare(2)
CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000


@contextlib.contextmanager
def own_network_and_mounts() -> Iterator[None]:
    """For this thread, and for the threads and processes that it starts meanwhile."""
    libc = ctypes.CDLL(None, use_errno=True)
    directory = os.getcwd()
    with open("/proc/thread-self/ns/net", "rb") as network, open("/proc/thread-self/ns/mnt", "rb") as mounts:
        if libc.unshare(CLONE_NEWNET | CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        try:
            subprocess.run(["mount", "--make-rprivate", "/"], check=True)
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            enter(libc, network, CLONE_NEWNET)
            # The kernel lets a thread into other mounts once no thread shares its working directory any more.
            wait_until("the end of a server's threads", lambda: enter(libc, mounts, CLONE_NEWNS))
            os.chdir(directory)


def enter(libc: ctypes.CDLL, namespace: IO[bytes], kind: int) -> bool:
    if libc.setns(namespace.fileno(), kind) == 0:
        return True
    if ctypes.get_errno() == errno.EINVAL:
        return False
    raise OSError(ctypes.get_errno(), "setns")
