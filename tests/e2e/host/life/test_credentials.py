"""Keys and passwords that the guest agent sets on a bare host, from the manifest of a Secret."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

from garboard_e2e.credentials import KEY, OTHER_KEY, by_agent, encoded, printed_keys, printed_password, secret
from garboard_e2e.machine import Machine

PASSWORD = "correct-horse-battery"


def start(machine: Machine, *secrets: dict[str, Any], users: tuple[str, ...] = ("root", "ada")) -> None:
    path = pathlib.Path(machine.manifest("agent"))
    manifest = json.loads(path.read_text())
    manifest["spec"]["accessCredentials"] = by_agent("keys", "passwords", *users)
    path.write_text(json.dumps(manifest))
    files = [path]
    for each in secrets:
        file = machine.directory / f"{each['metadata']['name']}.json"
        file.write_text(json.dumps(each))
        files.append(file)
    machine.run("run", "--detach", "--accel", "tcg", "--image", machine.image_option, *files)


def credentials(machine: Machine) -> dict[str, Any] | None:
    found: dict[str, Any] | None = (machine.status() or {}).get("accessCredentials")
    return found


def contents(*directories: pathlib.Path) -> Iterator[tuple[pathlib.Path, bytes]]:
    """What files have that outlive a look: sockets have nothing."""
    for directory in directories:
        for path in directory.rglob("*"):
            if path.is_file():
                yield path, path.read_bytes()


def expect_unwritten(password: str, *directories: pathlib.Path) -> None:
    seen = 0
    for path, content in contents(*directories):
        seen += 1
        for form in (password, encoded(password)):
            assert form.encode() not in content, f"the password is in {path}"
    assert seen, f"nothing is in {directories}"


def test_a_guest_gets_its_keys_and_passwords_again_after_a_reboot_and_no_log_has_them(machine: Machine) -> None:
    start(machine, secret("keys", ada=KEY, bob=f"{OTHER_KEY}\n"), secret("passwords", root=f"{PASSWORD}\n"))
    machine.wait_for("garboard-hello: agent")
    machine.wait("the credentials", lambda: (credentials(machine) or {}).get("synchronized"))
    wanted = [printed_keys(user, KEY, OTHER_KEY) for user in ("ada", "root")] + [printed_password("root", PASSWORD)]
    for line in wanted:
        assert line.encode() in machine.serial(), f"{line!r} is not in {machine.serial()!r}"
    machine.run("soft-reboot", machine.name)
    machine.wait("all of them again", lambda: all(machine.serial().count(line.encode()) >= 2 for line in wanted))
    assert credentials(machine) == {"synchronized": True, "message": ""}
    expect_unwritten(PASSWORD, machine.supervisor, machine.init)
    logs = [machine.machine / name for name in ("launcher.log", "shim.log")]
    assert not any(form.encode() in log.read_bytes() for log in logs for form in (PASSWORD, encoded(PASSWORD)))
    assert "access credentials" not in machine.run("why", machine.name)
    machine.run("stop", machine.name)
    machine.expect_end("stoppedGracefully")
    expect_unwritten(PASSWORD, machine.records()[-1])


def test_a_guest_without_the_user_is_explained(machine: Machine) -> None:
    start(machine, secret("keys", ada=KEY), secret("passwords", absent=PASSWORD), users=("ada",))
    machine.wait("a try", lambda: "password of user absent" in (credentials(machine) or {}).get("message", ""))
    found = credentials(machine)
    assert found and not found["synchronized"] and "this guest has no such user" in found["message"], found
    assert "not all access credentials are in its guest" in machine.run("why", machine.name)
    assert printed_keys("ada", KEY).encode() in machine.serial(), "the keys do not wait for the password"
    machine.run("stop", machine.name)
    machine.expect_end("stoppedGracefully")


def test_a_secret_that_was_not_given_is_asked_for(machine: Machine) -> None:
    path = pathlib.Path(machine.manifest("agent"))
    manifest = json.loads(path.read_text())
    manifest["spec"]["accessCredentials"] = by_agent("keys", "passwords", "root")
    path.write_text(json.dumps(manifest))
    output = machine.run("run", "--detach", "--image", machine.image_option, path, code=2)
    for index, name in enumerate(("keys", "passwords")):
        expected = f"spec.accessCredentials[{index}]: Secret default/{name} is not in the given files"
        assert expected in output, output
