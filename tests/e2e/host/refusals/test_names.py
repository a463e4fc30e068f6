"""What a manifest or a command names, and is not there."""

import re
from typing import Any

import pytest

from garboard_e2e.outcome import Failure
from garboard_e2e.refusals import Bad, Bench, Manifest, Object, with_volume

SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"other": "x"}}
SEED = with_volume({"cloudInitNoCloud": {"secretRef": {"name": "keys"}}})
CLAIMED = with_volume({"persistentVolumeClaim": {"claimName": "data"}})


def claim(spec: Object) -> Object:
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}


def both_missing() -> Object:
    made = with_volume({"configMap": {"name": "app"}}, name="more")
    made["spec"]["domain"]["devices"]["disks"].insert(1, SEED["spec"]["domain"]["devices"]["disks"][1])
    made["spec"]["volumes"].insert(1, SEED["spec"]["volumes"][1])
    return made


def named(manifest: Manifest, *patterns: str, **more: Any) -> Bad:
    return Bad(patterns, manifest, has_image=True, **more)


MISSING = {
    "a missing Secret": named(SEED, r"spec\.volumes\[1\]", "Secret default/keys", "add its manifest"),
    "a Secret without the key": named([SEED, SECRET], r"spec\.volumes\[1\]", "Secret keys", "`userdata`", "add it"),
    "a Secret that is no base64": named(
        [SEED, SECRET | {"stringData": {}, "data": {"userdata": "%%%"}}], r"spec\.volumes\[1\]", "userdata", "base64"
    ),
    "a missing ConfigMap": named(
        with_volume({"configMap": {"name": "app"}}),
        *(r"spec\.volumes\[1\]", "ConfigMap default/app", "add its manifest"),
    ),
    "a ConfigMap whose key is a path": named(
        [
            with_volume({"configMap": {"name": "app"}}),
            {"kind": "ConfigMap", "metadata": {"name": "app"}, "data": {"../shadow": "x"}},
        ],
        *("ConfigMap app", r"\.\./shadow", "rename"),
    ),
    "a claim without a stand-in": named(
        CLAIMED, "claim default/data", r"state/claims/default/data/disk\.img", "put a disk image there"
    ),
    "a claim without a size": named(
        [CLAIMED, claim({"resources": {"requests": {"storage": "much"}}})], "claim default/data"
    ),
    "a missing PersistentVolume": named([CLAIMED, claim({"volumeName": "pv"})], "PersistentVolume pv", "given files"),
    "a missing hostDisk": named(
        with_volume({"hostDisk": {"path": "/nowhere/disk.img", "type": "Disk"}}),
        *("data", "/nowhere/disk.img", "DiskOrCreate|create"),
        code=1,
    ),
    "a hostDisk that is a directory": named(
        with_volume({"hostDisk": {"path": "/etc", "type": "Disk"}}), "data", "/etc", code=1
    ),
    "a service account": named(
        with_volume({"serviceAccount": {"serviceAccountName": "default"}}),
        *(r"spec\.volumes\[1\]", "service account", "Secret"),
    ),
    "everything that is missing at once": named(
        both_missing(), r"volumes\[1\].*Secret default/keys.*\n.*volumes\[2\].*ConfigMap default/app"
    ),
}


@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_is_named(bench: Bench, name: str) -> None:
    bench.refuses(MISSING[name])


def test_a_machine_that_is_not_there(bench: Bench) -> None:
    # To `why` a machine that is not there is an answer.
    takes_one = re.compile(r"^Usage: .*<MACHINE>", re.M)
    verbs = [verb for verb in bench.commands() if verb != "why" and takes_one.search(bench.run(verb, "--help"))]
    assert len(verbs) >= 9, verbs
    for verb in verbs:
        try:
            bench.refuses(Bad(("default/absent", r"`garboard|--state-dir"), run=(verb, "absent"), code=3))
        except Failure as failure:
            raise Failure(f"{verb}: {failure}") from failure


def test_a_machine_that_is_no_name(bench: Bench) -> None:
    bench.refuses(Bad(("NAMESPACE/NAME",), run=("stop", "../x")))


def test_a_namespace_written_twice(bench: Bench) -> None:
    patterns = ("tenant/a is not in the namespace other", "leave out")
    bench.refuses(Bad(patterns, run=("stop", "-n", "other", "tenant/a")))


def test_two_machines_that_are_not_there(bench: Bench) -> None:
    bench.refuses(Bad(("default/one", "tenant/two"), run=("stop", "one", "tenant/two"), code=3))
