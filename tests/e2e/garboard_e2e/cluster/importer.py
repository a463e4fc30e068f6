"""The Containerized Data Importer as far as Garboard looks at it: its kind. The importer itself is another
project's, and tests play it."""

import contextlib

from .kube import Kube
from .names import Object

CRD = "datavolumes.cdi.kubevirt.io"
SCHEMA = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
VERSION = {"name": "v1beta1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": SCHEMA}
DATA_VOLUMES: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": CRD},
    "spec": {
        "group": "cdi.kubevirt.io",
        "scope": "Namespaced",
        "names": {"kind": "DataVolume", "plural": "datavolumes"},
        "versions": [VERSION],
    },
}


def goes(kube: Kube, held: contextlib.ExitStack) -> None:
    """When the machines of a test are gone the cluster has no DataVolumes any more."""
    held.callback(kube.kubectl, "delete", "crd", CRD, "--ignore-not-found", namespace=None)


def comes(kube: Kube) -> None:
    """The cluster has DataVolumes from here on."""
    kube.apply(DATA_VOLUMES, namespace=None)


def template(name: str) -> Object:
    """What a machine brings along under this name."""
    source = {"http": {"url": "https://example.org/disk.img"}}
    spec = {"source": source, "storage": {"resources": {"requests": {"storage": "64Mi"}}}}
    return {"metadata": {"name": name}, "spec": spec}


def made(kube: Kube, name: str) -> Object:
    """The metadata of a DataVolume, once it is there."""
    kube.ask_until(f"the DataVolume {name}", lambda: kube.tried("get", "datavolume", name))
    found: Object = kube.get("datavolume", name)["metadata"]
    return found


def reaches(kube: Kube, name: str, phase: str) -> None:
    """What the importer reports of a DataVolume."""
    kube.patch(f"datavolume/{name}", {"status": {"phase": phase}}, subresource="status")
