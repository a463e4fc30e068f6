"""What is wrong with the text of a manifest, before anything is looked up."""

import re
import subprocess
from typing import Any

import pytest

from garboard_e2e.places import EXAMPLES
from garboard_e2e.refusals import IMAGE, INSTANCE, Bad, Bench, Manifest, Object, instance, with_volume

DISK = "spec__domain__devices__disks__0"


def bomb() -> str:
    """Nine levels of ten references each: a gigabyte in three hundred bytes."""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]")
    return "\n".join(["kind: VirtualMachine", *lines])


def with_boot_orders(one: int, other: int) -> Object:
    manifest = with_volume({"emptyDisk": {"capacity": "1Mi"}})
    for disk, order in zip(manifest["spec"]["domain"]["devices"]["disks"], [one, other], strict=True):
        disk["bootOrder"] = order
    return manifest


def text(manifest: Manifest, *patterns: str, **more: Any) -> Bad:
    return Bad(patterns, manifest, **more)


TEXTS = {
    "no YAML": text("a: 1\nb: [", r"\d\.yaml is not valid YAML", "line 2"),
    "an empty file": text("", r"\.yaml.* no VirtualMachine", "kubevirt.io"),
    "only comments": text("# nothing\n---\n", "no VirtualMachine"),
    "bytes that are no text": text(b"\xff\xfe\x00kind", r"\.yaml", "UTF-8"),
    "a tab": text("kind: VirtualMachine\n\tmetadata: {}", r"\.yaml", "line 2"),
    "a key written twice": text("kind: VirtualMachine\nkind: VirtualMachine\n", r"\.yaml", "kind"),
    "a YAML bomb": text(bomb, r"\.yaml", "repetition", seconds=10),
    "a deep file": text(lambda: "[" * 100000, r"\.yaml", "flatter", seconds=10),
    "a huge file": text(lambda: "#" * (17 << 20), r"\.yaml", "16 MiB", seconds=10),
    "a list": text("- 1\n- 2\n", r"\.yaml"),
    "an unknown kind": text({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}, "no VirtualMachine"),
    "another API group": text(instance(apiVersion="example.org/v1"), r"kubevirt\.io/v1"),
    "an unknown field": text(
        instance(spec__domain__memroy={"guest": "1Gi"}), r"spec\.domain\.memroy", "did you mean `memory`"
    ),
    "a wrong type": text(instance(spec__domain__cpu={"cores": "two"}), r"spec\.domain\.cpu\.cores", "number"),
    "a quantity that is none": text(
        instance(spec__domain__memory__guest="lots"), r"spec\.domain\.memory\.guest", "1Gi|Mi"
    ),
    "two machines": text([INSTANCE, instance(metadata__name="other")], "refused", "--name"),
    "a name no machine has": text(INSTANCE, "no machine called absent", options=("--name", "absent")),
    "a machine without a name": text(instance(metadata={}), r"metadata\.name"),
    "a name that is a path": text(instance(metadata__name="../../etc"), r"metadata\.name"),
    "a missing file": text("", "/nowhere/vm.yaml", "No such file", run=("run", "--detach", "/nowhere/vm.yaml")),
    "a directory without manifests": text("", r"holds no \.yaml", run=("run", "--detach", "{directory}/cache")),
    "a bus that is none": text(instance(**{f"{DISK}__disk__bus": "ide"}), r"disks\[0\]\.disk\.bus", "virtio"),
    "a boot order twice": text(with_boot_orders(1, 1), r"bootOrder", r"disks\[[01]\]"),
    "a disk without a volume": text(instance(spec__volumes=[]), r"disks\[0\]\.name", "root|volume"),
    "a binding that is not supported": text(
        instance(
            spec__networks=[{"name": "default", "multus": {"networkName": "x"}}],
            spec__domain__devices__interfaces=[{"name": "default", "masquerade": {}}],
        ),
        *(r"networks\[0\]\.multus", "does not support it", "pod"),
    ),
    "a TPM which is not supported": text(
        instance(spec__domain__devices__tpm={}), r"spec\.domain\.devices\.tpm", "does not support it", "remove"
    ),
    "more vCPUs than the machine has": text(
        instance(spec__domain__cpu={"cores": 2000}), r"spec\.domain\.cpu", "288|vCPU"
    ),
    "more memory than the host has": text(
        instance(spec__domain__memory__guest="4Ti"), r"spec\.domain\.memory", "Gi|bytes|MiB", has_image=True
    ),
    "a port that is none": text(INSTANCE, "-p 70000:80", "2222:22", options=("-p", "70000:80")),
    "an option that is none": text(INSTANCE, "--acel", options=("--acel", "kvm")),
    "an --image without a path": text(INSTANCE, "REFERENCE=PATH", options=("--image", IMAGE)),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_refused(bench: Bench, name: str) -> None:
    bench.refuses(TEXTS[name])


def test_validate_tells_everything_at_once(bench: Bench) -> None:
    """Every mistake of every file in one go, each with its place and what to write instead."""
    disks = [{"name": "absent", "disk": {"bus": "ide"}}]
    manifests: list[Manifest] = [
        instance(spec__domain__memroy={}, spec__domain__cpu={"cores": "two"}, metadata__name="Not A Name"),
        "a: [",
        [INSTANCE, instance(spec__domain__devices__tpm={}, spec__domain__devices__disks=disks)],
        instance(),
    ]
    process = bench.start("validate", *(bench.file(manifest) for manifest in manifests), "/nowhere.yaml")
    stdout, stderr = process.communicate(timeout=60)
    output = (stdout + stderr).decode()
    wanted = [
        r"\.yaml.*spec\.domain\.memroy.*did you mean",
        r"spec\.domain\.cpu\.cores",
        r"metadata\.name.*; \w",
        r"\.yaml is not valid YAML",
        r"#2.*spec\.domain\.devices\.tpm.*; remove",
        r"#2.*disks\[0\]\.disk\.bus.*virtio",
        r"/nowhere\.yaml.*No such file",
        r"\.yaml: VirtualMachineInstance refused: ok",
    ]
    missing = [pattern for pattern in wanted if not re.search(pattern, output)]
    assert process.returncode == 2, f"ended with {process.returncode}: {output}"
    assert not missing, f"did not name {missing}: {output}"


CLONE = {"apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone", "metadata": {"name": "many"}}
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}}
CLONE_IS_REFUSED = r"VirtualMachineClone many: kind: .*clone\.kubevirt\.io/v1beta1.*not supported"


@pytest.mark.parametrize(
    "objects,code,wanted",
    [
        pytest.param([CLONE], 2, CLONE_IS_REFUSED, id="VirtualMachineClone of clone.kubevirt.io/v1beta1"),
        pytest.param(
            *([instance(apiVersion="kubevirt.io/v2")], 2, r"apiVersion: `kubevirt\.io/v2` is not a version"),
            id="VirtualMachineInstance of kubevirt.io/v2",
        ),
        pytest.param(
            *([instance(apiVersion="kubevirt.io/v1alpha3"), SECRET], 0, r"refused: ok\n.*Secret keys: not judged"),
            id="VirtualMachineInstance of kubevirt.io/v1alpha3",
        ),
    ],
)
def test_validate_names(bench: Bench, objects: list[Object], code: int, wanted: str) -> None:
    """What `validate` cannot judge in a group of KubeVirt is refused, and what is not KubeVirt's is named."""
    process = bench.start("validate", bench.file(objects))
    output = process.communicate(timeout=60)[0].decode()
    assert process.returncode == code, f"ended with {process.returncode}: {output}"
    assert re.search(wanted, output), output


EXAMPLE = EXAMPLES / "vm-hello.yaml"


@pytest.mark.parametrize(
    "command",
    ["ps", "doctor", "image list", f"explain --reference {EXAMPLE}", f"validate {EXAMPLE}", "completions zsh"],
    ids=lambda command: command.split()[0],
)
def test_into_a_closed_pipe(bench: Bench, command: str) -> None:
    """`garboard … | head -1` is no panic."""
    line = f'set -o pipefail; "{bench.argv()[0]}" {command} | head -c 1 >/dev/null'
    process = subprocess.run(["bash", "-c", line], env=bench.environment, capture_output=True, text=True, timeout=60)
    # A host that is not well is doctor's verdict, and no panic.
    codes = [0, 1] if command == "doctor" else [0]
    assert process.returncode in codes, f"ended with {process.returncode}: {process.stderr}"
    assert not re.search("panicked|[Bb]roken pipe", process.stderr), process.stderr
