"""QEMU in a pod was taken over, and what the levels of QMP reach. On node-2 QEMU of the launcher's image is a program
that tries everything and then goes on as the real one. Machines there have the usual settings."""

import os
import pathlib
import re
import signal
from collections.abc import Callable

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE, NODE_2, Object
from garboard_e2e.hostile import levels, taken_over
from garboard_e2e.hostile.attackers import Attackers
from garboard_e2e.hostile.machines import Machines, supervisors
from garboard_e2e.hostile.qemu import QUESTIONS

# What is not in the pod, and what is there and closed, as QEMU in `compute` would write it.
ABSENT = [
    *("/run/garboard/order", "/run/garboard/supervisor", "/var/run/secrets", "/run/secrets", "/run/garboard-agent"),
    *("/run/garboard-agent/agent.sock", "/etc/garboard", "/var/lib/garboard", "/run/garboard-disks"),
    *("/run/garboard-container-disk", "/dev/net/tun", "/dev/vhost-net", "/dev/garboard", "/var/lib/kubelet"),
    "/run/containerd/containerd.sock",
]
CLOSED = [
    *("/", "/run", "/run/garboard", "/run/garboard/init", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"),
    *("/etc/group", "/dev/termination-log", "/dev/shm", "/dev/mqueue", "/var/cache/garboard"),
]
MOUNTS = r"/|/(proc|sys|dev)(/.*)?|/etc/(hosts|hostname|resolv\.conf)|/run/garboard/init"
SHOW = ["-c", "launcher", "--", "/usr/bin/garboard-launcher", "--show", "qemu.log"]
CONNECT = ["-c", "launcher", "--", "/usr/bin/garboard-launcher", "--connect"]
PROBE = " as a probe: only probes are answered here"


def attack_of_a_pod(kube: Kube) -> Object:
    service = kube.get("service", "kubernetes", namespace="default")["spec"]["clusterIP"]
    node = kube.get("node", NODE_2, namespace=None)["status"]["addresses"][0]["address"]
    return {
        "pod": True,
        "machine": "/run/garboard",
        "victim": "/dev/termination-log",
        "others": ABSENT,
        "closed": CLOSED,
        "mounts": MOUNTS,
        "tcp": [[service, 443], [node, 10250], [node, 10256]],
    }


def attacked(kube: Kube, machine: str) -> list[str]:
    """The end of QEMU's log, which is the attack's report."""
    log = kube.tried("exec", kube.pod_name(machine), *SHOW)
    return re.findall(r"^attack: (.*)$", log, re.M)


def test_a_qemu_gets_nothing_nor_when_its_supervisor_is_started_again(
    kube: Kube, machines: Machines, directory: pathlib.Path, note: Callable[[str], None]
) -> None:
    launcher = kube.images.directory / "launcher.tar"
    image = taken_over.written(launcher, attack_of_a_pod(kube), directory / "taken-over.tar")
    kube.cluster("load", "--node", NODE_2, image)
    try:
        machines.make("taken", NODE_2)
        machines.serves("taken")
    finally:
        kube.cluster("load", "--node", NODE_2, launcher)
    note(expect_refused(attacked(kube, "taken")))
    (supervisor,) = supervisors(kube, "taken")
    os.kill(supervisor, signal.SIGKILL)
    kube.ask_until("the second attack", lambda: any(line.startswith("later: ") for line in attacked(kube, "taken")))
    # PID 1's report arrived all the same: the machine has a supervisor, which ends it.
    kube.ask_until("another supervisor", lambda: kube.is_answered("taken"))
    stranger = "another process than PID 1 connected"
    log = ["logs", kube.pod_name("taken"), "-c", "launcher"]
    # The kubelet may be behind.
    kube.ask_until("the line on a caller that was sent away", lambda: stranger in kube.tried(*log))
    done = [line for line in attacked(kube, "taken") if "DONE" in line]
    assert not done, f"QEMU could pass for PID 1: {done}"
    machines.serves("taken")
    machines.remove("taken")


def expect_refused(report: list[str]) -> str:
    """The attack took place, and was refused throughout."""
    assert "over" in report, f"the attack did not take place: {report[-3:]}"
    done = [line for line in report if "DONE" in line]
    assert not done, f"QEMU could: {done[:5]}"
    refused = sum(line.startswith("refused") for line in report)
    assert refused >= 180, f"only {refused} attempts were refused"
    probes = sum(PROBE in line for line in report)
    asked = [line for line in report if "as a probe" in line]
    assert probes == len(QUESTIONS), f"the socket for probes refused {probes} of {len(QUESTIONS)}: {asked}"
    return f"{refused} attempts refused"


def test_a_command_of_qmp_needs_its_level_and_names_no_file_that_qemu_writes(
    kube: Kube, attackers: Attackers, honest: str
) -> None:
    """For every account that may exec into a launcher."""
    launcher = attackers.launcher_of("honest")["metadata"]["name"]
    exec_into = [kube.tool, "--kubeconfig", kube.environment["KUBECONFIG"], "-n", NAMESPACE, "exec", "-i", launcher]
    found = levels.findings([*exec_into, *CONNECT])
    assert not found, f"answered otherwise than they should be: {found}"
