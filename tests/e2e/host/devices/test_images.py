"""Images from a registry on loopback, and the cache that they are kept in."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Iterator

import pytest

from garboard_e2e.guests import HELLO
from garboard_e2e.machine import Machine
from garboard_e2e.namespace import Namespace
from garboard_e2e.patience import PATIENCE
from garboard_e2e.registry import PASSWORD, USER, Registry
from garboard_e2e.terminal import shell

NAMESPACE = "images"
ADDRESS = r"garboard-hello: address \S+"


@pytest.fixture(scope="module", autouse=True)
def cache(namespace: Namespace) -> pathlib.Path:
    """A cache of these tests' own."""
    place = namespace.directory / "cache"
    namespace.environment["GARBOARD_CACHE_DIR"] = str(place)
    return place


@dataclasses.dataclass(frozen=True)
class Pulled:
    """An image that came from a registry, which is away now."""

    reference: str
    address: str
    screen: str
    missing: str


@pytest.fixture(scope="module")
def pulled(namespace: Namespace, hello: pathlib.Path) -> Pulled:
    with Registry(namespace.directory / "registry") as registry:
        reference = registry.push(hello, "team/hello")
        terminal = namespace.terminal("run", namespace.example("vm-hello", (HELLO, reference)))
        terminal.expect(ADDRESS, PATIENCE)
        terminal.type(b"poweroff\n")
        terminal.expect_end(PATIENCE)
        missing = namespace.run("image", "pull", f"{registry.address}/team/nothing:1", code=2)
        return Pulled(reference, registry.address, terminal.shown.decode(errors="replace"), missing)


@pytest.fixture(scope="module")
def second_run(namespace: Namespace, pulled: Pulled) -> Iterator[str]:
    """A machine that goes on until its tests are over."""
    machine = namespace.id("hello")
    namespace.run("run", "--detach", namespace.example("vm-hello", (HELLO, pulled.reference)))
    yield machine
    namespace.run("stop", machine)


def test_a_machine_boots_from_a_registry_with_progress_on_the_terminal(pulled: Pulled) -> None:
    progress = [f"looking for {re.escape(pulled.reference)}", r"\d MiB/\d+\.\d+ MiB", ADDRESS]
    assert re.search("(?s)" + ".*?".join(progress), pulled.screen), pulled.screen


def test_an_image_that_the_registry_does_not_have_is_named(pulled: Pulled) -> None:
    assert "team/nothing:1" in pulled.missing, f"an image that is not there: {pulled.missing}"


def test_a_second_run_needs_no_registry(namespace: Namespace, second_run: str) -> None:
    namespace.wait_for_serial("hello", ADDRESS)


def test_image_list_and_prune_while_the_machine_runs_which_keeps_its_disk(
    namespace: Namespace, pulled: Pulled, second_run: str, cache: pathlib.Path
) -> None:
    namespace.wait_for_serial("hello", ADDRESS)
    listed = [one["reference"] for one in namespace.json("image", "list", "-o", "json")]
    assert listed == [pulled.reference]
    assert pulled.reference in namespace.run("image", "list")
    namespace.run("image", "prune")
    assert not namespace.json("image", "list", "-o", "json"), "after prune no image should be listed"
    left = [path for path in (cache / "images").rglob("*") if path.is_file() and path.stat().st_size > 4096]
    assert not left, f"prune left {left}"
    console = namespace.terminal("console", second_run)
    console.expect(ADDRESS, PATIENCE)
    console.type(b"\n")
    shell(console, "settle; dd if=/dev/vda of=/dev/null bs=1M iflag=direct", PATIENCE)
    console.detach(PATIENCE)


def test_a_registry_that_is_away_is_named(namespace: Namespace, pulled: Pulled) -> None:
    disk = f"containerDisk:\n            image: {pulled.reference}"
    always = (disk, f"{disk}\n            imagePullPolicy: Always")
    # Another machine: the one of the second run may be there still.
    another = ("  name: hello\n", "  name: away\n")
    output = namespace.run(
        "run", "--detach", namespace.example("vm-hello", (HELLO, pulled.reference), always, another), code=2
    )
    assert pulled.address in output, f"a registry that does not answer should be named: {output}"


def test_credentials_come_from_docker_s_config_json_without_them_the_refusal_says_so(
    namespace: Namespace, hello: pathlib.Path
) -> None:
    with Registry(namespace.directory / "private", password=True) as registry:
        reference = registry.push(hello, "team/hello")
        docker = namespace.directory / "docker"
        docker.mkdir()
        output = namespace.run("image", "pull", reference, code=2, DOCKER_CONFIG=str(docker))
        is_named = "docker login" in output or "credentials" in output
        assert is_named, f"a user who is not let in should read of credentials: {output}"
        config = {"auths": {registry.address: {"username": USER, "password": PASSWORD}}}
        (docker / "config.json").write_text(json.dumps(config))
        path = namespace.run("image", "pull", reference, DOCKER_CONFIG=str(docker)).strip()
        assert pathlib.Path(path).is_file(), f"image pull should print the disk's path: {path!r}"


def test_machines_reach_a_cache_whatever_the_umask_of_the_first_command_was(machine: Machine) -> None:
    place = machine.directory / "cache"
    machine.environment["GARBOARD_CACHE_DIR"] = str(place)
    machine.run("image", "list", around=["sh", "-c", 'umask 077 && exec "$@"', "sh"])
    machine.start()
    machine.run("stop", "--force", machine.name)
    place.chmod(0o700)
    output = machine.run("run", "--detach", "--image", machine.image_option, machine.manifest(""), code=1)
    assert f"{place} is closed to it; `chmod o+x {place}`" in output, f"a cache that is closed: {output}"
    assert not machine.machine.exists()
