"""KubeVirt's virt-controller in the place of ours, outside of the cluster, on the same played nodes. Its virt-handler
is played too; virt-api is not there, so nothing is admitted by webhooks."""

import collections
import contextlib
import pathlib
import re
import shutil
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator

from ..cluster import audit
from ..cluster.names import NAMESPACE, Object
from ..outcome import Failure
from ..places import SCRIPTS, temporary_directory
from .played import Played
from .usage import Usage

NAME, HOME = "virt-controller", "kubevirt"
OBJECT: Object = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "KubeVirt",
    "metadata": {"name": "kubevirt", "namespace": HOME},
    "spec": {},
}
PORT = 18182
# Where it looks for its certificate, and nowhere else.
CERTIFICATES = pathlib.Path("/etc/virt-controller/certificates")


def asker(event: audit.Event) -> str | None:
    """It comes as the administrator, and has a name of its own."""
    return NAME if event.get("userAgent", "").startswith(NAME) else None


def programs() -> pathlib.Path:
    """Its programs, built the first time."""
    command = [str(SCRIPTS / "fetch-reference"), "virt-controller"]
    made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return pathlib.Path(made.stdout.strip())


def install(played: Played, programs: pathlib.Path) -> None:
    """The definitions of its kinds, and the nodes it expects."""
    kube = played.kube
    definitions = subprocess.run([programs / "definitions"], check=True, stdout=subprocess.PIPE, text=True).stdout
    kube.kubectl("apply", "--server-side", "-f", "-", text=definitions, namespace=None)
    for namespace in (HOME, NAMESPACE):
        kube.kubectl("create", "namespace", namespace, namespace=None)
    kube.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s", namespace=None)
    kube.apply(OBJECT, namespace=HOME)
    played.equip()


def make_certificate() -> None:
    CERTIFICATES.mkdir(parents=True, exist_ok=True)
    request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={NAME}", "-days", "1"]
    files = ["-keyout", str(CERTIFICATES / "tls.key"), "-out", str(CERTIFICATES / "tls.crt")]
    subprocess.run(["openssl", *request, *files], check=True, capture_output=True)


@contextlib.contextmanager
def controller(played: Played, programs: pathlib.Path) -> Iterator[int]:
    """The process, once it leads."""
    kube = played.kube
    command = [f"{programs}/{NAME}", "--kubeconfig", kube.environment["KUBECONFIG"], "--launcher-image", "none:1"]
    command += ["--port", str(PORT), "--listen", "127.0.0.1"]
    environment = kube.environment | {"POD_NAMESPACE": HOME, "NAMESPACE": HOME}
    lease = ["get", "lease", NAME, "--ignore-not-found", "-o", "jsonpath={.spec.holderIdentity}"]
    with temporary_directory() as directory, (directory / "log").open("wb") as log:
        make_certificate()
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            kube.ask_until("virt-controller leads", lambda: kube.kubectl(*lease, namespace=HOME))
            yield process.pid
        except Failure as failure:
            printed = (directory / "log").read_text(errors="replace")[-2000:]
            raise Failure(f"{failure}; virt-controller printed {printed}") from failure
        finally:
            process.kill()
            process.wait()
            shutil.rmtree(CERTIFICATES.parent)


def histogram() -> collections.Counter[float]:
    """How often its queues' work took at most so many seconds: each has those before in it."""
    context = ssl._create_unverified_context()  # its own certificate, made above
    with urllib.request.urlopen(f"https://127.0.0.1:{PORT}/metrics", context=context, timeout=30) as answer:
        text = answer.read().decode()
    counted: collections.Counter[float] = collections.Counter()
    for end, number in re.findall(r'workqueue_work_duration_seconds_bucket\{.*?le="([^"]+)"\} (\S+)', text):
        counted[float(end)] += int(float(number))
    return counted


def slowest(before: collections.Counter[float], after: collections.Counter[float], share: float = 0.99) -> float:
    """What that share took at most: the buckets are ten times as wide as the ones before."""
    counted = {end: number - before[end] for end, number in after.items()}
    whole = max(counted.values(), default=0)
    return next((end for end in sorted(counted) if counted[end] >= whole * share), float("nan"))


def half(played: Played, process: int, prefix: str) -> list[tuple[str, str]]:
    """The same rows as of ours, as far as it has them."""
    number = played.options.instances // 2
    before, begin, seen = Usage.of(process), played.mark(), histogram()
    times = played.start_many(prefix, number)
    requests = played.settled(begin, asker)
    after = Usage.of(process)
    writes, reads = (requests.sum(verbs, NAME) / number for verbs in (audit.WRITES, audit.READS))
    within = f"{slowest(seen, histogram()) * 1000:.0f} ms (its buckets: 1, 10, 100, 1000 …)"
    return [
        (f"{prefix} {number}: all created after, all Running after", str(times)),
        ("… each: half of them, and the last, Running after", times.half_and_last()),
        ("… writes and reads each, virt-controller alone", f"{writes:.2f}, {reads:.2f}"),
        ("… controller: processor time, memory each", str(after.since(before, number))),
        ("… 99 of 100 reconciliations within", within),
        ("… requests a second, by what", requests.rates(times.running)),
        ("… controller in all, PSS", f"{after.memory / 1024:.1f} MiB"),
    ]
