"""What Prometheus finds in Kubernetes: targets, and their labels before relabelling, as its roles `endpoints` and `pod`
have them. Pure.

Debian's Prometheus is built without them, and reads these from files.
"""

import re
from collections.abc import Iterable, Iterator

from ..cluster.names import Object

# A target, and its labels.
Target = dict[str, object]
META = "__meta_kubernetes_"


def sanitized(label: str) -> str:
    """A label of Kubernetes, as a part of a label of Prometheus."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", label)


def of_kind(objects: Iterable[Object], kind: str) -> list[Object]:
    return [each for each in objects if each["kind"] == kind]


def labels_of(kind: str, thing: Object) -> dict[str, str]:
    """Its name, and its labels, with whether they are there: one may be empty."""
    found = {f"{META}namespace": thing["metadata"]["namespace"], f"{META}{kind}_name": thing["metadata"]["name"]}
    for name, value in thing["metadata"].get("labels", {}).items():
        found |= {
            f"{META}{kind}_label_{sanitized(name)}": value,
            f"{META}{kind}_labelpresent_{sanitized(name)}": "true",
        }
    return found


def labels_of_pod(pod: Object) -> dict[str, str]:
    own = {"ip": pod["status"]["podIP"], "phase": pod["status"]["phase"], "node_name": pod["spec"]["nodeName"]}
    return labels_of("pod", pod) | {f"{META}pod_{name}": value for name, value in own.items()}


def containers(pod: Object) -> Iterator[tuple[Object, bool]]:
    """Each, with whether it is an init container."""
    for key in ("containers", "initContainers"):
        for container in pod["spec"].get(key, []):
            yield container, key == "initContainers"


def labels_of_container(container: Object, is_init: bool) -> dict[str, str]:
    own = {"name": container["name"], "init": str(is_init).lower()}
    return {f"{META}pod_container_{name}": value for name, value in own.items()}


def pods(objects: Iterable[Object]) -> list[Target]:
    """The role `pod`: each port of each container, or the container where it has none."""
    found: list[Target] = []
    for pod in of_kind(objects, "Pod"):
        if "podIP" not in pod["status"]:
            continue
        for container, is_init in containers(pod):
            labels = labels_of_pod(pod) | labels_of_container(container, is_init)
            for port in container.get("ports", []):
                named = {f"{META}pod_container_port_name": port.get("name", "")}
                address = f"{pod['status']['podIP']}:{port['containerPort']}"
                found.append({"targets": [address], "labels": labels | named})
            if not container.get("ports"):
                found.append({"targets": [pod["status"]["podIP"]], "labels": labels})
    return found


def endpoints(objects: Iterable[Object]) -> list[Target]:
    """The role `endpoints`: each port of each address behind a Service."""
    every = list(objects)
    services = {each["metadata"]["name"]: each for each in of_kind(every, "Service")}
    known = {each["metadata"]["name"]: each for each in of_kind(every, "Pod") if "podIP" in each["status"]}
    found: list[Target] = []
    for each in of_kind(every, "Endpoints"):
        service = services.get(each["metadata"]["name"])
        whose = labels_of("service", service) if service else {}
        for subset in each.get("subsets", []):
            for address in subset.get("addresses", []) + subset.get("notReadyAddresses", []):
                target = address.get("targetRef", {})
                pod = known.get(target.get("name", "")) if target.get("kind") == "Pod" else None
                for port in subset.get("ports", []):
                    labels = whose | labels_of_endpoint(target, port, pod)
                    found.append({"targets": [f"{address['ip']}:{port['port']}"], "labels": labels})
    return found


def labels_of_endpoint(target: Object, port: Object, pod: Object | None) -> dict[str, str]:
    """Those of the pod and of the container with this port, where one is behind it."""
    own = {
        f"{META}endpoint_port_name": port.get("name", ""),
        f"{META}endpoint_address_target_kind": target.get("kind", ""),
        f"{META}endpoint_address_target_name": target.get("name", ""),
    }
    if not pod:
        return own
    own |= labels_of_pod(pod)
    for container, is_init in containers(pod):
        if any(each["containerPort"] == port["port"] for each in container.get("ports", [])):
            own |= labels_of_container(container, is_init)
    return own
