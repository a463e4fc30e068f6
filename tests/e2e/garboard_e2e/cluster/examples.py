"""The files of examples/ on a cluster: as they are, those with a Linux guest with one annotation more (objects.TCG)."""

import json
import os
import pathlib

from ..guests import BOOTSECTOR, HELLO_PC
from .kube import Kube
from .names import Object
from .objects import TCG

FIRMWARE = "vmi-firmware"
# What the guest prints.
ADDRESS = "garboard-hello: address"
PRINTS = {
    "vm-bridge": ADDRESS,
    "vm-configmap": ADDRESS,
    "vm-efi": ADDRESS,
    "vm-hello": ADDRESS,
    "vm-instancetype": ADDRESS,
    "vm-multi-disk": ADDRESS,
    "vm-ports": "garboard-hello: httpd",
    "vm-pvc": ADDRESS,
    FIRMWARE: "garboard-boot: counted",
    "vmi-minimal": "garboard-hello: userspace",
    "vmpool-web": "garboard-hello: httpd",
}
# Machines that a pool makes.
MACHINES = {"vmpool-web": ["web-0", "web-1"]}
# The kinds of examples that start guests.
OF_GUESTS = ("VirtualMachine", "VirtualMachineInstance", "VirtualMachinePool")
# Why a file is not for this cluster; the reason is printed.
NOT_HERE = {
    "vm-debian-cloudinit": "its guest takes a quarter of an hour where vCPUs are interpreted;"
    " `debian` boots it on the bare host",
}
# Claims that nothing here makes a volume for, and guests beside the hello guest.
CLAIMS = {"vm-efi": "persistent-state-for-efi", "vm-pvc": "hello-data", "vm-multi-disk": "multi-disk-data"}
IMAGES = {"vm-multi-disk": HELLO_PC, FIRMWARE: BOOTSECTOR}


def with_accelerator(kube: Kube, path: pathlib.Path) -> list[Object]:
    """The objects of a file. The firmware's guest runs as it is: under KVM where there is one."""
    text, items = kube.kubectl("create", "--dry-run=client", "-o", "json", "-f", path).strip(), []
    while text:
        each, end = json.JSONDecoder().raw_decode(text)
        items.append(each)
        text = text[end:].strip()
    runs_as_it_is = path.stem == FIRMWARE and os.path.exists("/dev/kvm")
    for each in items:
        if each["kind"] in OF_GUESTS and not runs_as_it_is:
            holder(each).setdefault("metadata", {}).setdefault("annotations", {}).update(TCG)
    return items


def holder(each: Object) -> Object:
    """What has the annotations of the instances."""
    if each["kind"] == "VirtualMachineInstance":
        return each
    whole = each["spec"]["virtualMachineTemplate"] if each["kind"] == "VirtualMachinePool" else each
    found: Object = whole["spec"]["template"]
    return found
