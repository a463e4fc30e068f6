"""The launcher as `virsh`: what people who know libvirt ask of a machine that runs."""

import json
import os
import pathlib
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

from garboard_e2e import names
from garboard_e2e.machine import Machine
from garboard_e2e.patience import PATIENCE


class Virsh:
    """The program by libvirt's name, for the machines of one test."""

    def __init__(self, machine: Machine) -> None:
        self.program = machine.directory / "virsh"
        self.program.symlink_to(machine.programs / names.SUPERVISOR)
        self.environment = machine.environment

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [os.fspath(self.program), *arguments]
        return subprocess.run(command, env=self.environment, text=True, capture_output=True, timeout=PATIENCE)

    def run(self, *arguments: str) -> str:
        done = self.call(*arguments)
        assert done.returncode == 0, f"virsh {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def refuses(self, text: str, *arguments: str) -> None:
        done = self.call(*arguments)
        assert done.returncode == 1 and not done.stdout, f"virsh {arguments} is not refused: {done}"
        assert done.stderr.startswith("error: ") and text in done.stderr, done.stderr


@pytest.fixture
def virsh(machine: Machine) -> Virsh:
    return Virsh(machine)


def rows(table: str) -> list[list[str]]:
    """The cells below the rule; none of those here has a space in it, but a state."""
    return [line.split(maxsplit=4) for line in table.splitlines()[2:] if line.strip()]


def expect_domain(virsh: Virsh, name: str, path: pathlib.Path) -> None:
    domain = ElementTree.fromstring(virsh.run("dumpxml", name))
    assert (domain.get("id"), domain.findtext("name")) == ("1", name)
    disks = [disk.find("target") for disk in domain.iterfind("devices/disk")]
    assert [target.get("dev") for target in disks if target is not None] == ["vda"]
    sockets = [source.get("path", "") for source in domain.iterfind("devices/serial/source")]
    assert sockets == [str(path / "serial0.sock")], sockets
    assert pathlib.Path(sockets[0]).is_socket(), "the console of the domain should be there"
    assert ElementTree.fromstring(virsh.run("dumpxml", name, "--inactive")).get("id") is None


def test_a_machine_is_read_as_a_domain(machine: Machine, virsh: Virsh) -> None:
    assert virsh.run("list", "--all").splitlines()[0] == " Id   Name   State"
    machine.start()
    machine.wait_for_shell()
    name = f"default_{machine.name}"
    assert rows(virsh.run("list")) == [["1", name, "running"]]
    assert virsh.run("list", "--name").split() == [name]
    assert virsh.run("domstate", name, "--reason") == "running (booted)\n\n"
    expect_domain(virsh, name, machine.supervisor)
    (uuid,) = virsh.run("list", "--uuid").split()
    disks = rows(virsh.run("domblklist", uuid, "--details"))
    assert [disk[:3] for disk in disks] == [["file", "disk", "vda"]], disks
    (interface,) = rows(virsh.run("domiflist", "1"))
    reported = machine.reported_status()["interfaces"][0]
    assert interface[1:] == ["ethernet", "-", "virtio-non-transitional", reported["mac"]], interface
    machine.run("pause", machine.name)
    assert virsh.run("domstate", name, "--reason") == "paused (user)\n\n"
    assert rows(virsh.run("list")) == [["1", name, "paused"]]
    machine.run("stop", "--force", machine.name)


def test_qmp_is_answered_and_nothing_is_changed(machine: Machine, virsh: Virsh) -> None:
    machine.start()
    machine.wait_for_shell()
    name = f"default_{machine.name}"
    answer = json.loads(virsh.run("qemu-monitor-command", name, json.dumps({"execute": "query-status"})))
    assert answer["return"]["status"] == "running", answer
    for command in ("stop", "quit", "human-monitor-command"):
        refused = json.loads(virsh.run("qemu-monitor-command", name, json.dumps({"execute": command})))
        assert "error" in refused, f"{command} was let through: {refused}"
    assert virsh.run("domstate", name) == "running\n\n"
    virsh.refuses("doesn't support option --hmp", "qemu-monitor-command", name, "--hmp", "info status")
    virsh.refuses("kubectl garboard stop", "destroy", name)
    virsh.refuses("failed to get domain 'absent'", "domstate", "absent")
    virsh.refuses("unknown command: 'frob'", "frob")
    machine.run("stop", "--force", machine.name)
