"""Other settings of the installation for a while."""

import contextlib
from collections.abc import Iterator
from typing import Literal

from .kube import Kube
from .names import INSTALLED_IN


@contextlib.contextmanager
def gate(kube: Kube, name: str, which: Literal["featureGates", "disabledFeatureGates"]) -> Iterator[None]:
    """A gate that is named in one of the two lists."""

    def change(gates: list[str] | None) -> None:
        configuration = {"developerConfiguration": {which: gates}}
        kube.patch("kubevirt/kubevirt", {"spec": {"configuration": configuration}}, namespace=INSTALLED_IN)
        kube.ask_until("settings that are followed", lambda: is_followed(kube))

    change([name])
    try:
        yield
    finally:
        change(None)


def is_followed(kube: Kube) -> bool:
    settings = kube.get("kubevirt/kubevirt", namespace=INSTALLED_IN)
    return bool(settings["status"].get("observedGeneration") == settings["metadata"]["generation"])
