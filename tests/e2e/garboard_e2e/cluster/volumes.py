"""Volumes of a test cluster, which has no storage classes: they are made by hand, a directory or a loop device each;
and what a guest is taught to look at them."""

import contextlib
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator

from .kube import Kube
from .names import MIB, NAMESPACE, QEMU_USER
from .objects import claim

# In the guest: the disk with a serial number, and what a disc holds.
FUNCTIONS = (
    'disk() { for s in /sys/block/*/serial; do [ "$(cat $s)" != "$1" ] || { s=${s%/serial}; echo /dev/${s##*/}; };'
    " done; }",
    "disc() { mkdir -p /m; mount -t iso9660 -r $(disk $1) /m && cat /m/$2; c=$?; umount /m; return $c; }",
)


def learn(kube: Kube, name: str) -> None:
    """The shell of this guest has `disk SERIAL` and `disc SERIAL FILE` from here on."""
    kube.has_shell(name)
    for command in ("settle", *FUNCTIONS):
        kube.shell(name, command)


@contextlib.contextmanager
def directory() -> Iterator[pathlib.Path]:
    """A directory of this host, which nodes share; the machine's user may write it."""
    with tempfile.TemporaryDirectory(prefix="gbvol-", dir="/srv") as work:
        os.chmod(work, 0o755)
        made = pathlib.Path(work, "claim")
        made.mkdir()
        os.chown(made, QEMU_USER, QEMU_USER)
        yield made


@contextlib.contextmanager
def device(size: int = 64 * MIB) -> Iterator[str]:
    """A loop device of this host."""
    with tempfile.NamedTemporaryFile(prefix="gbvol-", dir="/srv") as file:
        file.truncate(size)
        attach = ["losetup", "--find", "--show", file.name]
        made = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
        try:
            yield made
        finally:
            subprocess.run(["losetup", "--detach", made], check=False)


@contextlib.contextmanager
def claimed(kube: Kube, name: str) -> Iterator[pathlib.Path]:
    """A claim, and the directory it is bound to."""
    with directory() as path:
        kube.apply(*claim(name, str(path)))
        try:
            yield path
        finally:
            remove_claim(kube, name)


def remove_claim(kube: Kube, name: str) -> None:
    kube.kubectl("delete", "pvc", name, "--ignore-not-found")
    kube.kubectl("delete", "pv", name, "--ignore-not-found", namespace=None)


@contextlib.contextmanager
def volume(kube: Kube, name: str) -> Iterator[pathlib.Path]:
    """One that fits a claim of this name, which is made elsewhere; the directory that it is."""
    with directory() as path:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "64Mi"},
            "hostPath": {"path": str(path)},
            "claimRef": {"namespace": NAMESPACE, "name": name},
        }
        made = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
        kube.apply(made, namespace=None)
        try:
            yield path
        finally:
            kube.kubectl("delete", "pv", name, "--wait=false", namespace=None)
