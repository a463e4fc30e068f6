"""A launcher that was taken over: its supervisor is stopped, and another process of its pod takes its place at the node
agent. That is what code in the pod can do, as the supervisor's user."""

import contextlib
import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator

from ..cluster.kube import Kube
from ..cluster.names import CONTROLLER, NODE_1
from ..outcome import Failure
from ..patience import PATIENCE
from ..processes import status_of
from .attackers import MEETING, ON_NODE, PROGRAM, Attackers
from .machines import supervisors

# In the control groups of the pod, and so in the pod as the agent sees it. Not in those of memory, which is the
# supervisor's alone.
IN_THE_POD = f"""
for procs in $(find /sys/fs/cgroup -path "*/pod$1/*/cgroup.procs" ! -path '*/memory/*'); do
    echo $$ >$procs 2>/dev/null
done
grep -q "pod$1" /proc/self/cgroup || {{ echo 'no group could be joined'; exit 1; }}
export GARBOARD_AGENT=/run/garboard-agent/pod/agent.sock PYTHONPATH={ON_NODE}
exec setpriv --reuid 107 --regid 107 --clear-groups python3 -B -m {PROGRAM.name} serves {MEETING}
"""


class StandIn:
    """It answers every control connection of the pod as a test wants it."""

    def __init__(self, meeting: pathlib.Path) -> None:
        self.meeting = meeting

    def says(self, what: str) -> None:
        """From now on; one of `SAYS` and `ENDLESS` in pod/launcher.py."""
        new = self.meeting / "say.new"
        new.write_text(what)
        new.rename(self.meeting / "say")


@contextlib.contextmanager
def stand_in(kube: Kube, attackers: Attackers, machine: str) -> Iterator[StandIn]:
    """In the place of a machine's supervisor, which goes on afterwards. The machine is on node-1."""
    attackers.bring_the_program_to_the_node()
    meeting, stopped = attackers.meet(), supervisors(kube, machine)
    if len(stopped) != 1:
        raise Failure(f"{machine} has the supervisors {stopped}")
    os.kill(stopped[0], signal.SIGSTOP)
    uid = str(kube.pod(machine)["metadata"]["uid"])
    inside = [str(kube.program), "--name", kube.name, "exec", NODE_1, "--", "sh", "-c", IN_THE_POD, "sh", uid]
    process = subprocess.Popen(inside, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        kube.ask_until("another process in its place", lambda: serves(process, meeting))
        yield StandIn(meeting)
    finally:
        (meeting / "stop").touch()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        process.kill()
        os.kill(stopped[0], signal.SIGCONT)


def serves(process: subprocess.Popen[str], meeting: pathlib.Path) -> bool:
    if process.poll() is not None:
        printed = process.stdout.read() if process.stdout else ""
        raise Failure(f"it ended with {process.returncode}: {printed}")
    return (meeting / "serving").exists()


def controllers_kib(kube: Kube) -> int:
    """The memory of all controllers together."""
    pods = [str(pod["metadata"]["uid"]) for pod in kube.controllers()]
    processes = [process for uid in pods for process in kube.processes_of(uid, CONTROLLER)]
    return sum(int(status_of(process)["VmRSS"].split()[0]) for process in processes)
