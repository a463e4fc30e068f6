"""VirtualMachineInstancePresets: parts that new instances get by their labels."""

import contextlib
import json
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE, Object
from garboard_e2e.cluster.objects import machine
from garboard_e2e.outcome import Failure

KNOWN = "virtualmachinepreset.kubevirt.io/"
EXCLUDE = "virtualmachineinstancepresets.admission.kubevirt.io/exclude"
Make = Callable[[str, Object], None]


def preset(name: str, domain: Object) -> Object:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstancePreset",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": {"size": "small"}}, "domain": {"devices": {}} | domain},
    }


def instance(name: str, **annotations: str) -> Object:
    """A machine that its presets select, and that has no processors of its own."""
    whole = machine(name, "Halted")
    template = whole["spec"]["template"]
    template["metadata"]["labels"]["size"] = "small"
    template["metadata"]["annotations"] |= annotations
    del template["spec"]["domain"]["cpu"]
    return whole


@pytest.fixture
def make(kube: Kube) -> Iterator[Make]:
    with contextlib.ExitStack() as made:

        def apply(name: str, domain: Object) -> None:
            kube.apply(preset(name, domain))
            made.callback(kube.kubectl, "delete", f"vmipreset/{name}", "--ignore-not-found")

        yield apply


def dry(kube: Kube, name: str, **annotations: str) -> Object:
    """What an instance would be stored as now."""
    template = instance(name, **annotations)["spec"]["template"]
    vmi = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"} | template
    vmi["metadata"] = template["metadata"] | {"name": name, "namespace": NAMESPACE}
    output = kube.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", text=json.dumps(vmi))
    stored: Object = json.loads(output)
    return stored


def test_an_instance_gets_what_it_does_not_have_and_keeps_what_it_has(kube: Kube, make: Make) -> None:
    make("cores", {"cpu": {"cores": 2}})
    make("dog", {"devices": {"watchdog": {"name": "dog", "i6300esb": {"action": "reset"}}}})
    make("firmware", {"firmware": {"serial": "of-the-preset"}})

    def is_given() -> bool:
        return "watchdog" in dry(kube, "probe")["spec"]["domain"]["devices"]

    # Each replica of the controller learns of presets by its own watch: several answers in a row are those of both.
    kube.ask_until("replicas that know the preset", lambda: all(is_given() for _ in range(8)))
    kube.apply(instance("small") | {"spec": instance("small")["spec"] | {"runStrategy": "Always"}})
    kube.runs("small")
    stored = kube.present("vmi", "small")
    watchdog = stored["spec"]["domain"]["devices"].get("watchdog", {})
    assert watchdog.get("name") == "dog", "the machine's instance has no part of the preset"
    assert stored["spec"]["domain"]["cpu"].get("cores") == 2, "defaults came before the preset"
    assert stored["spec"]["domain"]["firmware"]["serial"] != "of-the-preset", "the preset replaced what it has"
    annotations = stored["metadata"]["annotations"]
    assert annotations.get(f"{KNOWN}cores") == "kubevirt.io/v1", annotations
    assert annotations.get(f"{KNOWN}dog") == "kubevirt.io/v1" and f"{KNOWN}firmware" not in annotations
    assert annotations["garboard.dev/presets-overridden"] == "firmware: spec.domain.firmware"

    def has_event() -> bool:
        events = kube.items("events", "--field-selector", "involvedObject.name=small,reason=Override")
        return bool(events)

    kube.ask_until("the event Override", has_event)
    excluded = dry(kube, "excluded", **{EXCLUDE: "true"})
    assert excluded["spec"]["domain"]["cpu"].get("cores", 1) == 1, "an instance that is excluded got a part"


def test_presets_that_do_not_agree_refuse_an_instance(kube: Kube, make: Make) -> None:
    make("two", {"cpu": {"cores": 2}})
    make("three", {"cpu": {"cores": 3}})

    def is_refused() -> bool:
        try:
            dry(kube, "torn")
        except Failure as failure:
            return "the presets three and two both select it" in str(failure)
        return False

    kube.ask_until("a refusal", is_refused)


def test_a_preset_without_a_domain_is_refused(kube: Kube) -> None:
    bare = preset("bare", {})
    del bare["spec"]["domain"]
    output = kube.kubectl("apply", "-f", "-", text=json.dumps(bare), code=1)
    assert "spec.domain: a preset without a domain gives nothing" in output, output
