"""One release for all tests here, and a machine that runs from the first one to the last."""

import json
import pathlib
from collections.abc import Iterator

import pytest

from garboard_e2e.chart import CHART, call
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, Object
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.shared import Shared
from garboard_e2e.outcome import Failure
from garboard_e2e.patience import PATIENCE
from garboard_e2e.places import temporary_directory

RELEASE, MACHINE = "garboard", "hello"
SECONDS = 2 * PATIENCE


class Release:
    """The release, and the values that it has been given last."""

    def __init__(self, kube: Kube, directory: pathlib.Path) -> None:
        self.kube, self.file = kube, directory / "values.json"
        # Images may be of another version than the chart in the tree.
        self.values: Object = {"image": {"tag": kube.images.launcher.rpartition(":")[2]}}

    def helm(self, *arguments: str, code: int = 0) -> str:
        """What helm prints; it must end with this code."""
        self.file.write_text(json.dumps(self.values))
        command = [*arguments, "--namespace", INSTALLED_IN]
        done = call(*command, environment=self.kube.environment, seconds=SECONDS + 60)
        if done.returncode != code:
            raise Failure(f"`helm {' '.join(command)}` ended with {done.returncode}, not {code}: {done.stderr[-900:]}")
        return done.stdout + done.stderr

    def put(self, command: str, code: int = 0) -> str:
        """Installs it, or upgrades it, and waits until everything is ready."""
        waiting = ["--wait", "--timeout", f"{SECONDS:.0f}s"]
        return self.helm(command, RELEASE, str(CHART), "--values", str(self.file), *waiting, code=code)

    def uninstall(self) -> None:
        self.helm("uninstall", RELEASE, "--wait", "--timeout", f"{SECONDS:.0f}s")


def ratio(of: int) -> Object:
    """Settings of the cluster."""
    return {"spec": {"configuration": {"developerConfiguration": {"cpuAllocationRatio": of}}}}


@pytest.fixture(scope="package")
def kube(shared: Shared) -> Iterator[Kube]:
    kube = shared.empty()
    yield kube
    kube.recorder.stop()


@pytest.fixture(scope="package")
def release(kube: Kube) -> Iterator[Release]:
    """Installed, with settings, into a namespace that only exists and has the label for Pod Security."""
    with temporary_directory() as directory:
        release = Release(kube, directory)
        kube.kubectl("create", "namespace", INSTALLED_IN, namespace=None)
        privileged = "pod-security.kubernetes.io/enforce=privileged"
        kube.kubectl("label", "namespace", INSTALLED_IN, privileged, namespace=None)
        release.values |= {"kubevirt": ratio(8), "commonInstancetypes": {"enabled": True}}
        release.put("install")
        kube.settle()
        yield release


@pytest.fixture(scope="package")
def runs(kube: Kube, release: Release) -> str:
    """The UID of the instance of a machine that was started once."""
    return kube.start(machine(MACHINE))[0]
