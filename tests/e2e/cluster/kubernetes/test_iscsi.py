"""Disks on iSCSI, opened by QEMU's own driver: a real target (Debian's tgt), without CHAP and with it."""

import pathlib
from collections.abc import Iterator

import pytest

from garboard_e2e.cluster import iscsi, volumes
from garboard_e2e.cluster.iscsi import PASSWORD, UNITS, Target
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import MIB, NAMESPACE, NODE_2
from garboard_e2e.cluster.objects import machine

NAME = "on-iscsi"


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
    kube.apply(machine(NAME, "Always", node=NODE_2, volumes=[target.volume("secured", "wrong-chap")]))

    def reported() -> bool:
        events = kube.items("events", "--field-selector", f"involvedObject.name={NAME}", namespace=NAMESPACE)
        return any("iscsi" in str(event.get("message", "")).lower() for event in events)

    kube.ask_until("an event about iSCSI", reported)
    assert kube.phase(NAME) != "Running"
