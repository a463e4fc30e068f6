"""What kubectl shows of a machine that runs, and of its end."""

import json
import os
import signal
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import SIDECAR
from garboard_e2e.cluster.objects import machine

NAME = "shown"
# What the log of a launcher has, in this order.
STORY = [
    "the plan is made",
    "interface plumbed",
    "the machine is prepared",
    "QEMU was executed",
    "QEMU's monitor answered",
    "the guest runs",
    "the run is over",
]


@pytest.fixture(scope="module")
def runs(kube: Kube) -> Iterator[str]:
    """A machine that runs once."""
    kube.start(machine(NAME, "Once"))
    yield NAME
    kube.remove(NAME)


@pytest.fixture(scope="module")
def crashed(kube: Kube, runs: str) -> str:
    """The same, when its QEMU has crashed and kubectl has waited for that."""
    os.kill(kube.qemu(NAME), signal.SIGSEGV)
    kube.kubectl("wait", "--for=jsonpath={.status.phase}=Failed", f"vmi/{NAME}", "--timeout=180s")
    kube.kubectl("wait", "--for=condition=Ready=false", f"vm/{NAME}", "--timeout=180s")
    return runs


# The first test that it has: the next one ends the machine.
def test_kubectl_get_and_wait_show_a_machine_that_runs(kube: Kube, runs: str) -> None:
    for what in (f"vm/{NAME}", f"vmi/{NAME}", f"pod/{kube.pod_name(NAME)}"):
        kube.kubectl("wait", "--for=condition=Ready", what, "--timeout=180s")
    row = kube.kubectl("get", f"vm/{NAME}", "--no-headers").split()
    assert row[0] == NAME and row[2:4] == ["Running", "True"], f"kubectl get vm prints {row}"
    wanted = ["Running", kube.address(NAME), kube.status_of("vmi", NAME)["nodeName"], "True"]
    row = kube.kubectl("get", f"vmi/{NAME}", "--no-headers").split()
    assert row[2:6] == wanted, f"kubectl get vmi prints {row}, and it is {wanted}"


def describes_the_end(kube: Kube) -> str:
    described = kube.kubectl("describe", f"vmi/{NAME}")
    is_there = "QemuCrashed" in described and "Stopped " in described.partition("Events:")[2]
    return described if is_there else ""


def test_kubectl_describe_shows_a_machine_s_whole_story(kube: Kube, crashed: str) -> None:
    described = kube.ask_until("the whole story", lambda: describes_the_end(kube))
    for text in ("SuccessfulCreate", "Started", "the guest was started", "Stopped", "signal 11"):
        assert text in described, f"kubectl describe vmi does not show {text!r}:\n{described[-1500:]}"
    pod = kube.pod_name(NAME)
    # The kubelet reports the end of a container some time after the agent did.
    kube.ask_until("QEMU's end in kubectl describe pod", lambda: "signal 11" in kube.kubectl("describe", "pod", pod))


def test_kubectl_logs_shows_the_story_line_by_line(kube: Kube, crashed: str, note: Callable[[str], None]) -> None:
    lines = kube.kubectl("logs", kube.pod_name(NAME), "-c", SIDECAR).splitlines()
    messages = [json.loads(line)["fields"]["message"] for line in lines]
    places = [messages.index(message) if message in messages else -1 for message in STORY]
    assert -1 not in places and places == sorted(places), f"the log has {messages}, not {STORY}"
    log = "\n".join(lines)
    for text in ("qemu-system-x86_64", "interface plumbed", "taps", "qmp_capabilities", "QEMU closed its monitor"):
        assert text in log, f"{text!r} is not in the log:\n{log[:3000]}"
    note(f"{len(lines)} lines")
