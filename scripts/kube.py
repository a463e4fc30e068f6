"""A test cluster with Garboard on it, as a check uses it: kubectl, faults, and a record of everything that happens, which
the model of histories judges at the end."""

import contextlib
import functools
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests/e2e"))

from garboard_e2e.cluster.history import findings  # noqa: E402
from garboard_e2e.cluster.recorder import Recorder  # noqa: E402
from garboard_e2e.outcome import Failure, Skipped  # noqa: E402
from garboard_e2e.places import CACHE, EXAMPLES  # noqa: E402, F401
from report import Report  # noqa: E402

NAMESPACE = "tenant"
# Guests are interpreted, and the machine compiles.
PATIENCE = float(os.environ.get("GARBOARD_PATIENCE", "120"))
HELLO = "registry.garboard.dev/hello:1"


# As a new user has them: all by default.
SETTINGS = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt", "namespace": "garboard"},
            "spec": {}}
# On a machine whose KVM interprets guest code an ordinary kernel takes hours to boot; each Linux guest asks for TCG itself.
TCG = {"garboard.dev/accelerator": "tcg"}


class Kube:
    """One cluster, from `up` to `down`."""

    def __init__(self, program, name):
        tools = subprocess.run([REPOSITORY / "scripts/fetch-cluster"], check=True, capture_output=True, text=True)
        self.program, self.name, self.tool = program, name, f"{tools.stdout.strip()}/kubectl"
        self.environment = os.environ | {"KUBECONFIG": f"/run/garboard-cluster/{name}/kubeconfig"}
        self.recorder = Recorder(self.tool, self.environment, name)

    # ---- commands

    def cluster(self, *arguments, check=True):
        done = subprocess.run([self.program, "--name", self.name, *map(str, arguments)], capture_output=True, text=True)
        if check and done.returncode:
            raise Failure(f"`cluster {' '.join(map(str, arguments))}` ended with {done.returncode}: {done.stderr[-600:]}")
        return done.stdout

    def inside(self, node, *command, check=True):
        """A program on a node."""
        return self.cluster("exec", node, "--", *command, check=check)

    def kubectl(self, *arguments, text=None, code=0, namespace=NAMESPACE):
        """What kubectl prints; it must end with `code`, and then standard error comes with it."""
        command = [self.tool, *(["-n", namespace] if namespace else []), *map(str, arguments)]
        done = subprocess.run(command, env=self.environment, input=text, capture_output=True, text=True)
        if done.returncode != code:
            raise Failure(f"`kubectl {' '.join(map(str, arguments))[:300]}` ended with {done.returncode}: {done.stderr[-600:]}")
        return done.stdout + (done.stderr if code else "")

    def apply(self, *objects, **options):
        whole = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        return self.kubectl("apply", "-f", "-", text=json.dumps(whole), **options)

    def patch(self, what, change, kind="merge", subresource=None):
        more = [f"--subresource={subresource}"] if subresource else []
        return self.kubectl("patch", what, "--type", kind, "-p", json.dumps(change), *more)

    # ---- what there is

    def there(self, kind, name, namespace=NAMESPACE):
        """The newest word of an object, or None."""
        with self.recorder.changed:
            for item in self.recorder.objects[kind].values():
                if (item["metadata"]["namespace"], item["metadata"]["name"]) == (namespace, name):
                    return item
        return None

    def phase(self, name):
        return ((self.there("vmi", name) or {}).get("status") or {}).get("phase", "")

    def printed(self, name):
        return ((self.there("vm", name) or {}).get("status") or {}).get("printableStatus", "")

    def uid(self, name, kind="vmi"):
        return (self.there(kind, name) or {"metadata": {"uid": None}})["metadata"]["uid"]

    def condition(self, kind, name, wanted):
        conditions = ((self.there(kind, name) or {}).get("status") or {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == wanted), {})

    def pods(self, name):
        """Its launcher pods, those that leave too."""
        with self.recorder.changed:
            return [pod for pod in self.recorder.objects["pod"].values()
                    if pod["metadata"].get("labels", {}).get("vm.kubevirt.io/name") == name]

    def pod(self, name):
        uid = self.uid(name)
        return next((pod for pod in self.pods(name) if pod["metadata"]["labels"]["kubevirt.io/created-by"] == uid), None)

    def qemus(self, name):
        """The QEMU processes of a machine, as the recorder sees them."""
        return [process for process in self.recorder.running or [] if process["machine"] == f"{NAMESPACE}/{name}"]

    def wait(self, what, holds, seconds=PATIENCE):
        """Until `holds` answers something true, which is returned; asked again whenever something has changed."""
        end, before = time.monotonic() + seconds, len(self.recorder.history)
        while not (found := holds()):
            if time.monotonic() > end:
                raise Failure(f"{what}: not within {seconds:.0f} s")
            with self.recorder.changed:
                self.recorder.changed.wait_for(lambda seen=before: len(self.recorder.history) > seen, 0.3)
                before = len(self.recorder.history)
        return found

    def ask_until(self, what, holds, seconds=PATIENCE):
        """As `wait`, for questions that cost a process each: nothing tells when to ask again."""
        end = time.monotonic() + seconds
        while not (found := holds()):
            if time.monotonic() > end:
                raise Failure(f"{what}: not within {seconds:.0f} s")
            time.sleep(0.5)
        return found

    def runs(self, name, not_this=None):
        """Waits until the machine has an instance that runs (another one than `not_this`), in status and in truth."""
        def holds():
            uid = self.uid(name)
            return uid != not_this and self.phase(name) == "Running" and len(self.qemus(name)) == 1 and uid
        return self.wait(f"{name} Running", holds)

    def is_gone(self, name):
        self.wait(f"the end of every pod and process of {name}",
                  lambda: not self.there("vmi", name) and not self.pods(name) and not self.qemus(name))

    def processes(self, name, program):
        """Numbers, as the host counts, of a program's processes in the pod of a machine."""
        return self.processes_of(self.pod(name)["metadata"]["uid"], program)

    def processes_of(self, pod, program):
        """The same of a pod's UID."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (entry / "comm").read_text().startswith(program[:15]) and pod in (entry / "cgroup").read_text():
                    found.append(int(entry.name))
        return found

    def kill(self, name, program):
        """Kills a program's processes in the pod of a machine; those that have gone meanwhile are fine."""
        for process in self.processes(name, program):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def container(self, name, which):
        """What the kubelet says of a container of the machine's pod: the sidecar or `compute`."""
        status = self.pod(name)["status"]
        statuses = status.get("initContainerStatuses", []) + status.get("containerStatuses", [])
        return next(each for each in statuses if each["name"] == which)

    # ---- machines

    def start(self, *machines):
        self.apply(*machines)
        return [self.runs(machine["metadata"]["name"]) for machine in machines]

    def remove(self, *names):
        for name in names:
            self.recorder.note("removal", machine=f"{NAMESPACE}/{name}")
        self.kubectl("delete", "vm", *names, "--ignore-not-found", "--wait=false")
        for name in names:
            self.is_gone(name)
            self.wait(f"the end of the machine {name}", lambda name=name: not self.there("vm", name))

    def page(self, address, node, seconds=PATIENCE):
        """What a guest serves at an address, fetched from a node."""
        return self.ask_until(f"a page at {address} from {node}", lambda: self.inside(
            node, "timeout", "5", "curl", "-fsS", f"http://{address}/", check=False), seconds)

    def told(self, name, field):
        """What an instance's status has in a field, once it has something: not everything is known when its guest runs."""
        return self.wait(f"{field} of {name}", lambda: ((self.there("vmi", name) or {}).get("status") or {}).get(field))

    def address(self, name):
        """Its pod's, which the kubelet may tell later than the agent that the guest runs."""
        return self.wait(f"an address of {name}", lambda: self.told(name, "interfaces")[0].get("ipAddress"))

    # ---- the guest

    def root(self, node):
        """The node's files, as the host sees them."""
        status = json.loads(self.cluster("status", "-o", "json", check=False))
        number = next(each["pid"] for each in status["nodes"] if each["name"] == node)
        return pathlib.Path(f"/proc/{number}/root")

    def supervisor(self, name):
        """The directory of the machine's supervisor."""
        pod = self.pod(name)
        volumes = self.root(pod["spec"]["nodeName"]) / "var/lib/kubelet/pods" / pod["metadata"]["uid"] / "volumes"
        return next((volumes / "kubernetes.io~empty-dir/garboard-run").rglob("serial0.log")).parent

    def serial(self, name):
        with contextlib.suppress(OSError, StopIteration, TypeError, KeyError):
            return (self.supervisor(name) / "serial0.log").read_text(errors="replace")
        return ""

    def says(self, name, pattern, times=1):
        """Waits until the guest has printed this."""
        return self.ask_until(f"{pattern!r} on the console of {name}",
                         lambda: len(found := re.findall(pattern, self.serial(name))) >= times and found)

    def ask(self, name, request):
        """A connection to the machine's supervisor, after its answer to a request (protocol/src/control.rs)."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE)
        own = os.open(self.supervisor(name), os.O_PATH)
        try:
            # Through the descriptor: the path itself is longer than a socket's may be.
            connection.connect(f"/proc/self/fd/{own}/control.sock")
        finally:
            os.close(own)
        connection.sendall(json.dumps(request).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n") and (byte := connection.recv(1)):
            answer += byte
        return connection, json.loads(answer)

    def shell(self, name, command, seconds=PATIENCE, code=0):
        """What a command prints in the guest's shell, on the console; with `code` None its end is not awaited."""
        connection, answer = self.ask(name, {"ask": "console", "access": "takeOver"})
        with connection:
            connection.settimeout(10)
            if answer.get("answer") != "streaming":
                raise Failure(f"the console of {name} says {answer}")
            # In two pieces, so that what is typed is not taken for what is printed.
            mark = os.urandom(4).hex()
            connection.sendall(f"{command}; echo 'ended'' {mark}' $?\n".encode())
            # The guest's echo of what was typed comes first, on as many lines as it needs; where no end is awaited it is
            # enough. Before it may stand what the console showed last.
            pattern = "ended''" if code is None else rf"(?s).*\$\s*\?\r?\n(.*?)ended {mark} (\d+)"
            shown, end = "", time.monotonic() + seconds
            while not (found := re.search(pattern, shown)):
                if time.monotonic() > end:
                    raise Failure(f"`{command}` did not end within {seconds:.0f} s in {name}; the screen: {shown[-400:]}")
                with contextlib.suppress(TimeoutError):
                    if not (more := connection.recv(4096)):
                        raise Failure(f"the console of {name} was closed; the screen: {shown[-400:]}")
                    shown += more.decode(errors="replace")
            if code is None:
                return ""
            if found[2] != str(code):
                raise Failure(f"`{command}` ended with {found[2]} in {name}: {found[1]}")
            return found[1].replace("\r", "")

    # ---- before and after

    def up(self, *archives):
        self.cluster("down", check=False)
        self.cluster("up")
        for archive in archives:
            self.cluster("load", archive)

    def install(self):
        self.kubectl("apply", "-f", manifest(), namespace=None)
        for what in "deployment/garboard-controller", "daemonset/garboard-node":
            self.kubectl("rollout", "status", what, f"--timeout={PATIENCE:.0f}s", namespace="garboard")
        self.apply(SETTINGS, namespace="garboard")
        self.kubectl("wait", "--for=condition=Available", "kubevirt/kubevirt", f"--timeout={PATIENCE:.0f}s", namespace="garboard")
        self.kubectl("create", "namespace", NAMESPACE)
        self.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
        self.ask_until("nodes that take machines", self.offers_devices)
        self.recorder.start()

    def controllers(self):
        """Their pods, those that leave too."""
        wanted = "app.kubernetes.io/component=controller"
        return json.loads(self.kubectl("get", "pods", "-l", wanted, "-o", "json", namespace="garboard"))["items"]

    def offers_devices(self):
        nodes = json.loads(self.kubectl("get", "nodes", "-l", "kubevirt.io/schedulable=true", "-o", "json"))["items"]
        return sum(node["status"]["allocatable"].get("devices.kubevirt.io/tun", "0") != "0" for node in nodes) == 2

    def judge(self):
        """The model's verdict of everything since `install`."""
        with self.recorder.changed:
            history = list(self.recorder.history)
        if keep := os.environ.get("GARBOARD_KEEP"):
            pathlib.Path(keep, f"{self.name}.jsonl").write_text("".join(json.dumps(event) + "\n" for event in history))
        # Another reading of the clock than the last event's: what is claimed is claimed until now.
        history.append({"at": time.monotonic(), "kind": "end"})
        if found := findings(history):
            raise Failure("the model refuses this history:\n" + "\n".join(f"    {each}" for each in found))
        kinds = [event["kind"] for event in history]
        return f"{len(history)} events, {kinds.count('processes')} changes of processes, no gap above {self.recorder.longest_gap:.1f} s"


@functools.cache
def images():
    """The directory of Garboard's images: GARBOARD_IMAGES, or those of this checkout."""
    build = [REPOSITORY / "deploy/images/build", "--dev"]
    return os.environ.get("GARBOARD_IMAGES") or subprocess.run(build, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def manifest():
    """What installs these images."""
    return pathlib.Path(images(), "garboard.yaml")


@contextlib.contextmanager
def launchers_stay(kube):
    """The controller replaces no supervisor meanwhile."""
    def annotate(word):
        kube.kubectl("annotate", "kubevirt/kubevirt", word, "--overwrite", namespace="garboard")
    annotate("garboard.dev/launcher-update=Disabled")
    try:
        yield
    finally:
        annotate("garboard.dev/launcher-update-")


def version():
    """That of this checkout, and of its images."""
    return subprocess.run([REPOSITORY / "scripts/version"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def launcher_image():
    """The name of the image of launcher pods that is installed."""
    return re.search(r"--launcher-image=(\S+)", manifest().read_text())[1]


@contextlib.contextmanager
def kube(program, name, *layouts):
    """A cluster with Garboard's images and those of these layouts (directory or archive)."""
    cluster = Kube(program, name)
    with tempfile.TemporaryDirectory(prefix="gbkube-") as work:
        archives = sorted(pathlib.Path(images()).glob("*.tar"))
        for number, layout in enumerate(layouts):
            archives.append(pathlib.Path(work, f"{number}.tar"))
            subprocess.run(["tar", "-C", layout, "-cf", archives[-1], "."], check=True)
        try:
            cluster.up(*archives)
            yield cluster
        finally:
            cluster.recorder.stop()
            if not os.environ.get("GARBOARD_KEEP"):
                cluster.cluster("down", check=False)


def machine(name, strategy="Always", tests="httpd", node=None, image=HELLO, **more):
    """The hello guest as a VirtualMachine; `more` goes into the instance's specification, `volumes` beside its disks."""
    spec = {
        "domain": {
            "cpu": {"cores": 1}, "memory": {"guest": "128Mi"},
            "firmware": {"kernelBoot": {
                "kernelArgs": f"console=ttyS0 quiet cryptomgr.notests no_timer_check garboard.test={tests}",
                "container": {"image": image, "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"}}},
            "devices": {"interfaces": [{"name": "default", "masquerade": {}}], "rng": {}, "disks": []},
        },
        "networks": [{"name": "default", "pod": {}}],
        "terminationGracePeriodSeconds": 20,
        "volumes": [],
    }
    for volume in more.pop("volumes", []):
        spec["domain"]["devices"]["disks"].append({"name": volume["name"], "serial": volume["name"], "disk": {"bus": "virtio"}})
        spec["volumes"].append(volume)
    spec |= more | ({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {})
    labels = {"app": name}
    vm = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name, "namespace": NAMESPACE},
          "spec": {"template": {"metadata": {"labels": labels, "annotations": TCG}, "spec": spec}}}
    vm["spec"] |= {"running": strategy} if isinstance(strategy, bool) else {"runStrategy": strategy}
    return vm


def claim(name, node=None, path=None, block=False, size="64Mi"):
    """A claim and, by hand because this cluster has no storage class, the volume it is bound to: a directory or a block
    device of the host, which both nodes see; with `node` only that one may use it."""
    mode = "Block" if block else "Filesystem"
    source = {"local": {"path": path}} if node else {"hostPath": {"path": path, "type": "BlockDevice" if block else "Directory"}}
    common = {"accessModes": ["ReadWriteOnce"], "volumeMode": mode, "storageClassName": ""}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": common | source | {
        "capacity": {"storage": size}, "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": NAMESPACE, "name": name}}}
    if node:
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    wanted = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": NAMESPACE},
              "spec": common | {"volumeName": name, "resources": {"requests": {"storage": size}}}}
    return [volume, wanted]


def other(node):
    return "node-2" if node == "node-1" else "node-1"


def play(cluster, scenes, words, always=""):
    """Plays the scenes whose names contain one of the words (all without one), and the one that is `always` needed; answers
    with the exit code."""
    report = Report()
    for name, scene in scenes:
        if words and name != always and not any(word in name for word in words):
            continue
        report.began = time.monotonic()
        try:
            note = scene(cluster)
            report.ok(name + (f": {note}" if note else ""))
        except Skipped as skipped:
            report.skip(f"{name}: {skipped}")
        except Exception as failure:  # whatever it is, the scenes after this one are played
            report.fail(name, f"{type(failure).__name__}: {failure}")
            explain(cluster)
            if name == always:
                break
    return report.sums()


def explain(cluster):
    """For whoever looks for the reason."""
    for command in (["get", "vm,vmi,pods", "-o", "wide"], ["get", "events", "--field-selector=type=Warning"]):
        with contextlib.suppress(Failure):
            print("\n".join(f"          {line[:200]}" for line in cluster.kubectl(*command).splitlines()[-12:]), flush=True)
