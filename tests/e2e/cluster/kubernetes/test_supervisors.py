"""The sidecar of a machine's pod is exchanged or killed, and the guest does not notice."""

import functools
from collections.abc import Callable

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import COMPUTE, SIDECAR, Object
from garboard_e2e.names import SUPERVISOR

NEXT_LAUNCHER = "registry.garboard.dev/garboard/launcher:next"
# KubeVirt's label of an instance whose supervisor is of another image than that of new pods.
OUTDATED = "kubevirt.io/outdatedLauncherImage"


def uptime(kube: Kube, name: str) -> float:
    return float(kube.shell(name, "cat /proc/uptime").split()[0])


def is_outdated(kube: Kube, name: str) -> bool:
    return OUTDATED in kube.present("vmi", name)["metadata"]["labels"]


def is_replaced(kube: Kube, name: str, image: str, restarts: int) -> None:
    """Waits for it."""

    def holds() -> bool:
        # Its status may name any of the tags that one image has.
        container = kube.container(name, SIDECAR)
        is_new = kube.pod(name)["spec"]["initContainers"][0]["image"] == image
        return container["restartCount"] == restarts and is_new and "running" in container["state"]

    kube.wait("the sidecar again", holds)
    kube.ask_until("the supervisor", lambda: kube.is_answered(name))


def taken(kube: Kube, name: str, request: str) -> Object | None:
    """The answer to a request, unless the supervisor is not ready to have one."""
    answer = kube.answer(name, request)
    return answer if answer and "still being started" not in answer.get("reason", "") else None


def goes_on(kube: Kube, name: str) -> None:
    """What happens to the guest still reaches its status."""
    for request, wanted in (("pause", "True"), ("unpause", None)):
        # A new supervisor reports what the one before it saw, and takes requests once it has reached PID 1 and QEMU.
        answer = kube.ask_until(f"{request} taken", functools.partial(taken, kube, name, request))
        assert answer["answer"] == "queued", f"{request} is answered with {answer}"
        kube.becomes("vmi", name, "Paused", wanted)


def test_a_sidecar_s_image_is_replaced_under_a_running_guest_by_hand_and_by_the_controller(
    kube: Kube, pair: dict[str, str], note: Callable[[str], None]
) -> None:
    """The guest, its uptime and the console go on. The controller, which would set the image of new pods again, does so
    afterwards."""
    launcher, restarts = kube.images.launcher, kube.restarts("right", SIDECAR)
    kube.inside(pair["right"], "ctr", "-n", "k8s.io", "images", "tag", "--force", launcher, NEXT_LAUNCHER)
    before, compute = uptime(kube, "right"), kube.container("right", COMPUTE)
    change = [{"op": "replace", "path": "/spec/initContainers/0/image", "value": NEXT_LAUNCHER}]
    with kube.launchers_stay():
        kube.patch(f"pod/{kube.pod_name('right')}", change, "json")
        is_replaced(kube, "right", NEXT_LAUNCHER, restarts + 1)
        kube.wait("the mark of an outdated supervisor", lambda: is_outdated(kube, "right"))
    is_replaced(kube, "right", launcher, restarts + 2)
    kube.wait("no mark", lambda: not is_outdated(kube, "right"))
    after, now = uptime(kube, "right"), kube.container("right", COMPUTE)
    assert after > before, f"the guest is up for {after} s, and was for {before} s"
    assert (now["containerID"], now["restartCount"]) == (compute["containerID"], 0), "compute was restarted"
    goes_on(kube, "right")
    note(f"up {before:.0f} s before, {after:.0f} s afterwards")


def test_a_supervisor_that_is_killed_comes_back_and_its_guest_does_not_notice(kube: Kube, pair: dict[str, str]) -> None:
    compute, restarts = kube.container("right", COMPUTE), kube.restarts("right", SIDECAR)
    kube.kill("right", SUPERVISOR)
    kube.wait("the sidecar again", lambda: kube.restarts("right", SIDECAR) > restarts)
    kube.ask_until("the supervisor", lambda: kube.is_answered("right"))
    assert kube.container("right", COMPUTE)["containerID"] == compute["containerID"], "compute was restarted"
    goes_on(kube, "right")
