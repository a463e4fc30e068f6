"""A real iSCSI target on a node: Debian's tgt, with a unit that anyone may open and one that takes CHAP."""

import contextlib
import pathlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from .kube import Kube
from .names import MIB, NAMESPACE, NODE_1, Object

PORT = 3260
USER, PASSWORD = "ada", "a-password-of-16"
# By the name of the volume: the number of the target, and its size in MiB.
UNITS = {"plain": (1, 32), "secured": (2, 48)}


def iqn(name: str) -> str:
    return f"iqn.2017-01.dev.garboard:{name}"


@dataclass(frozen=True)
class Target:
    """The target while it runs."""

    kube: Kube
    address: str

    def admin(self, *arguments: str) -> str:
        return self.kube.inside(NODE_1, "tgtadm", "--lld", "iscsi", *arguments)

    def file(self, name: str) -> pathlib.Path:
        """What is behind a unit, as the host sees it."""
        return self.kube.root(NODE_1) / f"run/unit-{name}.img"

    def volume(self, name: str, secret: str | None = None) -> Object:
        source: Object = {"targetPortal": f"{self.address}:{PORT}", "iqn": iqn(name), "lun": 1}
        return {"name": name, "iscsi": source | ({"secretRef": {"name": secret}} if secret else {})}

    def offer(self, name: str) -> None:
        number, size = UNITS[name]
        target = ["--tid", str(number)]
        self.file(name).write_bytes(b"")
        with self.file(name).open("r+b") as unit:
            unit.truncate(size * MIB)
        self.admin("--mode", "target", "--op", "new", *target, "--targetname", iqn(name))
        self.admin("--mode", "logicalunit", "--op", "new", *target, "--lun", "1", "-b", f"/run/unit-{name}.img")
        self.admin("--mode", "target", "--op", "bind", *target, "-I", "ALL")


def secret(name: str, password: str = PASSWORD) -> Object:
    content = {"node.session.auth.username": USER, "node.session.auth.password": password}
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": content}


@contextlib.contextmanager
def target(kube: Kube) -> Iterator[Target]:
    """tgtd on the first node, until its tests have ended."""
    if not shutil.which("tgtd"):
        pytest.skip("tgtd is not installed (package tgt)")
    addresses = kube.get(f"node/{NODE_1}", namespace=None)["status"]["addresses"]
    address = next(each["address"] for each in addresses if each["type"] == "InternalIP")
    kube.inside(NODE_1, "mkdir", "-p", "/run/tgtd")
    kube.inside(NODE_1, "tgtd", "--iscsi", f"portal={address}:{PORT}")
    made = Target(kube, address)
    try:
        show = ("tgtadm", "--op", "show", "--mode", "sys")
        kube.ask_until("the target answers", lambda: kube.inside(NODE_1, *show, check=False))
        for name in UNITS:
            made.offer(name)
        made.admin("--mode", "account", "--op", "new", "--user", USER, "--password", PASSWORD)
        made.admin("--mode", "account", "--op", "bind", "--tid", str(UNITS["secured"][0]), "--user", USER)
        yield made
    finally:
        for number, _ in UNITS.values():
            delete = ("tgtadm", "--lld", "iscsi", "--mode", "target", "--op", "delete", "--force", "--tid", str(number))
            kube.inside(NODE_1, *delete, check=False)
        kube.inside(NODE_1, "tgtadm", "--mode", "system", "--op", "delete", check=False)
        for name in UNITS:
            made.file(name).unlink(missing_ok=True)
