"""Looking into a machine that runs: QMP, logs, its command line, its screen, and what a shell completes."""

import json
import pathlib
import re
import socket
import subprocess
from collections.abc import Iterator

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE
from garboard_e2e.cluster.person import Person
from garboard_e2e.patience import PATIENCE
from garboard_e2e.places import EXAMPLES


def test_why_says_that_a_machine_runs_and_how(person: Person, machine: str) -> None:
    person.why(machine, "running", "its guest runs")
    person.plugin.prints("emulated in software", "why", machine)


def test_qmp_answers_a_query_and_changes_nothing_unasked(person: Person, machine: str) -> None:
    person.plugin.prints('"status": "running"', "qmp", machine, "query-status")
    person.plugin.refuses(4, "stop: .*", "qmp", machine, "stop")
    person.plugin.refuses(2, "JSON", "qmp", machine, "query-block", "nonsense")


def test_a_change_through_qmp_and_its_refusal_have_audit_lines(person: Person, machine: str) -> None:
    person.plugin.refuses(4, "stop: .*", "qmp", machine, "stop")
    person.plugin.prints(r"\{\}", "qmp", machine, "--allow-write", "stop")
    person.why(machine, "paused", "it was paused on request")
    person.plugin.run("qmp", machine, "--allow-write", "cont")
    person.await_verdict(machine, "running")
    audit = [line for line in person.plugin.run("logs", machine).splitlines() if "qmp audit" in line]
    stops = [line for line in audit if "command=stop" in line]
    # As the API server has authenticated them.
    user = json.loads(person.kubectl.run("auth", "whoami", "-o", "json"))["status"]["userInfo"]["username"]
    assert all(f"claimed_user={user}" in line for line in stops), f"no audit line with a name: {stops}"
    refused = [line for line in stops if re.search("denied|refused", line, re.I)]
    assert refused, f"the refusal left no audit line: {stops}"


def test_logs_are_the_story_and_parts_of_the_record(person: Person, machine: str) -> None:
    person.plugin.prints("the machine is prepared", "logs", machine)
    person.plugin.prints('"message":"the machine is prepared"', "logs", machine, "--json")
    # The record of QMP has what was asked through it.
    person.plugin.run("qmp", machine, "query-status")
    person.plugin.prints('"kind":"command"', "logs", machine, "--part", "qmp")
    person.plugin.refuses(3, r"no exit\.json yet", "logs", machine, "--part", "exit")


def test_explain_prints_the_argv_that_runs_byte_by_byte(kube: Kube, person: Person, machine: str) -> None:
    node = person.node_of(machine)
    pattern = f"^/usr/bin/qemu-system-x86_64 .*guest={NAMESPACE}_{machine}"
    process = kube.inside(node, "pgrep", "-f", pattern).strip()
    running = kube.inside(node, "cat", f"/proc/{process}/cmdline").rstrip("\0").split("\0")
    explained = person.plugin.run("explain", machine).partition("# QEMU\n")[2].partition("\n\n")[0]
    assert explained.splitlines() == running


def test_explain_takes_a_file(person: Person, installed: None, directory: pathlib.Path) -> None:
    manifest = directory / "other.yaml"
    manifest.write_text((EXAMPLES / "vm-hello.yaml").read_text().replace("\n  name: hello\n", "\n  name: other\n"))
    person.plugin.prints(f"guest={NAMESPACE}_other", "explain", "-f", str(manifest), "--shell")


def manifest(kube: Kube, machine: str, directory: pathlib.Path, memory: str = "") -> str:
    """A file with the machine as it is, or with other memory."""
    found = kube.get("vm", machine)
    kept = {"name": found["metadata"]["name"], "namespace": NAMESPACE}
    if memory:
        found["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": memory}
    file = directory / f"{machine}-{memory or 'same'}.json"
    file.write_text(json.dumps({key: found[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": kept}))
    return str(file)


SAME, CHANGED = "the guest finds the machine that it had", 8


def test_explain_says_what_the_guest_would_see_change_at_its_next_start(
    kube: Kube, person: Person, machine: str, directory: pathlib.Path
) -> None:
    person.plugin.prints(SAME, "explain", "--against-running", machine)
    same, other = manifest(kube, machine, directory), manifest(kube, machine, directory, "192Mi")
    person.plugin.prints(SAME, "explain", "--against-running", machine, "-f", same)
    person.plugin.refuses(CHANGED, "memory: size=.* -> size=192M", "explain", "--against-running", machine, "-f", other)
    person.plugin.prints(SAME, "explain", "--diff", same, same)
    person.plugin.refuses(CHANGED, "memory: size=", "explain", "--diff", same, other)
    plan = directory / "plan.json"
    plan.write_text(person.plugin.run("explain", machine, "-o", "json"))
    person.plugin.prints(SAME, "explain", "--diff", str(plan), str(plan))
    (directory / "other.json").write_text(plan.read_text().replace("virtio-net-pci", "e1000"))
    done = person.plugin.call("explain", "--diff", str(plan), str(directory / "other.json"), "-o", "json")
    assert done.returncode == CHANGED and json.loads(done.stdout), done


@pytest.fixture
def screen(person: Person, machine: str) -> Iterator[int]:
    """The port of a proxy to the screen."""
    proxy = person.plugin.begin("vnc", machine, "--proxy-only", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert proxy.stdout
        address = proxy.stdout.readline().strip()
        assert re.fullmatch(r"127\.0\.0\.1:\d+", address), f"no address: {address!r}"
        yield int(address.partition(":")[2])
    finally:
        proxy.terminate()
        proxy.wait()


def test_two_viewers_one_after_the_other_see_the_screen(screen: int) -> None:
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", screen), PATIENCE) as viewer:
            # The first bytes of RFB come through the proxy.
            assert viewer.recv(7, socket.MSG_WAITALL) == b"RFB 003"


def test_a_shell_completes_machines_commands_and_options(person: Person, machine: str) -> None:
    """As kubectl asks for it: a program beside the plug-in."""
    (person.programs / "kubectl_complete-garboard").symlink_to(person.command)
    completes = person.kubectl.prefix[0], "__complete", "garboard"
    for pattern, arguments in {
        machine: ["-n", NAMESPACE, "console", "he"],
        "restart": ["res"],
        "--take-over": ["console", "--t"],
        "query-blockstats": ["-n", NAMESPACE, "qmp", machine, "query-bl"],
    }.items():
        done = subprocess.run([*completes, *arguments], env=person.kubectl.environment, capture_output=True, text=True)
        assert done.returncode == 0 and pattern in done.stdout, done
