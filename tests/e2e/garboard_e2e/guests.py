"""The test guests: images that scripts/guest-* make once and keep in the cache."""

import pathlib
import subprocess

from .outcome import Failure
from .places import SCRIPTS, hold

HELLO, HELLO_PC = "registry.garboard.dev/hello:1", "registry.garboard.dev/hello-pc:1"
# As hello-pc, with the logins of Alpine Linux and CirrOS.
ALPINE, CIRROS = "registry.garboard.dev/hello-alpine:1", "registry.garboard.dev/hello-cirros:1"
# The first of them with a guest agent.
ALPINE_TOOLS = "registry.garboard.dev/hello-alpine-tools:1"
# Debian with the login of Fedora.
FEDORA = "registry.garboard.dev/debian-as-fedora:12"
# No guest: what a pod of KubeVirt's functional tests has, a shell and a few commands.
TOOLS = "registry.garboard.dev/reference-tools:1"
# No guest: the name server of their cluster.
NAMES = "registry.garboard.dev/reference-dns:1"
# No guest: what stands for virt-handler there.
HANDLER = "registry.garboard.dev/reference-handler:1"
# No guest: the Prometheus that their tests of monitoring ask.
PROMETHEUS = "registry.garboard.dev/reference-prometheus:1"
DEBIAN, BOOTSECTOR = "registry.garboard.dev/debian:12", "registry.garboard.dev/bootsector:1"
# The script, and its arguments, that makes the image of a reference.
RECIPES = {
    HELLO: ["guest-hello"],
    HELLO_PC: ["guest-hello", "pc"],
    ALPINE: ["guest-hello", "alpine"],
    ALPINE_TOOLS: ["guest-hello", "alpine-tools"],
    CIRROS: ["guest-hello", "cirros"],
    FEDORA: ["guest-debian", "fedora"],
    TOOLS: ["reference-tools"],
    NAMES: ["reference-dns"],
    HANDLER: ["reference-handler"],
    PROMETHEUS: ["reference-prometheus"],
    DEBIAN: ["guest-debian"],
    BOOTSECTOR: ["guest-bootsector"],
}
# What the kernels of examples/ have too: on a busy host the emulated timer is late, and a kernel would panic.
PATIENT = "cryptomgr.notests no_timer_check"


def layout(reference: str) -> pathlib.Path:
    """The OCI layout of a guest, made where it is not in the cache."""
    return made_by(*RECIPES[reference])


def roms() -> pathlib.Path:
    """The directory of the guests that are a firmware of their own."""
    return made_by("guest-rom")


def made_by(script: str, *arguments: str) -> pathlib.Path:
    made = subprocess.run([SCRIPTS / script, *arguments], stdout=subprocess.PIPE, text=True)
    if made.returncode != 0:
        raise Failure(f"scripts/{' '.join([script, *arguments])} ended with {made.returncode}")
    return hold(pathlib.Path(made.stdout.strip()))


def image(reference: str) -> str:
    """The option that takes a guest for an image."""
    return f"--image={reference}={layout(reference)}"
