"""Hosts that are full, read-only, busy or without what is needed."""

import os
import pathlib
import socket
from collections.abc import Iterator

import pytest

from garboard_e2e.places import EXAMPLES
from garboard_e2e.refusals import INSTANCE, Bad, Bench, Object, instance, mounted, with_volume

CLAIM = [
    with_volume({"persistentVolumeClaim": {"claimName": "data"}}),
    {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"resources": {"requests": {"storage": "1Gi"}}},
    },
]
# /dev without kvm, in a mount namespace of the command's own.
WITHOUT_KVM = """
new=$(mktemp -d) && mount -t tmpfs tmpfs "$new" && mkdir "$new/net" "$new/shm" &&
for device in null zero full random urandom tty net/tun; do cp -a "/dev/$device" "$new/$device" 2>/dev/null; done
ln -s /proc/self/fd "$new/fd"; mount --move "$new" /dev; rmdir "$new"; exec "$@"
"""


@pytest.fixture(scope="module")
def full(bench: Bench) -> Iterator[pathlib.Path]:
    """A file system that a machine is too large for."""
    with mounted(bench.directory / "full", "size=64k,mode=755") as place:
        yield place


@pytest.fixture(scope="module")
def fixed(bench: Bench) -> Iterator[pathlib.Path]:
    """A file system that cannot be written to."""
    with mounted(bench.directory / "fixed", "ro") as place:
        yield place


def hello() -> str:
    return (EXAMPLES / "vm-hello.yaml").read_text().replace("name: hello", "name: refused", 1)


def networked() -> Object:
    return instance(
        spec__networks=[{"name": "default", "pod": {}}],
        spec__domain__devices__interfaces=[{"name": "default", "masquerade": {}}],
    )


def fill(directory: pathlib.Path) -> pathlib.Path:
    """Fills a file system to the last byte."""
    try:
        with open(directory / "filler", "wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
    except OSError:
        return directory


def variable(name: str, value: os.PathLike[str]) -> dict[str, str]:
    return {name: os.fspath(value)}


def test_no_space_for_overlays(bench: Bench, full: pathlib.Path) -> None:
    state = variable("GARBOARD_STATE_DIR", full)
    patterns = ("root", str(full), "free|space")
    bench.refuses(Bad(patterns, INSTANCE, has_image=True, code=1, environment=state))


def test_no_space_for_a_claim(bench: Bench, full: pathlib.Path) -> None:
    state = variable("GARBOARD_STATE_DIR", full)
    bench.refuses(Bad(("claim default/data", str(full), "free"), CLAIM, has_image=True, environment=state))


def test_no_space_for_images(bench: Bench, full: pathlib.Path) -> None:
    cache = variable("GARBOARD_CACHE_DIR", full)
    bench.refuses(Bad((str(full), "free|space"), hello(), options=("--image", bench.image), environment=cache))


def test_no_space_for_the_machine_s_directory(bench: Bench, full: pathlib.Path) -> None:
    runtime = variable("GARBOARD_RUNTIME_DIR", fill(full))
    bench.refuses(Bad((str(full), "space"), INSTANCE, has_image=True, code=1, environment=runtime))


def test_a_read_only_state_directory(bench: Bench, fixed: pathlib.Path) -> None:
    state = variable("GARBOARD_STATE_DIR", fixed)
    patterns = (str(fixed), "[Rr]ead-only", "--state-dir")
    bench.refuses(Bad(patterns, INSTANCE, has_image=True, code=1, environment=state))


def test_a_read_only_runtime_directory(bench: Bench, fixed: pathlib.Path) -> None:
    runtime = variable("GARBOARD_RUNTIME_DIR", fixed)
    patterns = (str(fixed), "[Rr]ead-only", "GARBOARD_RUNTIME_DIR")
    bench.refuses(Bad(patterns, INSTANCE, has_image=True, code=1, environment=runtime))


def test_a_read_only_image_cache(bench: Bench, fixed: pathlib.Path) -> None:
    cache = variable("GARBOARD_CACHE_DIR", fixed)
    bench.refuses(Bad((str(fixed), "[Rr]ead-only"), hello(), options=("--image", bench.image), environment=cache))


def test_a_runtime_directory_that_is_too_long(bench: Bench) -> None:
    long = variable("GARBOARD_RUNTIME_DIR", bench.directory / ("x" * 80))
    patterns = ("x" * 80, "shorter|GARBOARD_RUNTIME_DIR")
    bench.refuses(Bad(patterns, INSTANCE, has_image=True, environment=long))


def test_a_port_in_use(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        publish = ("-p", f"127.0.0.1:{port}:80")
        bench.refuses(Bad((str(port), "in use|taken"), networked(), options=publish, has_image=True, code=1))


def test_no_dev_kvm(bench: Bench) -> None:
    bench.refuses(
        Bad(
            ("/dev/kvm|KVM", "--accel"),
            INSTANCE,
            options=("--accel", "kvm"),
            has_image=True,
            prefix=("unshare", "-m", "sh", "-c", WITHOUT_KVM, "sh"),
            code=1,
            environment=variable("GARBOARD_CACHE_DIR", bench.directory / "cache2"),
        )
    )
