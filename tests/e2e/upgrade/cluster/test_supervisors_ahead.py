"""Controllers and node agents go back, and the supervisors of running machines do not: once, however often machines are
taken from one version to the other."""

import functools
from collections.abc import Callable

from garboard_e2e.upgrade import Upgrade


def test_a_supervisor_of_today_works_with_a_node_agent_of_before(upgrade: Upgrade, note: Callable[[str], None]) -> None:
    kube, image = upgrade.kube, upgrade.today.images.launcher
    if not all(upgrade.has_image(image, name) for name in upgrade.names):
        upgrade.roll_out(upgrade.today)
    upgrade.each("a supervisor of today", functools.partial(upgrade.is_of, upgrade.today))
    restarts = upgrade.restarts()
    with kube.launchers_stay():
        kube.roll_out(upgrade.before.manifest)
        kube.ask_until("nodes that take machines", kube.offers_devices)
        # The leader of before has looked at supervisors, and leaves them alone.
        kube.ask_until("a KubeVirt object with that message", lambda: "UpdateDisabled" in upgrade.why_outdated())
        figures = upgrade.expect_same_guests()
        upgrade.each("a supervisor of today", functools.partial(upgrade.is_of, upgrade.today))
        kube.roll_out(upgrade.today.manifest)
        kube.ask_until("nodes that take machines", kube.offers_devices)
        kube.ask_until("a KubeVirt object without that message", lambda: not upgrade.why_outdated())
    figures = f"{figures}, and {upgrade.expect_same_guests()} with today's agents again"
    upgrade.each("the image of today", functools.partial(upgrade.has_image, image))
    assert upgrade.restarts() == restarts, f"supervisors were started again: {restarts} and {upgrade.restarts()}"
    note(figures)
