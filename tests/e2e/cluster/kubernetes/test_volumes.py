"""Volumes as a guest on a cluster sees them: claims keep, the others do not. One claim is a directory and one a loop
device."""

import re
from collections.abc import Iterator

import pytest

from garboard_e2e.cluster import volumes
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import MIB, NAMESPACE, NODE_1, Object
from garboard_e2e.cluster.objects import claim, machine

NAME = "disks"
OF_DISKS = [
    {"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}},
    {"name": "raw", "persistentVolumeClaim": {"claimName": "raw"}},
    {"name": "empty", "emptyDisk": {"capacity": "16Mi"}},
    {"name": "settings", "configMap": {"name": "settings"}},
    {"name": "token", "secret": {"secretName": "token"}},
    {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "seed"}}},
]
SOURCES: dict[tuple[str, str], Object] = {
    ("ConfigMap", "settings"): {"data": {"greeting": "hello"}},
    ("Secret", "token"): {"stringData": {"token": "hidden"}},
    ("Secret", "seed"): {"stringData": {"userdata": "#cloud-config\nhostname: seeded\n"}},
}


def sources() -> list[Object]:
    return [
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}} | content
        for (kind, name), content in SOURCES.items()
    ]


@pytest.fixture(scope="module")
def disks(kube: Kube) -> Iterator[str]:
    """A machine with a volume of each kind, whose shell has `disk` and `disc`."""
    with volumes.directory() as directory, volumes.device() as device:
        claims = [*claim("kept", str(directory)), *claim("raw", device, node=NODE_1, block=True)]
        kube.apply(*claims, *sources())
        try:
            kube.start(machine(NAME, node=NODE_1, volumes=OF_DISKS))
            volumes.learn(kube, NAME)
            yield NAME
        finally:
            kube.remove(NAME)
            for each in ("kept", "raw"):
                volumes.remove_claim(kube, each)


def guest(kube: Kube, command: str) -> str:
    return kube.shell(NAME, command).strip()


def test_the_guest_sees_every_volume_with_its_size_and_content(kube: Kube, disks: str) -> None:
    hardware = guest(kube, "hardware")
    found = re.findall(r"^disk \w+ bytes=(\d+) ro=\d serial=(\w+)", hardware, re.M)
    sizes = {name: int(size) / MIB for size, name in found}
    assert sizes["raw"] == 64 and sizes["empty"] == 16 and 56 < sizes["kept"] <= 64, f"the guest sees\n{hardware}"
    wanted = {"settings greeting": "hello", "token token": "hidden", "seed user-data": "hostname: seeded"}
    for file, text in wanted.items():
        assert text in (content := guest(kube, f"disc {file}")), f"{file} holds {content!r}"


def test_an_empty_disk_has_an_end(kube: Kube, disks: str) -> None:
    guest(kube, "dd if=/dev/zero of=$(disk empty) bs=1M count=16 conv=fsync")
    kube.shell(NAME, "dd if=/dev/zero of=$(disk empty) bs=1M seek=16 count=1 conv=fsync", code=1)


def test_volume_status_describes_claims(kube: Kube, disks: str) -> None:
    status = kube.status_of("vmi", NAME)["volumeStatus"]
    found = {each["name"]: each.get("persistentVolumeClaimInfo") for each in status}
    size = {"storage": "64Mi"}
    common = {"accessModes": ["ReadWriteOnce"], "capacity": size, "requests": size}
    wanted: dict[str, Object | None] = {
        "kept": common | {"claimName": "kept", "volumeMode": "Filesystem", "filesystemOverhead": "0.055"},
        "raw": common | {"claimName": "raw", "volumeMode": "Block"},
        "empty": None,
    }
    assert {name: found.get(name) for name in wanted} == wanted
    names = [each["name"] for each in status]
    assert names == sorted(names) and {each["name"] for each in OF_DISKS} <= set(names), names
    snapshots = kube.status_of("vm", NAME)["volumeSnapshotStatuses"]
    assert sorted(each["name"] for each in snapshots) == names, snapshots
    assert not any(each.get("enabled") for each in snapshots), snapshots


@pytest.mark.parametrize("name", ["kept", "raw"])
def test_another_machine_with_the_same_claim_reports_why_it_gets_none(kube: Kube, disks: str, name: str) -> None:
    """QEMU's locks see a file, not a device that each container has a node of its own for."""
    second = f"second-{name}"
    volume = {"name": name, "persistentVolumeClaim": {"claimName": name}}
    kube.apply(machine(second, "Once", node=NODE_1, volumes=[volume]))
    message = kube.wait(
        f"an end of {second}", lambda: kube.condition("vmi", second, "garboard.dev/Ended").get("message", "")
    )
    assert "in use by another running VM" in message, f"a second writer of {name} ends with {message!r}"


def test_after_a_restart_claims_have_what_was_written_and_an_empty_disk_has_not(kube: Kube, disks: str) -> None:
    for name in ("kept", "raw", "empty"):
        guest(kube, f"echo written-to-{name} | dd of=$(disk {name}) conv=fsync")
    uid = kube.runs(NAME)
    kube.kubectl("delete", f"vmi/{NAME}", "--wait=false")
    kube.runs(NAME, not_this=uid)
    volumes.learn(kube, NAME)
    found = {
        name: f"written-to-{name}" in guest(kube, f"head -c 20 $(disk {name})") for name in ("kept", "raw", "empty")
    }
    assert found == {"kept": True, "raw": True, "empty": False}
