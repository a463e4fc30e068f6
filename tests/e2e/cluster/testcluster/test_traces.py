"""Nothing is left of a test cluster, however it ends."""

import contextlib
import os
import signal
import subprocess

from garboard_e2e.cluster import host
from garboard_e2e.cluster.probes import Probed

PAUSE = "registry.garboard.dev/cluster-pause:1"


def kill_everything(cluster: Probed) -> None:
    for process in host.processes_of_cluster(cluster.name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def killed_after(cluster: Probed, seconds: float, command: str) -> None:
    """The command with all that it has started, if it has not ended before."""
    timeout = ["timeout", "-s", "KILL", str(seconds)]
    subprocess.run([*timeout, cluster.program, "--name", cluster.name, command], capture_output=True)


def test_down_leaves_nothing(cluster: Probed, before: list[str]) -> None:
    if cluster.status() is None:
        cluster.cluster("up")
    cluster.cluster("down")
    cluster.cluster("down")
    host.expect_as_before(cluster.program, before)


def test_down_after_kill_9_of_everything_leaves_nothing(cluster: Probed, before: list[str]) -> None:
    cluster.cluster("up")
    run = ["run", "victim", f"--image={PAUSE}", "--image-pull-policy=Never"]
    cluster.kubectl(*run, namespace="default")
    cluster.ready("pod/victim")
    kill_everything(cluster)
    cluster.cluster("down")
    host.expect_as_before(cluster.program, before)


def test_a_dead_cluster_is_in_no_one_s_way(cluster: Probed, before: list[str]) -> None:
    """It is not taken down before, whatever its name."""
    cluster.cluster("up")
    kill_everything(cluster)
    cluster.ask_until("the end of every process", lambda: not host.processes_of_cluster(cluster.name))
    heir = Probed(cluster.program, "heir")
    try:
        heir.cluster("up")
    finally:
        heir.cluster("down")
    host.expect_as_before(cluster.program, before)


def test_up_and_down_killed_half_way_leave_nothing(cluster: Probed, before: list[str]) -> None:
    """The commands themselves are killed, at several points of their way."""
    for seconds in (0.1, 0.6, 1.5, 3, 5):
        killed_after(cluster, seconds, "up")
    killed_after(cluster, 0.3, "down")
    cluster.cluster("up")
    cluster.cluster("status")
    killed_after(cluster, 0.3, "down")
    cluster.cluster("down")
    host.expect_as_before(cluster.program, before)
