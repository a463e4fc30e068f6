"""Metrics of a cluster, as Prometheus asks for them: of the leader, with the token of an account."""

import ssl
import urllib.error
import urllib.request
from typing import NamedTuple

from ..cluster.forwarded import Forwarded
from ..cluster.kube import Kube
from ..cluster.names import INSTALLED_IN

PORT = 8446
SERVER_NAME = f"garboard-webhook.{INSTALLED_IN}.svc"
# Accounts in the namespace of machines: one that may read metrics by this role, and one that may not.
READER, OTHER = "metrics-reader", "metrics-other"
ROLE, BINDING = "garboard-metrics-reader", "garboard-test-metrics"
# Longer than Prometheus waits by default.
SECONDS = 15


class Scraped(NamedTuple):
    """One answer."""

    code: int
    text: str

    def samples(self, metric: str, **labels: str) -> list[float]:
        """The values of the series of a metric that have these labels."""
        wanted = [f'{name}="{value}"' for name, value in labels.items()]
        lines = [line for line in self.text.splitlines() if line.split("{")[0].split(" ")[0] == metric]
        return [float(line.rsplit(" ", 1)[1]) for line in lines if all(label in line for label in wanted)]

    def sum(self, metric: str, **labels: str) -> float:
        found = self.samples(metric, **labels)
        assert found, f"no {metric} {labels} in\n{self.text[:4000]}"
        return sum(found)


class Scraper:
    """The forwarded port of a controller, of the one that leads if no other is named; its certificate is checked."""

    def __init__(self, kube: Kube, pod: str = "") -> None:
        self.kube = kube
        if not pod:
            pod = kube.get("lease/garboard-controller", namespace=INSTALLED_IN)["spec"]["holderIdentity"]
        self.forwarded = Forwarded(kube, INSTALLED_IN, f"pod/{pod}", PORT)
        self.authorities: str = kube.get("configmap/garboard-authorities", namespace=INSTALLED_IN)["data"]["ca.crt"]
        self.context = ssl.create_default_context(cadata=self.authorities)
        # It is asked at this computer's own address, and is to be the one in the cluster all the same.
        self.context.check_hostname = False

    def get(self, path: str, token: str | None) -> Scraped:
        request = urllib.request.Request(f"https://127.0.0.1:{self.forwarded.port}{path}")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=SECONDS, context=self.context) as answer:
                return Scraped(answer.status, answer.read().decode())
        except urllib.error.HTTPError as error:
            return Scraped(error.code, error.read().decode())


def token_of(kube: Kube, account: str) -> str:
    """A token of an account in the namespace of machines."""
    return kube.kubectl("create", "token", account, "--duration=1h").strip()
