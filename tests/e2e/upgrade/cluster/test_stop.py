"""A roll-out that fails: the first supervisor gets its image back, and no other one is touched."""

import functools
from collections.abc import Callable

from garboard_e2e.upgrade import Upgrade, expect_stopped

MISSING = "registry.garboard.dev/garboard/launcher:is-nowhere"


def test_an_image_that_cannot_be_had_is_put_back_and_stops_the_roll_out(
    upgrade: Upgrade, note: Callable[[str], None]
) -> None:
    kube, image, before = upgrade.kube, upgrade.before.images.launcher, upgrade.restarts()
    kube.roll_out(upgrade.today.manifest_with(MISSING))
    expect_stopped(upgrade)
    upgrade.each("the image of before", functools.partial(upgrade.has_image, image))
    upgrade.each("a supervisor", upgrade.has_supervisor)
    failed = [name for name in upgrade.names if failure_of(upgrade, name) == "LauncherUpdateFailed"]
    touched = [name for name, restarts in upgrade.restarts().items() if restarts > before[name]]
    assert len(failed) == 1 and touched == failed, f"{failed} report that they failed, and {touched} were started again"
    # Another image begins anew.
    figures = upgrade.roll_out(upgrade.today)
    note(f"{figures}; {upgrade.expect_same_guests()}")


def failure_of(upgrade: Upgrade, name: str) -> str:
    return str(upgrade.kube.condition("vmi", name, "garboard.dev/OutdatedLauncher").get("reason", ""))
