"""On this host, where the shim is what the node agent is on a cluster: every shim, PID 1 and supervisor of both
versions start a machine under load together, whose supervisor is then exchanged again and again. In a pod a supervisor
of today launches through a PID 1 of before where the sidecar got its new image before QEMU was started."""

import itertools
import os
import pathlib
import re
import shutil
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from garboard_e2e import names
from garboard_e2e.care import looked_after
from garboard_e2e.machine import Machine
from garboard_e2e.outcome import Failure
from garboard_e2e.versions import Version

AGES = ("before", "today")


class Mixed(Machine):
    """A machine whose processes are of two versions."""

    def __init__(self, parts: dict[str, Version], image: pathlib.Path, directory: pathlib.Path) -> None:
        self.place = directory / "programs"
        self.place.mkdir()
        self.place.chmod(0o755)
        for program, version in parts.items():
            self.put(program, version)
        super().__init__(self.place, image, directory)

    def put(self, program: str, version: Version) -> None:
        """The next process of this program is of that version."""
        fresh = self.place / f".{program}"
        shutil.copy(version.programs / program, fresh)
        fresh.rename(self.place / program)

    def exchange_supervisor(self, version: Version) -> dict[str, Any]:
        """Ends the supervisor; the shim starts the one that was put in its place. Its status of a guest that runs."""
        old = self.only(names.SUPERVISOR)
        self.put(names.SUPERVISOR, version)
        os.kill(old, signal.SIGKILL)
        self.wait("another supervisor", lambda: [each for each in self.processes(names.SUPERVISOR) if each != old])

        def of_a_guest() -> dict[str, Any] | None:
            status = self.status_in("Running")
            return status if status and status["machine"] else None

        return self.wait("its status of a guest that runs", of_a_guest)

    def goes_on(self) -> None:
        """The guest writes to its disk and prints so, through the new supervisor."""
        seen = self.rounds()
        self.wait("more rounds of disk load", lambda: self.rounds() > seen + 1)
        if wrong := re.search(rb"garboard-hello: disk-load: .*", self.serial()):
            raise Failure(f"the guest noticed: {wrong[0].decode()}")

    def rounds(self) -> int:
        return max((int(number) for number in re.findall(rb"disk-load (\d+)", self.serial())), default=0)

    def is_listed_by(self, version: Version) -> bool:
        """Whether the command of this version prints that it runs, and nothing else."""
        own, self.garboard = self.garboard, str(version.programs / names.COMMAND)
        try:
            return [each["name"] for each in self.machines()] == [self.name]
        finally:
            self.garboard = own


def named(ages: tuple[str, str, str]) -> str:
    shim, init, supervisor = ages
    return f"shim of {shim}, PID 1 of {init}, launched by {supervisor}"


@pytest.fixture(params=itertools.product(AGES, repeat=3), ids=named)
def mixed(
    request: pytest.FixtureRequest, versions: dict[str, Version], hello: pathlib.Path, directory: pathlib.Path
) -> Iterator[Mixed]:
    """A machine of both versions, not started yet."""
    shim, init, supervisor = (versions[age] for age in request.param)
    parts = {names.COMMAND: shim, names.SHIM: shim, names.INIT: init, names.SUPERVISOR: supervisor}
    # Earlier commits have the shim in the command.
    present = {program: version for program, version in parts.items() if (version.programs / program).exists()}
    yield from looked_after(request, Mixed(present, hello, directory))


def test_supervisors_of_both_versions_follow_each_other_and_the_guest_does_not_notice(
    mixed: Mixed, versions: dict[str, Version], times: int, note: Callable[[str], None]
) -> None:
    mixed.start("disk-load")
    mixed.wait_for_shell()
    qemu, init = mixed.qemu, mixed.only(names.INIT)
    first = last = mixed.reported_status()
    took = []
    for age in [*reversed(AGES), *AGES] * times:
        began = time.monotonic()
        status = mixed.exchange_supervisor(versions[age])
        took.append(time.monotonic() - began)
        assert status["generation"] > last["generation"], f"{status['generation']} follows {last['generation']}"
        assert status["resets"] == first["resets"], f"the guest was reset {status['resets']} times"
        assert (mixed.qemu, mixed.only(names.INIT)) == (qemu, init), "QEMU or PID 1 is another process"
        mixed.goes_on()
        for version in versions.values():
            assert mixed.is_listed_by(version), f"`garboard ps` of {version.name} does not list the machine"
        last = mixed.reported_status()
    mixed.run("stop", mixed.name)
    mixed.expect_end("stoppedGracefully")
    note(f"{len(took)} supervisors, each {statistics.median(took):.1f} s (median), {max(took):.1f} s at most")
