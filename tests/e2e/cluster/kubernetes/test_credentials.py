"""Keys and passwords that the guest agent sets, from Secrets that change while the guest runs."""

import json
import time

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import Object
from garboard_e2e.cluster.objects import machine
from garboard_e2e.credentials import KEY, OTHER_KEY, by_agent, encoded, printed_keys, printed_password, secret
from garboard_e2e.patience import PATIENCE

NAME = "with-credentials"
PASSWORDS = ("correct-horse-battery", "staple-of-the-quay", "bollard-and-bight")
CONDITION = "AccessCredentialsSynchronized"
# A kubelet looks at Secrets at least once in a minute, and caches them for another.
KUBELET = 180


@pytest.fixture(scope="module")
def credentialed(kube: Kube) -> str:
    """A machine whose guest has an agent, and credentials."""
    kube.apply(secret("agent-keys", ada=KEY), secret("agent-passwords", root=PASSWORDS[0]))
    credentials = by_agent("agent-keys", "agent-passwords", "root")
    kube.apply(machine(NAME, "Always", tests="agent", accessCredentials=credentials))
    kube.runs(NAME)
    return NAME


def change(kube: Kube, *secrets: Object) -> None:
    """What Secrets have from now on. A kubelet looks at those of a pod that was changed at once."""
    kube.apply(*secrets)
    kube.kubectl("annotate", "--overwrite", "pod", kube.pod_name(NAME), f"example.com/changed={time.time_ns()}")


def condition(kube: Kube) -> Object:
    return kube.condition("vmi", NAME, CONDITION)


def test_what_a_secret_gets_later_reaches_the_guest(kube: Kube, credentialed: str) -> None:
    kube.becomes("vmi", credentialed, CONDITION)
    assert "reason" not in condition(kube) and not condition(kube).get("message"), condition(kube)
    kube.prints(credentialed, printed_keys("root", KEY))
    kube.prints(credentialed, printed_password("root", PASSWORDS[0]))
    change(kube, secret("agent-keys", ada=KEY, bob=OTHER_KEY), secret("agent-passwords", root=PASSWORDS[1]))
    kube.prints(credentialed, printed_keys("root", KEY, OTHER_KEY), seconds=PATIENCE + KUBELET)
    kube.prints(credentialed, printed_password("root", PASSWORDS[1]), seconds=PATIENCE + KUBELET)
    kube.becomes("vmi", credentialed, CONDITION)


def test_no_password_is_in_an_object_or_a_log(kube: Kube, credentialed: str) -> None:
    pod = kube.pod_name(credentialed)
    shown = [
        kube.kubectl("get", "vm,vmi,pods,events", "-o", "json"),
        kube.kubectl("logs", pod, "-c", "launcher"),
        kube.kubectl("logs", pod, "-c", "compute"),
    ]
    for password in PASSWORDS:
        for form in (password, encoded(password)):
            assert not any(form in text for text in shown), f"a password is shown: {form}"


def test_a_user_that_the_guest_lacks_is_in_the_condition(kube: Kube, credentialed: str) -> None:
    change(kube, secret("agent-passwords", root=PASSWORDS[1], absent=PASSWORDS[0]))

    def is_explained() -> bool:
        found = condition(kube)
        return found.get("status") == "False" and "password of user absent" in str(found.get("message"))

    kube.wait("the condition", is_explained, seconds=PATIENCE + KUBELET)
    kube.kubectl("delete", "secret", "agent-passwords")
    change(kube, secret("agent-passwords", root=PASSWORDS[1]))
    kube.wait("the condition again", lambda: condition(kube).get("status") == "True", seconds=PATIENCE + KUBELET)


@pytest.mark.long  # The kubelet takes a minute or more to bring what a Secret has now.
def test_a_kubelet_brings_a_change_by_itself_too(kube: Kube, credentialed: str) -> None:
    kube.apply(secret("agent-passwords", root=PASSWORDS[2]))
    kube.prints(credentialed, printed_password("root", PASSWORDS[2]), seconds=PATIENCE + KUBELET)


def hook(kube: Kube, pod: str, step: str) -> str:
    """Does what Velero does with the annotations of a pod."""
    annotations = kube.get("pod", pod)["metadata"]["annotations"]
    container = annotations[f"{step}.hook.backup.velero.io/container"]
    spec = kube.get("pod", pod)["spec"]
    assert container in [each["name"] for each in spec["containers"]], "Velero looks at no init container"
    command = json.loads(annotations[f"{step}.hook.backup.velero.io/command"])
    return kube.kubectl("exec", pod, "-c", container, "--", *command)


def test_a_backup_by_velero_s_annotations_freezes_and_thaws_the_guest(kube: Kube, credentialed: str) -> None:
    pod = kube.pod_name(credentialed)
    assert "are frozen" in hook(kube, pod, "pre")
    kube.prints(credentialed, "agent freeze")
    kube.ask_until("the status", lambda: kube.get("vmi", NAME)["status"].get("fsFreezeStatus") == "frozen")
    assert "are frozen" in hook(kube, pod, "pre")
    assert kube.serial(credentialed).count("agent freeze") == 1, "what is frozen is not frozen again"
    assert "are thawed" in hook(kube, pod, "post")
    kube.prints(credentialed, "agent thaw")
    kube.ask_until("the status again", lambda: "fsFreezeStatus" not in kube.get("vmi", NAME)["status"])


def test_a_guest_without_an_agent_is_copied_as_it_is(kube: Kube) -> None:
    silent = machine("silent", "Always")
    silent["spec"]["template"]["metadata"]["annotations"]["kubevirt.io/skip-backup-hooks"] = "false"
    kube.apply(silent)
    kube.runs("silent")
    pod = kube.pod_name("silent")
    for step in ("pre", "post"):
        assert "nothing to do" in hook(kube, pod, step)
