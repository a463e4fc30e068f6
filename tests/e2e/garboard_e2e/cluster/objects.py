"""Manifests that tests apply. Pure."""

from typing import Any

from ..guests import BOOTSECTOR, DEBIAN, HELLO, PATIENT
from .names import INSTALLED_IN, NAMESPACE, Object

# As a new user has them: all by default.
SETTINGS: Object = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "KubeVirt",
    "metadata": {"name": "kubevirt", "namespace": INSTALLED_IN},
    "spec": {},
}
# On a machine whose KVM interprets guest code an ordinary kernel takes hours to boot: Linux guests ask for TCG.
TCG = {"garboard.dev/accelerator": "tcg"}


def machine(
    name: str,
    strategy: str | bool = "Always",
    tests: str = "httpd",
    node: str | None = None,
    **more: Any,
) -> Object:
    """The hello guest as a VirtualMachine; `more` goes into the instance's specification, `volumes` beside its disks.
    With a strategy that is true or false it has `running` and no `runStrategy`."""
    container = {"image": HELLO, "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"}
    arguments = f"console=ttyS0 quiet {PATIENT} garboard.test={tests}"
    disks: list[Object] = []
    devices = {"interfaces": [{"name": "default", "masquerade": {}}], "rng": {}, "disks": disks}
    spec: Object = {
        "domain": {
            "cpu": {"cores": 1},
            "memory": {"guest": "128Mi"},
            "firmware": {"kernelBoot": {"kernelArgs": arguments, "container": container}},
            "devices": devices,
        },
        "networks": [{"name": "default", "pod": {}}],
        "terminationGracePeriodSeconds": 20,
        "volumes": [],
    }
    for volume in more.pop("volumes", []):
        disks.append({"name": volume["name"], "serial": volume["name"], "disk": {"bus": "virtio"}})
        spec["volumes"].append(volume)
    spec |= more | on(node)
    template = {"metadata": {"labels": {"app": name}, "annotations": dict(TCG)}, "spec": spec}
    wanted = {"running": strategy} if isinstance(strategy, bool) else {"runStrategy": strategy}
    return virtual_machine(name, wanted | {"template": template})


def firmware(name: str, node: str) -> Object:
    """The guest of examples/vmi-firmware.yaml as a VirtualMachine; nothing in it names an accelerator or CPU model."""
    devices = {
        "autoattachGraphicsDevice": False,
        "autoattachMemBalloon": False,
        "autoattachPodInterface": False,
        "disableHotplug": True,
        "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
    }
    spec = {
        "domain": {"memory": {"guest": "64Mi"}, "cpu": {"sockets": 1, "maxSockets": 1}, "devices": devices},
        "terminationGracePeriodSeconds": 60,
        "volumes": [{"name": "root", "containerDisk": {"image": BOOTSECTOR}}],
    } | on(node)
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    return virtual_machine(name, {"runStrategy": "Always", "template": template})


def debian(name: str, key: str, strategy: str = "Always") -> Object:
    """The guest of examples/vm-debian-cloudinit.yaml as a VirtualMachine; a user `debian` with this public key."""
    container = {"image": DEBIAN, "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"}
    arguments = f"console=ttyS0 quiet {PATIENT}"
    user_data = f"""#cloud-config
hostname: {name}
users:
  - name: debian
    shell: /bin/bash
    sudo: ALL=(ALL) NOPASSWD:ALL
    ssh_authorized_keys:
      - {key}
runcmd:
  - echo "cloud-init was here" >/dev/ttyS0
"""
    names = ["root", "cloudinit"]
    devices = {
        "interfaces": [{"name": "default", "masquerade": {}}],
        "rng": {},
        "disks": [{"name": each, "disk": {"bus": "virtio"}} for each in names],
    }
    sources = [{"containerDisk": {"image": DEBIAN}}, {"cloudInitNoCloud": {"userData": user_data}}]
    spec = {
        "domain": {
            "cpu": {"cores": 2},
            "memory": {"guest": "1Gi"},
            "firmware": {"kernelBoot": {"kernelArgs": arguments, "container": container}},
            "devices": devices,
        },
        "networks": [{"name": "default", "pod": {}}],
        "terminationGracePeriodSeconds": 60,
        "volumes": [{"name": each} | source for each, source in zip(names, sources, strict=True)],
    }
    template = {"metadata": {"labels": {"app": name}, "annotations": dict(TCG)}, "spec": spec}
    return virtual_machine(name, {"runStrategy": strategy, "template": template})


def virtual_machine(name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": spec}


def on(node: str | None) -> Object:
    return {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}


def claim(name: str, path: str, node: str | None = None, block: bool = False, size: str = "64Mi") -> list[Object]:
    """A claim and, by hand because this cluster has no storage class, the volume it is bound to: a directory or a block
    device of the host, which both nodes see; with `node` only that one may use it."""
    mode = "Block" if block else "Filesystem"
    of_host = {"hostPath": {"path": path, "type": "BlockDevice" if block else "Directory"}}
    source = {"local": {"path": path}} if node else of_host
    common = {"accessModes": ["ReadWriteOnce"], "volumeMode": mode, "storageClassName": ""}
    more = {
        "capacity": {"storage": size},
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": NAMESPACE, "name": name},
    }
    volume: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": common | source | more,
    }
    if node:
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    wanted = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": common | {"volumeName": name, "resources": {"requests": {"storage": size}}},
    }
    return [volume, wanted]
