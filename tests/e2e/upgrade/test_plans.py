"""What guests find: the version before and this checkout plan every golden machine, and `explain --diff` of this
checkout compares the two plans. What the command does not take (several networks, devices that the reference host has
not) is compared as the tests of both versions recorded it. Nothing is started."""

import dataclasses
import json
import pathlib
import re
import subprocess
from typing import Any

import pytest
import yaml

from garboard_e2e import names
from garboard_e2e.places import REPOSITORY
from garboard_e2e.versions import Version, printed

GOLDEN = REPOSITORY / "tests/golden"
MACHINES = sorted(file.parent.name for file in GOLDEN.glob("*/vmi.yaml"))
# How `explain --diff` ends.
SAME, ANOTHER = 0, 8


@dataclasses.dataclass(frozen=True)
class Change:
    """A difference that is wanted."""

    # When it came, as versions have the time of their commit: YYYYMMDDHHMMSS. A version before that is not older has
    # it already.
    since: str
    reason: str


# By the name of the golden machine: what a guest finds that is started for the first time.
OF_NEW_MACHINES: dict[str, Change] = {}
# What one finds that ran with the version before: no change of a version may reach it, unless its reason is here.
OF_KEPT_MACHINES: dict[str, Change] = {}


def expected(changes: dict[str, Change], machine: str, before: Version) -> int:
    time = re.search(r"-dev\.(\d{14})\.", before.name)
    change = changes.get(machine)
    return ANOTHER if change and (time is None or time[1] < change.since) else SAME


class Plans:
    """What both versions plan, in files."""

    def __init__(self, before: Version, today: Version, directory: pathlib.Path) -> None:
        self.before, self.today, self.directory = before, today, directory
        self.firsts: dict[str, Any] = {}

    def explain(self, version: Version, *arguments: str | pathlib.Path) -> subprocess.CompletedProcess[str]:
        command = [version.programs / names.COMMAND, "explain", *arguments]
        return subprocess.run(command, text=True, capture_output=True, stdin=subprocess.DEVNULL)

    def written(self, name: str, value: Any) -> pathlib.Path:
        file = self.directory / name
        file.write_text(json.dumps(value))
        return file

    def plan(self, version: Version, machine: str, stored: Any = None) -> Any:
        """For the reference host, with what the machine's host.yaml has of volumes and interfaces. Where it is refused,
        the error."""
        file = GOLDEN / machine / "host.yaml"
        host = yaml.safe_load(file.read_text()) if file.exists() else {}
        options: list[str | pathlib.Path] = []
        if "options" in host:
            options += ["--options", self.written(f"{machine}-options.json", host["options"])]
        if stored is None and "storedFrom" in host:
            stored = self.plan(version, host["storedFrom"])["stored"]
        if stored is not None:
            options += ["--stored", self.written(f"{machine}-stored.json", stored)]
        done = self.explain(version, "--reference", "-o", "json", *options, GOLDEN / machine / "vmi.yaml")
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()

    def first(self, machine: str) -> Any:
        """That of the version before."""
        if machine not in self.firsts:
            self.firsts[machine] = self.plan(self.before, machine)
        return self.firsts[machine]

    def compare(self, before: Any, after: Any) -> tuple[int, str]:
        """How `explain --diff` ends, and what it prints."""
        assert isinstance(after, dict), f"the version before plans it, and this one refuses it: {after}"
        done = self.explain(
            self.today, "--diff", self.written("before.json", before), self.written("after.json", after)
        )
        return done.returncode, done.stdout + done.stderr


def recorded(version: Version, machine: str) -> dict[str, Any]:
    """The plan that is in the sources of a version, which its own tests compare."""
    home = version.source / "tests/golden" / machine
    if not home.exists():
        pytest.skip(f"{version.name} has no such golden machine")
    plan: dict[str, Any] = json.loads((home / "plan.json").read_text())
    return plan | {"argv": arguments((home / "argv.txt").read_text())}


def arguments(text: str) -> list[str]:
    """Those of argv.txt, which has an option and its value in one line."""
    found: list[str] = []
    for line in text.splitlines():
        option, space, value = line.partition(" ")
        found += [option, value] if line.startswith("-") and space else [line]
    return found


@pytest.fixture(scope="module")
def plans(versions: dict[str, Version], tmp_path_factory: pytest.TempPathFactory) -> Plans:
    before = versions["before"]
    usage = printed([before.programs / names.COMMAND, "explain", "--help"])
    if lacking := [option for option in ("--reference", "--output", "--stored") if option not in usage]:
        pytest.skip(f"`explain` of {before.name} has no {', '.join(lacking)}")
    return Plans(before, versions["today"], tmp_path_factory.mktemp("plans"))


@pytest.mark.parametrize("machine", MACHINES)
def test_a_new_guest_finds_the_machine_that_the_version_before_gave_it(plans: Plans, machine: str) -> None:
    before = plans.first(machine)
    if isinstance(before, dict):
        after = plans.plan(plans.today, machine)
    else:
        before, after = (recorded(version, machine) for version in (plans.before, plans.today))
    code, output = plans.compare(before, after)
    assert code == expected(OF_NEW_MACHINES, machine, plans.before), output


@pytest.mark.parametrize("machine", MACHINES)
def test_a_guest_that_ran_with_the_version_before_finds_its_machine_again(plans: Plans, machine: str) -> None:
    before = plans.first(machine)
    if not isinstance(before, dict):
        pytest.skip(f"{plans.before.name} does not plan it: {before}")
    code, output = plans.compare(before, plans.plan(plans.today, machine, before["stored"]))
    assert code == expected(OF_KEPT_MACHINES, machine, plans.before), output


def test_a_change_counts_as_long_as_the_version_before_is_older(plans: Plans) -> None:
    """How the lists above are read, and that a difference is found at all."""
    of = {"hello": Change("20261127120000", "an example")}

    def before(name: str) -> Version:
        return dataclasses.replace(plans.before, name=name)

    for name, code in (
        ("0.1.0-dev.20261127115959.g72c849a", ANOTHER),
        ("0.1.0-dev.20261127120000.g72c849a", SAME),
        ("0.1.0", ANOTHER),
    ):
        assert expected(of, "hello", before(name)) == code, name
    assert expected(of, "bare", before("0.1.0")) == SAME
    plan = recorded(plans.today, "hello")
    other = plan | {"argv": [argument.replace("size=", "size=9", 1) for argument in plan["argv"]]}
    assert (plans.compare(plan, plan)[0], plans.compare(plan, other)[0]) == (SAME, ANOTHER)
