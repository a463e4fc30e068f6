"""What Prometheus' operator makes of ServiceMonitors, PodMonitors and PrometheusRules: a configuration of Prometheus,
with the labels that targets have on users' clusters. `discovery` (pure) has what there is to scrape. Pure.

It reads what those of deploy/base/monitoring.yaml say, and refuses the rest; only the pauses are shorter.
"""

import dataclasses
import json
import re
from collections.abc import Collection, Iterable, Mapping

from ..cluster.names import Object
from ..outcome import Failure
from . import discovery
from .discovery import META, sanitized

GROUP = "monitoring.coreos.com"
# Where Prometheus has the files, and what they are called. It reads those with targets again by itself.
DIRECTORY, CONFIGURATION, RULES = "/etc/prometheus", "prometheus.yml", "rules.yml"
TARGETS = {"endpoints": "endpoints.json", "pod": "pods.json"}
# Its own rights at the API server, and how that is reached.
API_SERVER = "kubernetes.default.svc:443"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# Between two looks at a target, and between two judgements of a rule. A look at the API server costs more.
INTERVAL, OF_API_SERVER = "5s", "15s"
API_SERVERS_JOB = "apiserver"
# Of its thousands of metrics: those that rules of ours ask for.
API_SERVER_METRICS = "apiserver_requested_deprecated_apis|apiserver_request_total"
MONITOR_FIELDS = {"selector", "endpoints", "podMetricsEndpoints"}
ENDPOINT_FIELDS = {
    "port",
    "scheme",
    "path",
    "interval",
    "scrapeTimeout",
    "honorLabels",
    "authorization",
    "tlsConfig",
    "relabelings",
}


@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry of a Secret or ConfigMap, which Prometheus reads as a file."""

    kind: str
    namespace: str
    name: str
    key: str

    @property
    def file(self) -> str:
        return "_".join((self.kind, self.namespace, self.name, self.key))

    @property
    def path(self) -> str:
        return f"{DIRECTORY}/{self.file}"


def understood(what: str, fields: Collection[str], known: Collection[str]) -> None:
    if unknown := sorted(set(fields) - set(known)):
        raise Failure(f"{what} has {', '.join(unknown)}: reference/scrapes.py makes nothing of that yet")


def snake(name: str) -> str:
    """`sourceLabels` is `source_labels` to Prometheus."""
    return re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", name)


def kept(regex: str, *labels: str) -> Object:
    return {"action": "keep", "source_labels": list(labels), "regex": regex}


def copied(label: str, source: str) -> Object:
    return {"source_labels": [f"{META}{source}"], "target_label": label}


def selected(of: str, selector: Object) -> list[Object]:
    """The labels that a Service or a pod has to have."""
    understood("a selector", selector, ("matchLabels",))
    found = []
    for label, value in selector["matchLabels"].items():
        names = [f"{META}{of}_{part}_{sanitized(label)}" for part in ("label", "labelpresent")]
        found.append(kept(f"({re.escape(value)});true", *names))
    return found


# A pod that has ended is no target.
ENDED: Object = {"action": "drop", "source_labels": [f"{META}pod_phase"], "regex": "(Failed|Succeeded)"}


def of_services(selector: Object, endpoint: Object) -> list[Object]:
    """Each pod behind a port of a Service is a target; its job is the Service."""
    whose = [f"{META}endpoint_address_target_{part}" for part in ("kind", "name")]
    owners = [
        {"source_labels": whose, "separator": ";", "regex": f"{kind};(.*)", "target_label": kind.lower()}
        for kind in ("Node", "Pod")
    ]
    labels = (
        ("namespace", "namespace"),
        ("service", "service_name"),
        ("pod", "pod_name"),
        ("container", "pod_container_name"),
        ("job", "service_name"),
    )
    return [
        *selected("service", selector),
        kept(endpoint["port"], f"{META}endpoint_port_name"),
        *owners,
        *(copied(label, source) for label, source in labels),
        ENDED,
        {"target_label": "endpoint", "replacement": endpoint["port"]},
    ]


def of_pods(selector: Object, job: str) -> list[Object]:
    """Each container of a pod is a target, whatever ports it has."""
    labels = (("namespace", "namespace"), ("container", "pod_container_name"), ("pod", "pod_name"))
    return [
        ENDED,
        *selected("pod", selector),
        *(copied(label, source) for label, source in labels),
        {"target_label": "job", "replacement": job},
    ]


def credentials(namespace: str, endpoint: Object) -> Entry:
    understood("authorization", endpoint["authorization"], ("credentials",))
    token = endpoint["authorization"]["credentials"]
    return Entry("secret", namespace, token["name"], token["key"])


def authorities(namespace: str, endpoint: Object) -> Entry:
    understood("tlsConfig", endpoint["tlsConfig"], ("serverName", "ca"))
    understood("tlsConfig.ca", endpoint["tlsConfig"]["ca"], ("configMap",))
    named = endpoint["tlsConfig"]["ca"]["configMap"]
    return Entry("configmap", namespace, named["name"], named["key"])


def endpoints(monitor: Object) -> list[Object]:
    understood(monitor["kind"], monitor["spec"], MONITOR_FIELDS)
    found: list[Object] = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]
    for each in found:
        understood(f"an endpoint of {monitor['kind']}", each, ENDPOINT_FIELDS)
    return found


def scrapes(monitor: Object) -> list[Object]:
    """A job for each endpoint that a monitor has."""
    namespace, name, kind = monitor["metadata"]["namespace"], monitor["metadata"]["name"], monitor["kind"]
    selector, found = monitor["spec"]["selector"], []
    for number, each in enumerate(endpoints(monitor)):
        is_service = kind == "ServiceMonitor"
        found_by = TARGETS["endpoints" if is_service else "pod"]
        own = of_services(selector, each) if is_service else of_pods(selector, f"{namespace}/{name}")
        more = [{snake(key): value for key, value in rule.items()} for rule in each.get("relabelings", [])]
        job = {
            "job_name": f"{kind[0].lower()}{kind[1:]}/{namespace}/{name}/{number}",
            "scheme": each["scheme"],
            "metrics_path": each.get("path", "/metrics"),
            "honor_labels": each.get("honorLabels", False),
            "authorization": {"credentials_file": credentials(namespace, each).path},
            "tls_config": {
                "ca_file": authorities(namespace, each).path,
                "server_name": each["tlsConfig"]["serverName"],
            },
            "file_sd_configs": [{"files": [f"{DIRECTORY}/{found_by}"], "refresh_interval": INTERVAL}],
            "relabel_configs": own + more,
        }
        found.append(job)
    return found


def api_server() -> Object:
    """What kube-prometheus has beside the operator: requests for older versions are counted there."""
    return {
        "job_name": API_SERVERS_JOB,
        "scheme": "https",
        "scrape_interval": OF_API_SERVER,
        "authorization": {"credentials_file": f"{ACCOUNT}/token"},
        "tls_config": {"ca_file": f"{ACCOUNT}/ca.crt"},
        "static_configs": [{"targets": [API_SERVER]}],
        "metric_relabel_configs": [kept(API_SERVER_METRICS, "__name__")],
    }


def entries(monitors: Iterable[Object]) -> list[Entry]:
    """What Prometheus reads to ask the targets of monitors, each once."""
    found: dict[Entry, None] = {}
    for monitor in monitors:
        for each in endpoints(monitor):
            namespace = monitor["metadata"]["namespace"]
            found |= dict.fromkeys((credentials(namespace, each), authorities(namespace, each)))
    return list(found)


def in_order(objects: Iterable[Object], *kinds: str) -> list[Object]:
    found = [each for each in objects if each["kind"] in kinds]
    return sorted(found, key=lambda each: (each["kind"], each["metadata"]["namespace"], each["metadata"]["name"]))


def files(objects: Collection[Object], contents: Mapping[Entry, str]) -> dict[str, str]:
    """Everything that Prometheus has in its directory, by name, of what there is in a namespace: the operator's objects
    with the entries that their monitors name, and Services, Endpoints and pods. JSON is YAML."""
    monitors = in_order(objects, "ServiceMonitor", "PodMonitor")
    settings = {
        "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": [f"{DIRECTORY}/{RULES}"],
        "scrape_configs": [*(job for monitor in monitors for job in scrapes(monitor)), api_server()],
    }
    # The name of a group is its own within an object alone.
    groups = [
        group | {"name": f"{each['metadata']['name']}-{group['name']}"}
        for each in in_order(objects, "PrometheusRule")
        for group in each["spec"].get("groups", [])
    ]
    made = {
        CONFIGURATION: settings,
        RULES: {"groups": groups},
        TARGETS["endpoints"]: discovery.endpoints(objects),
        TARGETS["pod"]: discovery.pods(objects),
    }
    texts = {name: json.dumps(content, indent=2) for name, content in made.items()}
    return texts | {entry.file: text for entry, text in contents.items()}
