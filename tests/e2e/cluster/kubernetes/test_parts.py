"""Parts of a machine that only a cluster has: probes, tokens, files of the node, container disks without image
volumes."""

import contextlib
import json
import os
import pathlib
import signal
import tempfile
import time
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.cluster import volumes
from garboard_e2e.cluster.examples import with_accelerator
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import COMPUTE, MIB, NAMESPACE, NODE_1, QEMU_USER, SIDECAR, Object
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.settings import gate
from garboard_e2e.guests import HELLO
from garboard_e2e.places import EXAMPLES

OPEN = "open"  # a namespace that lets pods have directories of the node
EFI_CLAIM = "persistent-state-for-efi"


def test_a_readiness_probe_is_followed(kube: Kube) -> None:
    """What serves pages answers for the guest: an instance is Ready while it does, and no longer."""
    probe = {"httpGet": {"port": 80}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 2}
    kube.start(machine("probed", readinessProbe=probe))
    ready = kube.condition("vmi", "probed", "Ready").get("status")
    assert ready != "True", "it is Ready before the probe was made for the first time"
    kube.becomes("vmi", "probed", "Ready")
    kube.has_shell("probed")
    kube.shell("probed", "killall httpd")
    kube.becomes("vmi", "probed", "Ready", "False")
    kube.shell("probed", "httpd -h /www")
    kube.becomes("vmi", "probed", "Ready")


READY, ALIVE = "asked-whether-ready", "asked-whether-alive"


@pytest.fixture(scope="module")
def asked(kube: Kube) -> Iterator[None]:
    """Machines with probes through the guest agent: by a program whether one is ready, by a ping whether one lives."""
    usual = {"periodSeconds": 1, "timeoutSeconds": 5}
    program = {"exec": {"command": ["test", "-e", "/run/ready"]}, "failureThreshold": 1}
    # The first ping comes ten seconds after the start; a guest that has not booted by then answers none.
    ping: Object = {"guestAgentPing": {}, "failureThreshold": 12}
    kube.start(
        machine(READY, tests="agent", readinessProbe=program | usual),
        machine(ALIVE, tests="agent", livenessProbe=ping | usual),
    )
    yield
    kube.remove(READY, ALIVE)


def reported(kube: Kube, reason: str, name: str) -> str:
    """The messages of all events of a reason about an object, a line each."""
    selector = f"--field-selector=reason={reason},involvedObject.name={name}"
    return "\n".join(event["message"] for event in kube.items("events", selector))


def test_a_program_in_the_guest_decides_whether_it_is_ready(kube: Kube, asked: None) -> None:
    kube.has_shell(READY)
    pod = kube.pod_name(READY)
    kube.ask_until("the guest's refusal", lambda: "the command ended with 1" in reported(kube, "Unhealthy", pod))
    assert kube.condition("vmi", READY, "Ready").get("status") == "False"
    kube.shell(READY, ": >/run/ready")
    kube.becomes("vmi", READY, "Ready")
    kube.shell(READY, "rm /run/ready")
    kube.becomes("vmi", READY, "Ready", "False")


def test_a_guest_whose_agent_is_silent_is_shut_down_and_its_strategy_goes_on(
    kube: Kube, asked: None, note: Callable[[str], None]
) -> None:
    kube.becomes("vmi", ALIVE, "AgentConnected")
    kube.has_shell(ALIVE)
    uid, pod = kube.runs(ALIVE), kube.pod_name(ALIVE)
    kube.becomes("vmi", ALIVE, "Ready")
    # Its agent goes, and the guest runs on.
    kube.shell(ALIVE, "killall behaviours")
    began = time.monotonic()
    kube.wait("the guest's end", lambda: kube.uid(ALIVE) != uid or kube.phase(ALIVE) in ("Succeeded", "Failed"))
    note(f"it ended {time.monotonic() - began:.0f} s after its agent")
    kube.runs(ALIVE, not_this=uid)
    probes = reported(kube, "Unhealthy", pod)
    assert "Liveness probe failed" in probes and "no guest agent is connected" in probes, probes
    kube.ask_until("its cause", lambda: "StoppedGracefully: " in reported(kube, "Stopped", ALIVE))


def test_service_account_labels_and_network_data_are_discs(kube: Kube) -> None:
    network = {"version": 1, "config": [{"type": "physical", "name": "eth0", "subnets": [{"type": "dhcp"}]}]}
    metadata = {"name": "wires", "namespace": NAMESPACE}
    data = {"networkdata": json.dumps(network)}
    kube.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})
    labels = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
    seed = {"userData": "#cloud-config\n", "networkDataSecretRef": {"name": "wires"}}
    discs = [
        {"name": "account", "serviceAccount": {"serviceAccountName": "default"}},
        {"name": "labels", "downwardAPI": {"fields": labels}},
        {"name": "seed", "cloudInitNoCloud": seed},
    ]
    kube.start(machine("discs", volumes=discs))
    volumes.learn(kube, "discs")
    wanted = {
        "account namespace": NAMESPACE,
        "account token": "ey",
        "account ca.crt": "BEGIN CERTIFICATE",
        "labels labels": 'app="discs"',
        "seed network-config": "physical",
    }
    for file, text in wanted.items():
        assert text in (found := kube.shell("discs", f"disc {file}")), f"{file} holds {found[:300]!r}"
    containers = {each["name"]: each["volumeMounts"] for each in kube.pod("discs")["spec"]["containers"]}
    paths = [mount["mountPath"] for mount in containers[COMPUTE]]
    assert not any("account" in path for path in paths), f"QEMU's container has the token: {paths}"


@pytest.mark.long
def test_firmware_keeps_its_variables_in_a_claim_that_goes_with_its_machine(
    kube: Kube, held: contextlib.ExitStack
) -> None:
    """Made with the machine, there while it is stopped."""
    directory = held.enter_context(volumes.volume(kube, EFI_CLAIM))
    kube.apply(*with_accelerator(kube, EXAMPLES / "vm-efi.yaml"))
    first = kube.runs("efi")
    kube.prints("efi", "garboard-hello: address")
    kept = pathlib.Path(directory, "efi-vars.fd").stat()
    kube.patch("vm/efi", {"spec": {"runStrategy": "Halted"}})
    kube.is_gone("efi")
    kube.kubectl("get", "pvc", EFI_CLAIM)
    kube.patch("vm/efi", {"spec": {"runStrategy": "Always"}})
    kube.runs("efi", not_this=first)
    kube.prints("efi", "garboard-hello: address")
    again = pathlib.Path(directory, "efi-vars.fd").stat()
    assert (again.st_ino, again.st_size) == (kept.st_ino, kept.st_size)
    kube.remove("efi")
    kube.kubectl("wait", "--for=delete", f"pvc/{EFI_CLAIM}", "--timeout=180s")


@pytest.fixture
def host_disks(kube: Kube, held: contextlib.ExitStack) -> Iterator[pathlib.Path]:
    """A directory for files of the node, while the gate for them is on."""
    with tempfile.TemporaryDirectory(prefix="gbhost-", dir="/srv") as work, gate(kube, "HostDisk", "featureGates"):
        os.chown(work, QEMU_USER, QEMU_USER)
        yield pathlib.Path(work)


@pytest.fixture
def open_namespace(kube: Kube) -> Iterator[str]:
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPEN}}, namespace=None)
    yield OPEN
    kube.will_go("hostdisk", namespace=OPEN)
    kube.kubectl("delete", "vm", "hostdisk", "--ignore-not-found", "--wait=false", namespace=OPEN)
    # Its guest has not booted, and would ignore its power button.
    for process in [each for each in kube.recorder.running if each["machine"] == f"{OPEN}/hostdisk"]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process["pid"], signal.SIGKILL)
    # Before its namespace: Kubernetes looks again only after half of the time that a pod in it has for its end.
    kube.wait("the end of its pod", lambda: not kube.there("vmi", "hostdisk", OPEN) and not kube.pods("hostdisk"))
    kube.kubectl("delete", "namespace", OPEN, "--wait=false", namespace=None)


def test_a_file_of_the_node_is_a_disk_where_a_namespace_allows_it(
    kube: Kube, host_disks: pathlib.Path, open_namespace: str
) -> None:
    path = host_disks / "disk.img"
    disk = {"path": str(path), "type": "DiskOrCreate", "capacity": "8Mi"}
    vm = machine("hostdisk", node=NODE_1, volumes=[{"name": "data", "hostDisk": disk}])
    # Where Pod Security forbids directories of the node, the API server's message is in the status.
    kube.apply(vm)
    kube.says_of_itself("vmi", "hostdisk", "Synchronized", "hostPath")
    kube.remove("hostdisk")
    vm["metadata"]["namespace"] = open_namespace
    kube.apply(vm, namespace=open_namespace)
    running = ["wait", "--for=jsonpath={.status.phase}=Running", "vmi/hostdisk", "--timeout=120s"]
    kube.ask_until("an instance", lambda: kube.there("vmi", "hostdisk", open_namespace))
    kube.kubectl(*running, namespace=open_namespace)
    there = path.stat()
    assert (there.st_size, there.st_uid) == (8 * MIB, QEMU_USER)


def test_container_disks_come_without_image_volumes(kube: Kube, note: Callable[[str], None]) -> None:
    """A kernel and a disk out of images, each opened by a program of ours in a container of that image."""
    with gate(kube, "ImageVolume", "disabledFeatureGates"):
        kube.start(machine("helped", volumes=[{"name": "root", "containerDisk": {"image": HELLO}}]))
    spec = kube.pod("helped")["spec"]
    assert not any("image" in volume for volume in spec["volumes"]), "its pod has image volumes"
    helpers = [each["name"] for each in spec["initContainers"] if each["name"] != SIDECAR]
    volumes.learn(kube, "helped")
    hardware = kube.shell("helped", "hardware")
    assert "serial=root" in hardware, f"the guest sees\n{hardware}"
    note(f"init containers {', '.join(helpers)}")
