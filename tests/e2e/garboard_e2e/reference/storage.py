"""Volumes for claims of the functional tests: a directory of this host, which both nodes share, or a loop device."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading

from ..cluster.kube import Kube
from ..cluster.names import QEMU_USER, Object
from ..outcome import Failure

# The classes, and what a volume of each is by default: all may be written from both nodes, which are one host.
FILES, BLOCK = "local", "local-block"
# Classes that tests of other guests name; nothing makes volumes for them.
EMPTY = ("rhel", "windows")
CLASSES = (FILES, BLOCK, *EMPTY)
CONFIGURATION = {
    "storageClassRhel": EMPTY[0],
    "storageClassWindows": EMPTY[1],
    "storageRWOFileSystem": FILES,
    "storageRWXFileSystem": FILES,
    "storageRWOBlock": BLOCK,
    "storageRWXBlock": BLOCK,
    "storageVMState": FILES,
}
UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
# Seconds between two looks at the claims.
PAUSE = 1


def size(quantity: str) -> int:
    """Bytes of a quantity of Kubernetes, as claims write it."""
    for unit, factor in UNITS.items():
        if quantity.endswith(unit):
            return int(float(quantity.removesuffix(unit)) * factor)
    return int(float(quantity))


def storage_class(name: str) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
    }


def volume(name: str, claim: Object, path: pathlib.Path, is_block: bool) -> Object:
    """The volume that a claim is bound to."""
    spec = claim["spec"]
    reference = {key: claim["metadata"][key] for key in ("namespace", "name", "uid")}
    linux = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": spec["accessModes"],
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "storageClassName": spec["storageClassName"],
            "volumeMode": "Block" if is_block else "Filesystem",
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim"} | reference,
            "local": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [linux]}},
        },
    }


class Provisioner:
    """Makes a volume for each claim of the two classes, and removes it when the claim is gone; the classes are there as
    long as it is."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="gbref-", dir="/srv"))
        self.place.chmod(0o755)
        # By the UID of the claim: what it was given, and the loop device.
        self.made: dict[str, tuple[pathlib.Path, str]] = {}
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def __enter__(self) -> "Provisioner":
        self.kube.apply(*(storage_class(name) for name in CLASSES), namespace=None)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()
        for uid in list(self.made):
            self.remove(uid)
        self.kube.kubectl("delete", "storageclass", *CLASSES, "--ignore-not-found", code=None, namespace=None)
        shutil.rmtree(self.place, ignore_errors=True)

    def serve(self) -> None:
        """Until it is stopped. A look that fails, because the API server is busy, is followed by another one."""
        while not self.stop.wait(PAUSE):
            with contextlib.suppress(Failure, OSError, subprocess.SubprocessError):
                self.look()

    def look(self) -> None:
        claims = {each["metadata"]["uid"]: each for each in self.kube.items("pvc", "-A", namespace=None)}
        for uid, claim in claims.items():
            wanted = claim["spec"].get("storageClassName") in (FILES, BLOCK) and not claim["spec"].get("volumeName")
            if wanted and uid not in self.made:
                self.make(uid, claim)
        for uid in [uid for uid in self.made if uid not in claims]:
            self.remove(uid)

    def make(self, uid: str, claim: Object) -> None:
        """Block volumes are devices whatever their class is, so that a claim gets what its volumeMode says."""
        path, device = self.place / uid, ""
        is_block = claim["spec"].get("volumeMode") == "Block"
        if is_block:
            with path.open("w") as file:
                file.truncate(size(claim["spec"]["resources"]["requests"]["storage"]))
            attach = ["losetup", "--find", "--show", str(path)]
            device = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
        else:
            path.mkdir()
            os.chown(path, QEMU_USER, QEMU_USER)
            path.chmod(0o777)
        self.made[uid] = path, device
        made = volume(f"reference-{uid}", claim, pathlib.Path(device) if device else path, is_block)
        self.kube.apply(made, namespace=None)

    def remove(self, uid: str) -> None:
        path, device = self.made[uid]
        name = f"reference-{uid}"
        self.kube.kubectl("delete", "pv", name, "--ignore-not-found", "--wait=false", code=None, namespace=None)
        if device:
            subprocess.run(["losetup", "--detach", device], check=False)
        shutil.rmtree(path, ignore_errors=True)
        path.unlink(missing_ok=True)
        del self.made[uid]
