"""KubeVirt's own client, unmodified, on a test cluster."""

import pathlib
import subprocess

from ..places import SCRIPTS
from .kube import Kube
from .names import NAMESPACE
from .person import Tool


def virtctl(kube: Kube) -> Tool:
    """The program, built from KubeVirt's Go module the first time, in the namespace of machines."""
    made = subprocess.run([SCRIPTS / "fetch-reference", "virtctl"], check=True, stdout=subprocess.PIPE, text=True)
    program = pathlib.Path(made.stdout.strip()) / "virtctl"
    return Tool(kube.environment, (str(program), "--namespace", NAMESPACE))
