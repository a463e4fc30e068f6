"""KubeVirt's virt-controller in the place of ours, outside of the cluster, on the same played nodes: what check-scale measures
of it. Its virt-handler is played too; nobody plays virt-api, so nothing is admitted by webhooks."""

import collections
import contextlib
import pathlib
import re
import shutil
import ssl
import subprocess
import tempfile
import urllib.request

from audit import READS, WRITES
from kube import NAMESPACE, REPOSITORY
from scale import Scale, Usage

OBJECT = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt", "namespace": "kubevirt"}, "spec": {}}
PORT = 18182
# Where it looks for its certificate, and nowhere else.
CERTIFICATES = pathlib.Path("/etc/virt-controller/certificates")


def of_reference(event):
    """It comes as the administrator, and has a name of its own."""
    return "virt-controller" if event.get("userAgent", "").startswith("virt-controller") else None


def rates(requests, seconds):
    """Requests a second, by verb."""
    verbs = collections.Counter()
    for what, number in requests.counted.items():
        verbs[what.split(" ")[1]] += number
    return ", ".join(f"{verb} {number / seconds:.0f}" for verb, number in verbs.most_common())


def halves(times):
    took = sorted(times["took"].values())
    return f"{took[len(took) // 2]:.1f} s, {took[-1]:.1f} s"


def markdown(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "| --- | ---: |"]
    return "\n".join(lines + [f"| {what} | {found} |" for what, found in rows]) + "\n"


@contextlib.contextmanager
def controller(kube, programs):
    """The process, once it leads."""
    with tempfile.TemporaryDirectory() as work:
        CERTIFICATES.mkdir(parents=True, exist_ok=True)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=virt-controller", "-days", "1",
                        "-keyout", CERTIFICATES / "tls.key", "-out", CERTIFICATES / "tls.crt"], check=True, capture_output=True)
        command = [f"{programs}/virt-controller", "--kubeconfig", kube.environment["KUBECONFIG"], "--launcher-image", "none:1",
                   "--port", str(PORT), "--listen", "127.0.0.1"]
        with open(f"{work}/log", "wb") as log:
            process = subprocess.Popen(command, env=kube.environment | {"POD_NAMESPACE": "kubevirt", "NAMESPACE": "kubevirt"},
                                       stdout=log, stderr=log)
            try:
                kube.ask_until("virt-controller leads", lambda: kube.kubectl(
                    "get", "lease", "virt-controller", "--ignore-not-found", "-o", "jsonpath={.spec.holderIdentity}", namespace="kubevirt"))
                yield process.pid
            except Exception:
                print(pathlib.Path(f"{work}/log").read_text(errors="replace")[-2000:])
                raise
            finally:
                process.kill()
                process.wait()
                shutil.rmtree(CERTIFICATES.parent)


def histogram():
    """How often its queues' work took at most so many seconds."""
    context = ssl._create_unverified_context()  # its own certificate, made above
    with urllib.request.urlopen(f"https://127.0.0.1:{PORT}/metrics", context=context, timeout=30) as answer:
        text = answer.read().decode()
    counted = collections.Counter()
    for end, number in re.findall(r'workqueue_work_duration_seconds_bucket\{.*?le="([^"]+)"\} (\S+)', text):
        counted[float(end)] += float(number)
    return counted


def slowest(before, after, share=0.99):
    """What that share took at most: the buckets are ten times as wide as the ones before."""
    counted = {end: number - before[end] for end, number in after.items()}
    whole = max(counted.values(), default=0)
    return next((end for end in sorted(counted) if counted[end] >= whole * share), float("nan"))


def measure(options):
    """The same rows as of ours, as far as it has them."""
    programs = subprocess.run([REPOSITORY / "scripts/fetch-reference"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    with Scale(options.cluster, "kubevirt", options.player, options.nodes) as kube:
        definitions = subprocess.run([f"{programs}/definitions"], check=True, stdout=subprocess.PIPE, text=True).stdout
        kube.kubectl("apply", "--server-side", "-f", "-", text=definitions, namespace=None)
        for namespace in ("kubevirt", NAMESPACE):
            kube.kubectl("create", "namespace", namespace, namespace=None)
        kube.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s", namespace=None)
        kube.apply(OBJECT, namespace="kubevirt")
        kube.equip()
        with controller(kube, programs) as process:
            kube.play("handler")
            rows = []
            for prefix, number in (("first", options.instances // 2), ("second", options.instances // 2)):
                rows += one(kube, process, (prefix, number), options)
            return markdown([f"{options.instances} instances", "virt-controller v1.7.0"], rows)


def one(kube, process, machines, options):
    prefix, number = machines
    before, begin, seen = Usage(process), kube.mark(), histogram()
    times = kube.start_many(prefix, number, f"--in-flight={options.in_flight}", f"--writers={options.writers}")
    requests = kube.settled(begin, of_reference)
    after = Usage(process)
    return [
        [f"{prefix} {number}: all created after, all Running after", f"{times['created']:.1f} s, {times['running']:.1f} s"],
        ["… each: half of them, and the last, Running after", halves(times)],
        ["… writes and reads each, virt-controller alone",
         f"{requests.sum(WRITES, 'virt-controller') / number:.2f}, {requests.sum(READS, 'virt-controller') / number:.2f}"],
        ["… controller: processor time, memory each",
         f"{(after.processor - before.processor) * 1000 / number:.2f} ms, {(after.memory - before.memory) / number:.1f} KiB"],
        ["… 99 of 100 reconciliations within", f"{slowest(seen, histogram()) * 1000:.0f} ms (its buckets: 1, 10, 100, 1000 …)"],
        ["… requests a second, by what", rates(requests, times["running"])],
        ["… controller in all, PSS", f"{after.memory / 1024:.1f} MiB"],
    ]
