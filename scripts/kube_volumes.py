"""Volumes as a guest on a cluster sees them. The cluster has no storage classes: volumes are made by hand, one a directory
and one a loop device."""

import contextlib
import os
import pathlib
import re
import subprocess
import tempfile

from kube import NAMESPACE, Failure, claim, machine

QEMU_USER = 107
MIB = 1 << 20
# In the guest: the disk with a serial number, and what a disc holds.
WORDS = """disk() { for s in /sys/block/*/serial; do [ "$(cat $s)" != "$1" ] || { s=${s%/serial}; echo /dev/${s##*/}; }; done; }
disc() { mkdir -p /m; mount -t iso9660 -r $(disk $1) /m && cat /m/$2; c=$?; umount /m; return $c; }"""


@contextlib.contextmanager
def places():
    """A directory and a loop device of this host, which nodes share; the machine's user may write them."""
    with tempfile.TemporaryDirectory(prefix="gbvol-", dir="/srv") as work:
        os.chmod(work, 0o755)
        directory, file = pathlib.Path(work, "claim"), pathlib.Path(work, "block")
        directory.mkdir()
        os.chown(directory, QEMU_USER, QEMU_USER)
        with file.open("wb") as out:
            out.truncate(64 * MIB)
        done = subprocess.run(["losetup", "--find", "--show", file], check=True, capture_output=True, text=True)
        device = done.stdout.strip()
        try:
            yield directory, device
        finally:
            subprocess.run(["losetup", "--detach", device], check=False)


def volumes_hold(kube):
    with places() as (directory, device):
        kube.apply(*claim("kept", path=str(directory)), *claim("raw", node="node-1", path=device, block=True),
                   {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": NAMESPACE}, "data": {"greeting": "hello"}},
                   {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token", "namespace": NAMESPACE}, "stringData": {"token": "hidden"}},
                   {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "seed", "namespace": NAMESPACE}, "stringData": {"userdata": "#cloud-config\nhostname: seeded\n"}})
        kube.start(machine("disks", node="node-1", volumes=[
            {"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}},
            {"name": "raw", "persistentVolumeClaim": {"claimName": "raw"}},
            {"name": "empty", "emptyDisk": {"capacity": "16Mi"}},
            {"name": "settings", "configMap": {"name": "settings"}},
            {"name": "token", "secret": {"secretName": "token"}},
            {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "seed"}}},
        ]))
        try:
            are_seen(kube)
            are_told(kube)
            have_one_writer(kube)
            write_and_restart(kube)
        finally:
            kube.remove("disks")
            kube.kubectl("delete", "pvc", "kept", "raw")
            kube.kubectl("delete", "pv", "kept", "raw")


def guest(kube, command):
    return kube.shell("disks", f"{command}").strip()


def learn(kube):
    kube.says("disks", ":/# ")
    kube.shell("disks", "settle")
    for line in WORDS.splitlines():
        kube.shell("disks", line)


def are_seen(kube):
    learn(kube)
    hardware = guest(kube, "hardware")
    sizes = {name: int(size) for size, name in re.findall(r"^disk \w+ bytes=(\d+) ro=\d serial=(\w+)", hardware, re.M)}
    if sizes.get("raw") != 64 * MIB or sizes.get("empty") != 16 * MIB or not 56 * MIB < sizes.get("kept", 0) <= 64 * MIB:
        raise Failure(f"the guest sees\n{hardware}")
    for name, file, wanted in (("settings", "greeting", "hello"), ("token", "token", "hidden"), ("seed", "user-data", "hostname: seeded")):
        if wanted not in (found := guest(kube, f"disc {name} {file}")):
            raise Failure(f"{name} holds {found!r}")
    # An emptyDisk has an end.
    guest(kube, "dd if=/dev/zero of=$(disk empty) bs=1M count=16 conv=fsync")
    kube.shell("disks", "dd if=/dev/zero of=$(disk empty) bs=1M seek=16 count=1 conv=fsync", code=1)


def are_told(kube):
    told = {each["name"]: each.get("persistentVolumeClaimInfo") for each in kube.there("vmi", "disks")["status"]["volumeStatus"]}
    size = {"storage": "64Mi"}
    common = {"accessModes": ["ReadWriteOnce"], "capacity": size, "requests": size}
    wanted = {"kept": common | {"claimName": "kept", "volumeMode": "Filesystem", "filesystemOverhead": "0.055"},
              "raw": common | {"claimName": "raw", "volumeMode": "Block"}, "empty": None}
    if differing := {name: told.get(name) for name in wanted if told.get(name) != wanted[name]}:
        raise Failure(f"volumeStatus says {differing}")


def have_one_writer(kube):
    """Another machine with the same claim is told why it gets none: QEMU's locks see a file, not a device that each container
    has a node of its own for."""
    for name in ("kept", "raw"):
        second = machine(f"second-{name}", "Once", node="node-1", volumes=[{"name": name, "persistentVolumeClaim": {"claimName": name}}])
        kube.apply(second)
        told = kube.wait(f"an end of a second writer of {name}",
                         lambda who=f"second-{name}": kube.condition("vmi", who, "garboard.dev/Ended").get("message", ""))
        if "in use by another running VM" not in told:
            raise Failure(f"a second writer of {name} is told {told!r}")
        kube.remove(f"second-{name}")


def write_and_restart(kube):
    for name in ("kept", "raw", "empty"):
        guest(kube, f"echo written-to-{name} | dd of=$(disk {name}) conv=fsync")
    uid = kube.uid("disks")
    kube.kubectl("delete", "vmi/disks", "--wait=false")
    kube.runs("disks", not_this=uid)
    learn(kube)
    found = {name: f"written-to-{name}" in guest(kube, f"head -c 20 $(disk {name})") for name in ("kept", "raw", "empty")}
    if found != {"kept": True, "raw": True, "empty": False}:
        raise Failure(f"after a restart the guest finds on its disks what it wrote: {found}")
