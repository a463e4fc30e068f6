"""virtctl gives keys and passwords to guests: it writes Secrets, and names them in the machine."""

import base64
import contextlib
import pathlib
from collections.abc import Callable, Iterator

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE, Object
from garboard_e2e.cluster.objects import debian, machine
from garboard_e2e.cluster.person import Tool
from garboard_e2e.cluster.virtctl import SshKey
from garboard_e2e.cluster.virtctl import virtctl as client
from garboard_e2e.credentials import printed_password
from garboard_e2e.guests import DEBIAN
from garboard_e2e.outcome import Failure
from garboard_e2e.places import temporary_directory

USER = "debian"
# A boot under TCG takes less than a minute; not beside compilers.
BOOT = 900


@pytest.fixture(scope="module")
def virtctl(kube: Kube) -> Tool:
    return client(kube)


@pytest.fixture
def keys() -> Iterator[list[SshKey]]:
    with temporary_directory() as directory:
        places = [directory / name for name in ("first", "second", "nobody")]
        for place in places:
            place.mkdir()
        yield [SshKey(place) for place in places]


def credentials(kube: Kube, name: str) -> list[Object]:
    found: list[Object] = kube.get("vm", name)["spec"]["template"]["spec"].get("accessCredentials", [])
    return found


def texts(kube: Kube, secret: str) -> list[str]:
    """What a Secret holds."""
    data = kube.get("secret", secret).get("data") or {}
    return [base64.b64decode(each).decode().strip() for each in data.values()]


def test_virtctl_adds_and_removes_keys_of_a_machine(kube: Kube, virtctl: Tool, keys: list[SshKey]) -> None:
    first, second, _ = keys
    add, name = ["credentials", "add-ssh-key", "--user", USER], "keyed"
    kube.apply(machine(name, "Halted"))
    virtctl.run(*add, "--file", str(first.public_file), name)
    (credential,) = credentials(kube, name)
    key = credential["sshPublicKey"]
    assert key["propagationMethod"] == {"qemuGuestAgent": {"users": [USER]}}, credential
    secret = key["source"]["secret"]["secretName"]
    owner = kube.get("secret", secret)["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("VirtualMachine", name), owner
    assert texts(kube, secret) == [first.public]
    assert "Successfully added" in virtctl.run(*add, "--value", second.public, name)
    assert "already contains" in virtctl.run(*add, "--value", second.public, name)
    assert sorted(texts(kube, secret)) == sorted([first.public, second.public])
    virtctl.run("credentials", "remove-ssh-key", "--user", USER, "--value", first.public, name)
    assert texts(kube, secret) == [second.public]
    assert len(credentials(kube, name)) == 1


def test_a_password_that_virtctl_has_set_reaches_the_guest(kube: Kube, virtctl: Tool) -> None:
    """By the Secret that the machine names, and the guest's agent."""
    name = "locked"
    head = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}}
    method: Object = {"qemuGuestAgent": {}}
    credential = {"userPassword": {"source": {"secret": {"secretName": name}}, "propagationMethod": method}}
    kube.apply(
        head | {"stringData": {"nobody": "x"}}, machine(name, "Halted", tests="agent", accessCredentials=[credential])
    )
    change = ["credentials", "set-password", "--user", USER, "--password", "hemp", name]
    try:
        strange = virtctl.call(*change)
        assert strange.returncode != 0 and "does not have an owner reference" in strange.stderr, strange.stderr
        assert "Successfully set password" in virtctl.run(*change, "--force")
        assert sorted(texts(kube, name)) == ["hemp", "x"]
        virtctl.run("start", name)
        kube.runs(name)
        kube.prints(name, printed_password(USER, "hemp"))
        kube.becomes("vmi", name, "AccessCredentialsSynchronized")
    finally:
        kube.kubectl("delete", "secret", name)


@pytest.mark.long
def test_a_key_that_virtctl_has_added_opens_the_guest(
    kube: Kube, virtctl: Tool, keys: list[SshKey], guest: Callable[[str], pathlib.Path]
) -> None:
    """The agent writes it, and another one while the guest runs; cloud-init has a key that is used for nothing."""
    first, second, unused = keys
    name, add = "opened", ["credentials", "add-ssh-key", "--user", USER]

    def opens(key: SshKey) -> bool:
        with contextlib.suppress(Failure):
            target = f"{USER}@vmi/{name}"
            return virtctl.run("ssh", *key.options(), target, "--command", "hostname").strip() == name
        return False

    kube.load(guest(DEBIAN))
    kube.apply(debian(name, unused.public, "Halted"))
    virtctl.run(*add, "--file", str(first.public_file), name)
    virtctl.run("start", name)
    kube.runs(name)
    kube.prints(name, "cloud-init was here", seconds=BOOT)
    kube.becomes("vmi", name, "AgentConnected")
    kube.ask_until("the key that it was started with", lambda: opens(first))
    assert not opens(second)
    virtctl.run(*add, "--file", str(second.public_file), name)
    kube.ask_until("the key that was added", lambda: opens(second), BOOT)
