"""Callers that are not what they claim to be."""

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NODE_1
from garboard_e2e.hostile.attackers import ON_NODE, PROGRAM, Attackers
from garboard_e2e.hostile.machines import Machines

# As a user of the node in a group of their own that has the form of a pod's, and as root in a pod's form too.
OF_THE_NODE = f"""
for procs in $(find /sys/fs/cgroup -maxdepth 2 -name cgroup.procs); do
    group=${{procs%/cgroup.procs}}/user.slice/session/kubepods/pod$1/x
    mkdir -p $group 2>/dev/null && echo $$ >$group/cgroup.procs 2>/dev/null
done
grep -q kubepods/pod$1 /proc/self/cgroup || {{ echo 'no group could be made'; exit 1; }}
export GARBOARD_AGENT=/run/garboard-agent/pod/agent.sock PYTHONPATH={ON_NODE}
setpriv --reuid 107 --regid 107 --clear-groups python3 -B -m {PROGRAM.name} impostor &&
    python3 -B -m {PROGRAM.name} another_user
"""


def test_a_pod_that_pretends_to_be_a_launcher_changes_no_status(
    kube: Kube, attackers: Attackers, machines: Machines, honest: str
) -> None:
    """What a pod reports that is not in `activePods` is noted and not written."""
    before = kube.get("vmi", "honest")["status"]
    attackers.tries("liar", "lies", honest)
    # Newer than any report of the liar, and it goes through the same agent: a change that is seen came after.
    machines.come_and_go("later")
    after = kube.get("vmi", "honest")["status"]
    assert after == before, f"the status changed: {after}"


def test_a_user_of_the_node_who_names_a_group_like_a_pod_is_in_no_pod(
    kube: Kube, attackers: Attackers, honest: str
) -> None:
    attackers.bring_the_program_to_the_node()
    uid = kube.get("pod", "liar")["metadata"]["uid"]
    answers = kube.inside(NODE_1, "sh", "-c", OF_THE_NODE, "sh", uid, check=False).splitlines()
    assert len(answers) == 3, f"what both attempts printed: {answers}"
    assert all(line.startswith("ok ") for line in answers), f"what both attempts printed: {answers}"


def test_sockets_that_wait_to_be_closed_hold_no_machine_up(
    attackers: Attackers, machines: Machines, honest: str
) -> None:
    """In a pod of its own: where interfaces are made, connections to the loopback address go to a guest, and here there
    is none."""
    attackers.need("lingering", attackers.guise("honest"))
    attackers.tries("lingering", "lingering")
    machines.come_and_go("meanwhile")
