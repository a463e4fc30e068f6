"""What sets of instances and pools of machines have in common, as tests look at them."""

from .kube import Kube
from .names import Object


class Replicated:
    """One object that has replicas, on a cluster."""

    # As kubectl names it, and its kind.
    resource: str
    kind: str

    def __init__(self, kube: Kube, name: str) -> None:
        self.kube = kube
        self.name = name

    def object(self) -> Object:
        return self.kube.get(f"{self.resource}/{self.name}")

    def status(self) -> Object:
        found: Object = self.object().get("status", {})
        return found

    def conditions(self) -> dict[str, Object]:
        return {each["type"]: each for each in self.status().get("conditions", [])}

    def reasons(self) -> set[str]:
        """Of its events; objects of the other kind in other tests have the same names."""
        own = f"involvedObject.name={self.name},involvedObject.kind={self.kind}"
        events = self.kube.items("events", "--field-selector", own)
        return {each["reason"] for each in events}
