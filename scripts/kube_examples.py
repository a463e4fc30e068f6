"""The files of examples/, applied to a cluster as they are; those with a Linux guest with one annotation more, which asks for
TCG (kube.TCG says why)."""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile

from kube import CACHE, EXAMPLES, NAMESPACE, TCG, Failure, Skipped

QEMU_USER = 107
FIRMWARE = "vmi-firmware"
# What the guest prints, or None where it says nothing that we know.
SAYS = {
    "vm-bridge": "garboard-hello: address", "vm-configmap": "garboard-hello: address", "vm-efi": "garboard-hello: address",
    "vm-hello": "garboard-hello: address", "vm-multi-disk": "garboard-hello: address", "vm-ports": "garboard-hello: httpd",
    "vm-pvc": "garboard-hello: address", "vmi-firmware": "garboard-boot: counted", "vmi-minimal": "garboard-hello: userspace",
}
# Why a file is not for this cluster; the sentence is printed.
NOT_HERE = {"vm-debian-cloudinit": "its guest takes a quarter of an hour where vCPUs are interpreted; `debian` boots it on the bare host"}
CLAIMS = {"vm-efi": "persistent-state-for-efi", "vm-pvc": "hello-data", "vm-multi-disk": "multi-disk-data"}
IMAGES = {"vm-multi-disk": "hello-pc", "vmi-firmware": "bootsector"}


def examples_run():
    return [(f"examples/{path.name}", scene_of(path)) for path in sorted(EXAMPLES.glob("*.yaml"))]


def scene_of(path):
    def scene(kube):
        if path.stem in NOT_HERE:
            raise Skipped(NOT_HERE[path.stem])
        if path.stem not in SAYS:
            raise Failure("say in SAYS what its guest prints")
        with contextlib.ExitStack() as stack:
            if path.stem in IMAGES:
                load(kube, IMAGES[path.stem])
            if path.stem in CLAIMS:
                stack.enter_context(volume(kube, CLAIMS[path.stem]))
            runs(kube, path)
    return scene


def runs(kube, path):
    kind, name = path.stem.partition("-")[0], path.stem.partition("-")[2]
    kube.kubectl("apply", "-f", "-", text=json.dumps(with_accelerator(kube, path)))
    try:
        kube.wait("phase Running", lambda: kube.phase(name) == "Running")
        if kind == "vm":
            kube.wait("the word Running", lambda: kube.printed(name) == "Running")
        kube.kubectl("wait", "--for=condition=Ready", f"{kind}/{name}", "--timeout=180s")
        kube.says(name, SAYS[path.stem])
    finally:
        kube.recorder.note("removal", machine=f"{NAMESPACE}/{name}")
        kube.kubectl("delete", "-f", path, "--wait=false")
        kube.is_gone(name)


def with_accelerator(kube, path):
    """The objects of a file. The firmware's guest runs as it is: under KVM where there is one."""
    text, items = kube.kubectl("create", "--dry-run=client", "-o", "json", "-f", path), []
    while text := text.strip():
        each, end = json.JSONDecoder().raw_decode(text)
        items.append(each)
        text = text[end:]
    for each in items:
        holder = each["spec"]["template"] if each["kind"] == "VirtualMachine" else each
        if each["kind"].startswith("VirtualMachine") and (path.stem != FIRMWARE or not os.path.exists("/dev/kvm")):
            holder.setdefault("metadata", {}).setdefault("annotations", {}).update(TCG)
    return {"apiVersion": "v1", "kind": "List", "items": items}


def load(kube, name):
    layout = CACHE / "images" / name
    if not layout.exists():
        raise Skipped(f"{layout} is missing: scripts/guest-{name.partition('-')[0]} makes it")
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        subprocess.run(["tar", "-C", layout, "-cf", archive.name, "."], check=True)
        kube.cluster("load", archive.name)


@contextlib.contextmanager
def volume(kube, name):
    """One that fits the example's claim; nothing here makes them by itself."""
    with tempfile.TemporaryDirectory(prefix="gbvol-", dir="/srv") as work:
        os.chmod(work, 0o755)
        directory = pathlib.Path(work, "claim")
        directory.mkdir()
        os.chown(directory, QEMU_USER, QEMU_USER)
        kube.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "64Mi"}, "hostPath": {"path": str(directory)},
            "claimRef": {"namespace": NAMESPACE, "name": name}}})
        try:
            yield directory
        finally:
            kube.kubectl("delete", "pv", name, "--wait=false")
