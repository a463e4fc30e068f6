"""A test cluster whose machines are played (tests/scale), what is asked of its API server, and what the asking processes
take: as check-scale uses it, for our controller and for the reference's."""

import collections
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from audit import OURS, READS, WRITES, is_event
from kube import NAMESPACE, REPOSITORY, Failure, Kube

TICKS = os.sysconf("SC_CLK_TCK")
# Of which lists of everything count, beside what is asked in the namespace of the machines.
KINDS = ("pods", "virtualmachines", "virtualmachineinstances")
# As long without a request is the end of a storm of them, in seconds.
SILENCE = 4
# Nothing takes longer than this, in seconds.
PATIENCE = float(os.environ.get("GARBOARD_PATIENCE", "600"))


class Requests:
    """What was asked of the API server between two moments, by its audit log."""

    def __init__(self, log, begin, who):
        """`who` names the component that an event is from, or None."""
        self.counted, self.by_machine, self.last = collections.Counter(), collections.defaultdict(collections.Counter), None
        with log.open() as lines:
            lines.seek(begin)
            for line in lines:
                if line.endswith("\n") and (component := who(event := json.loads(line))):
                    self.count(event, component)

    def count(self, event, component):
        about, verb = event.get("objectRef", {}), event["verb"]
        is_all = about.get("namespace") is None and about.get("resource") in KINDS
        if event["stage"] != "ResponseComplete" or not (about.get("namespace") == NAMESPACE or is_all):
            return
        # What is refused does not count as written: the API server keeps nothing of it.
        if verb not in READS and not (verb in WRITES and event["responseStatus"]["code"] < 300):
            return
        what = f"{component}: {verb} " + "/".join(filter(None, [about["resource"], about.get("subresource")]))
        self.counted[what] += 1
        self.last = event["stageTimestamp"]
        if found := re.match(r"(?:virt-launcher-)?([a-z]+-\d+)(?:$|[-.])", about.get("name", "")):
            self.by_machine[found[1]][what] += 1

    def sum(self, verbs, component):
        """How often one component did one of these, events apart."""
        return sum(number for what, number in self.counted.items() if is_of(what, verbs, component))


def is_of(what, verbs, component):
    who, verb = what.split(" ")[:2]
    return who == f"{component}:" and verb in verbs and not is_event(what)


def of_ours(event):
    """By whose account it was asked."""
    return OURS.get(event["user"]["username"])


class Usage:
    """What a process has taken so far: memory in KiB, as it shares it with others, and processor time in seconds."""

    def __init__(self, process):
        rollup = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text()
        self.memory = int(re.search(r"^Pss:\s*(\d+)", rollup, re.M)[1])
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
        self.processor = (int(fields[11]) + int(fields[12])) / TICKS


class Scale(Kube):
    """One cluster with one real node, and those that are played."""

    def __init__(self, program, name, player, nodes):
        subprocess.run([REPOSITORY / "scripts/fetch-cluster", "--kwok"], check=True, capture_output=True)
        super().__init__(program, name)
        self.player, self.nodes, self.players = player, nodes, []
        self.log = pathlib.Path(f"/run/garboard-cluster/{name}/logs/audit.log")

    def __enter__(self):
        # Whoever ends this early wants no cluster left.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("it was told to end"))
        self.cluster("down", check=False)
        self.cluster("up", "--nodes", "1", "--kwok", self.nodes)
        return self

    def __exit__(self, *_):
        for player in self.players:
            player.terminate()
            player.wait()
        if not os.environ.get("GARBOARD_KEEP"):
            self.cluster("down", check=False)

    def equip(self):
        """What the kubelets and the node agents of the played nodes would say of them."""
        subprocess.run([self.player, "nodes", str(self.nodes)], env=self.environment, check=True)

    def play(self, *words):
        """Plays somebody until the end."""
        player = subprocess.Popen([self.player, *map(str, words)], env=self.environment, stdout=subprocess.PIPE, text=True)
        self.players.append(player)
        if player.stdout.readline().strip() != "ready":
            raise Failure(f"`{' '.join(map(str, words))}` cannot be played; it ended with {player.wait()}")

    def start_many(self, prefix, number, *options):
        """Seconds until so many machines were created, and until all of them ran."""
        command = [self.player, "start", "--prefix", prefix, "--number", str(number), f"--patience={PATIENCE:.0f}", *options]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            raise Failure(f"{number} machines were not started: {done.stderr[-600:]}")
        return json.loads(done.stdout)

    def mark(self):
        """Now, in the audit log."""
        return self.log.stat().st_size

    def settled(self, begin, who):
        """All requests since `begin`, when there was none for a while."""
        seen, since, end = None, time.monotonic(), time.monotonic() + PATIENCE
        while time.monotonic() < end:
            requests = Requests(self.log, begin, who)
            if requests.counted != seen:
                seen, since = requests.counted, time.monotonic()
            elif time.monotonic() > since + SILENCE:
                return requests
            time.sleep(1)
        raise Failure(f"there is still something asked after {PATIENCE:.0f} s: {seen}")

    def everything(self, kind):
        return json.loads(self.kubectl("get", kind, "-o", "json"))["items"]
