"""A whole installation is upgraded and taken back, with machines that run, --times often."""

import functools
from collections.abc import Callable

from garboard_e2e.cluster.objects import machine
from garboard_e2e.upgrade import AgentAbsence, Upgrade, powers_down


def test_controllers_agents_and_supervisors_are_upgraded_and_no_guest_notices(
    upgrade: Upgrade, time: int, note: Callable[[str], None]
) -> None:
    """A machine that ends meanwhile is reported to have ended."""
    kube = upgrade.kube
    kube.start(machine("leaves", "Once"))
    kube.has_shell("leaves")

    def leave() -> None:
        with AgentAbsence(kube, "leaves"):
            kube.ask_until("the end of a guest that powers down", functools.partial(powers_down, kube, "leaves"))

    figures = upgrade.roll_out(upgrade.today, meanwhile=leave)
    kube.remove("leaves")
    upgrade.each("a supervisor of today", functools.partial(upgrade.is_of, upgrade.today))
    note(f"{figures}; {upgrade.expect_same_guests()}")


def test_supervisors_go_back(upgrade: Upgrade, time: int, note: Callable[[str], None]) -> None:
    """By the controller of today, which gives new pods the launcher's image of before, too."""
    figures = upgrade.roll_out(upgrade.today, launcher=upgrade.before.images.launcher)
    note(f"{figures}; {upgrade.expect_same_guests()}")


def test_controllers_and_agents_go_back(upgrade: Upgrade, time: int, note: Callable[[str], None]) -> None:
    upgrade.kube.roll_out(upgrade.before.manifest)
    upgrade.kube.ask_until("nodes that take machines", upgrade.kube.offers_devices)
    note(upgrade.expect_same_guests())
