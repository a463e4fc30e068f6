"""What else virtctl does: it makes manifests, expands and exposes machines, and reads the KubeVirt object."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, NAMESPACE, NODE_2, Object
from garboard_e2e.cluster.objects import TCG, machine
from garboard_e2e.cluster.person import Tool
from garboard_e2e.cluster.virtctl import connected, is_paused, written
from garboard_e2e.cluster.virtctl import virtctl as client
from garboard_e2e.guests import HELLO
from garboard_e2e.outcome import Failure
from garboard_e2e.patience import PATIENCE
from garboard_e2e.rfb import Viewer
from garboard_e2e.terminal import DETACH

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPYcrQEP7VVbltAmyNcITpNDJvN8o4DCmRJGeYRk65tB example"


@pytest.fixture(scope="module")
def virtctl(kube: Kube) -> Tool:
    return client(kube)


@pytest.fixture(scope="module")
def serving(kube: Kube) -> Iterator[str]:
    """A machine that serves a page."""
    name = "exposed"
    kube.start(machine(name))
    kube.prints(name, "garboard-hello: httpd")
    yield name
    kube.remove(name)


# ---- manifests


def test_a_machine_that_virtctl_has_written_runs(kube: Kube, virtctl: Tool) -> None:
    disk = f"--volume-containerdisk=name:boot,src:{HELLO},bootorder:1"
    login = ["--user=sailor", f"--ssh-key={KEY}"]
    size = ["--memory=128Mi", "--run-strategy=Manual", "--termination-grace-period=5"]
    manifest = virtctl.run("create", "vm", "--name=written", *size, disk, *login)
    kube.kubectl("create", "-f", "-", text=manifest)
    spec = kube.get("vm", "written")["spec"]["template"]["spec"]
    assert [volume["name"] for volume in spec["volumes"]] == ["boot", "cloudinitdisk"], spec
    assert "sailor" in spec["volumes"][1]["cloudInitNoCloud"]["userData"], spec
    # The accelerator alone is this cluster's, whose KVM may interpret guest code.
    kube.patch("vm/written", {"spec": {"template": {"metadata": {"annotations": dict(TCG)}}}})
    virtctl.run("start", "written")
    kube.runs("written")


def test_what_virtctl_writes_without_options_is_taken(kube: Kube, virtctl: Tool) -> None:
    manifest = virtctl.run("create", "vm", "--name=bare", "--run-strategy=Halted")
    kube.kubectl("create", "-f", "-", text=manifest)
    kube.shows("bare", "Stopped")


def test_what_virtctl_infers_from_a_claim_that_does_not_exist_is_refused(kube: Kube, virtctl: Tool) -> None:
    """Unless it is asked not to infer."""
    size, volume = "--memory=128Mi", "--volume-pvc=src:somewhere"
    refusals = {
        (volume,): "spec.instancetype",
        (size, volume): "spec.preference",
    }
    head = ["create", "vm", "--name=typed", "--run-strategy=Halted"]
    for options, path in refusals.items():
        refused = kube.kubectl("create", "-f", "-", text=virtctl.run(*head, *options), code=1)
        assert path in refused, f"{options}: {refused}"
    taken = virtctl.run(*head, size, volume, "--infer-preference=false")
    kube.kubectl("create", "-f", "-", text=taken)


# ---- expansion


def test_virtctl_expands_a_machine_of_a_file(virtctl: Tool) -> None:
    manifest = machine("carried", "Halted")
    done = virtctl.call("expand", "--file", "-", text=yaml.safe_dump(manifest))
    assert done.returncode == 0, done.stderr
    expanded = yaml.safe_load(done.stdout)
    assert expanded["metadata"]["name"] == "carried" and expanded["metadata"]["namespace"] == NAMESPACE, expanded
    assert written(expanded["spec"]["template"])["spec"]["domain"]["memory"] == {"guest": "128Mi"}, expanded


def test_what_cannot_be_expanded_is_reported(kube: Kube, virtctl: Tool) -> None:
    elsewhere = machine("carried", "Halted")
    elsewhere["metadata"]["namespace"] = "default"
    typed = machine("carried", "Halted")
    typed["spec"]["instancetype"] = {"name": "u1.small"}
    table: list[tuple[Object, str]] = [
        (elsewhere, f"VM namespace must be empty or {NAMESPACE}"),
        (typed, 'virtualmachineclusterinstancetypes.instancetype.kubevirt.io "u1.small" not found'),
    ]
    for manifest, text in table:
        refused = virtctl.call("expand", "--file", "-", text=json.dumps(manifest))
        assert refused.returncode != 0 and text in refused.stderr, refused.stderr
    missing = virtctl.call("expand", "--vm", "nothing")
    assert missing.returncode != 0 and '"nothing" not found' in missing.stderr, missing.stderr


# ---- services


@pytest.mark.parametrize("kind", ["vm", "vmi"])
def test_virtctl_exposes_a_machine(kube: Kube, virtctl: Tool, serving: str, kind: str) -> None:
    service = f"{serving}-{kind}"
    try:
        printed = virtctl.run("expose", kind, serving, "--name", service, "--port", "8080", "--target-port", "80")
        assert f"Service {service} successfully created for {kind} {serving}" in printed
        address = kube.get("service", service)["spec"]["clusterIP"]
        assert "garboard-hello" in kube.page(f"{address}:8080", NODE_2)
    finally:
        kube.kubectl("delete", "service", service, "--ignore-not-found")


# ---- what else it asks


def first_line(proxy: subprocess.Popen[str]) -> str:
    if proxy.stdout is None or not (line := proxy.stdout.readline()):
        raise Failure(f"virtctl ended with {proxy.wait()} before it printed a line")
    return line


def test_virtctl_says_at_which_port_the_screen_is(kube: Kube, virtctl: Tool, serving: str) -> None:
    proxy = virtctl.begin("vnc", serving, "--proxy-only", stdout=subprocess.PIPE)
    try:
        printed: dict[str, Any] = json.loads(first_line(proxy))
        viewer = Viewer(kube.ask_until("virtctl listens", lambda: connected(printed["port"])), PATIENCE)
        assert viewer.picture() >= viewer.width * viewer.height
        viewer.close()
    finally:
        proxy.terminate()
        proxy.wait()


def test_a_console_that_is_asked_for_too_early_is_waited_for(kube: Kube, virtctl: Tool) -> None:
    """While its instance does not run it is refused with 400, and virtctl asks again."""
    kube.apply(machine("early", "Manual"))
    virtctl.run("start", "early")
    kube.wait("an instance", lambda: kube.there("vmi", "early"))
    terminal = virtctl.terminal("console", "early")
    terminal.expect("Successfully connected", PATIENCE)
    kube.has_shell("early")
    terminal.type(b"\recho product-$((6*7))\r")
    terminal.expect("product-42", PATIENCE)
    terminal.type(DETACH)
    terminal.expect_end(PATIENCE)


def test_virtctl_pauses_a_machine_by_its_name_and_a_dry_run_does_not(kube: Kube, virtctl: Tool, serving: str) -> None:
    virtctl.run("pause", "vm", serving, "--dry-run")
    assert not is_paused(kube, serving)
    virtctl.run("pause", "vm", serving)
    kube.becomes("vmi", serving, "Paused")
    virtctl.run("unpause", "vm", serving, "--dry-run")
    assert is_paused(kube, serving)
    virtctl.run("unpause", "vm", serving)
    kube.ask_until("the guest runs on", lambda: not is_paused(kube, serving))


def test_virtctl_reads_the_kubevirt_object(virtctl: Tool) -> None:
    printed = virtctl.run("permitted-devices", "--namespace", INSTALLED_IN)
    assert "Permitted Devices:" in printed and "GPU Devices:" in printed, printed


def test_virtctl_tells_both_versions(virtctl: Tool) -> None:
    printed = virtctl.run("version")
    assert printed.startswith("Client Version: ") and 'GitVersion:"v1.7.0+garboard.' in printed, printed
    assert "Server Version" not in virtctl.run("version", "--client")


def test_features_that_are_not_there_are_refused_with_the_reason(virtctl: Tool, serving: str) -> None:
    refusals = {
        ("objectgraph", serving): "ObjectGraph feature gate not enabled",
        ("migrate", serving): "migrate is not supported in this version",
    }
    for command, text in refusals.items():
        refused = virtctl.call(*command)
        assert refused.returncode != 0 and text in refused.stderr, f"{command}: {refused.stderr}"
