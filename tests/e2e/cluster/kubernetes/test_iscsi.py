"""Disks on iSCSI, opened by QEMU's own driver: a real target (Debian's tgt), without CHAP and with it."""

import json
import pathlib
from collections.abc import Iterator

import pytest

from garboard_e2e.cluster import iscsi, volumes
from garboard_e2e.cluster.iscsi import PASSWORD, UNITS, Target
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import MIB, NAMESPACE, NODE_2, Object
from garboard_e2e.cluster.objects import machine

NAME, LOCKED_OUT = "with-units", "locked-out"


@pytest.fixture(scope="module")
def target(kube: Kube) -> Iterator[Target]:
    with iscsi.target(kube) as target:
        kube.apply(iscsi.secret("chap"), iscsi.secret("wrong-chap", "another-password"))
        yield target
        kube.kubectl("delete", "secret/chap", "secret/wrong-chap", "--ignore-not-found")


def test_a_guest_reads_and_writes_units_with_and_without_chap(kube: Kube, target: Target) -> None:
    disks = [target.volume("plain"), target.volume("secured", "chap")]
    kube.start(machine(NAME, node=NODE_2, volumes=disks))
    volumes.learn(kube, NAME)
    hardware = kube.shell(NAME, "hardware")
    for name, (_, size) in UNITS.items():
        assert f"bytes={size * MIB} ro=0 serial={name}" in hardware, hardware
        kube.shell(NAME, f"printf of-{name} | dd of=$(disk {name}) bs=512 conv=sync,fsync")
        assert target.file(name).read_bytes()[:64].rstrip(b"\0") == f"of-{name}".encode()
    for process in kube.processes(NAME, "qemu-system"):
        command = pathlib.Path(f"/proc/{process}/cmdline").read_bytes()
        assert b'"driver":"iscsi"' in command and PASSWORD.encode() not in command
    pod = kube.kubectl("get", f"pod/{kube.pod_name(NAME)}", "-o", "yaml")
    assert PASSWORD not in pod and PASSWORD not in kube.kubectl("logs", kube.pod_name(NAME), "-c", "launcher")


def test_what_was_written_is_there_at_the_next_start(kube: Kube, target: Target) -> None:
    with target.file("plain").open("r+b") as unit:
        unit.write(b"kept")
    kube.start(machine(NAME, node=NODE_2, volumes=[target.volume("plain")]))
    volumes.learn(kube, NAME)
    assert kube.shell(NAME, "dd if=$(disk plain) bs=4 count=1 2> /dev/null").strip() == "kept"


def test_a_wrong_password_is_the_cause_of_a_failed_start(kube: Kube, target: Target) -> None:
    kube.apply(machine(LOCKED_OUT, node=NODE_2, volumes=[target.volume("secured", "wrong-chap")]))

    def reported() -> bool:
        events = kube.items("events", "--field-selector", f"involvedObject.name={LOCKED_OUT}")
        # QEMU's own sentence.
        return any("iSCSI: Failed to connect" in str(event.get("message", "")) for event in events)

    kube.ask_until("an event about iSCSI", reported)
    assert kube.phase(LOCKED_OUT) != "Running"


def of_libvirt(target: Target) -> Object:
    """The object of KubeVirt's first glossary, with the address of this target."""
    disk = {
        "type": "network",
        "snapshot": "external",
        "device": "disk",
        "driver": {"name": "qemu", "type": "raw", "cache": "none"},
        "source": {
            "host": {"name": target.address, "port": str(iscsi.PORT)},
            "protocol": "iscsi",
            "name": f"{iscsi.iqn('plain')}/1",
        },
        "target": {"dev": "vda"},
    }
    domain = {
        "devices": {"disks": [disk]},
        "memory": {"unit": "MB", "value": 64},
        "os": {"type": {"os": "hvm"}},
        "type": "qemu",
    }
    head = {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "metadata": {"name": "testvm"}}
    return head | {"spec": {"domain": domain}}


@pytest.mark.long
def test_a_machine_of_the_first_glossary_runs_now_and_reads_back(kube: Kube, target: Target) -> None:
    written = of_libvirt(target)
    kube.apply(written)
    kube.runs("testvm")
    path = f"/apis/kubevirt.io/v1alpha1/namespaces/{NAMESPACE}/virtualmachines/testvm"
    again = json.loads(kube.kubectl("get", "--raw", path, namespace=None))
    assert again["spec"] == written["spec"], again["spec"]
    assert kube.get("virtualmachines.v1.kubevirt.io/testvm")["spec"]["runStrategy"] == "Once"
    kube.will_go("testvm")
    kube.kubectl("delete", "--raw", path, namespace=None)
    kube.is_removed("testvm")


def test_what_the_first_version_cannot_express_is_refused_by_its_path(kube: Kube, target: Target) -> None:
    wrong = of_libvirt(target)
    wrong["spec"]["domain"]["devices"]["disks"][0]["type"] = "file"
    refusal = kube.kubectl("create", "-f", "-", text=json.dumps(wrong), code=1)
    assert "spec.domain.devices.disks[0].type" in refusal and "`network`" in refusal, refusal
