"""KubeVirt's virt-controller, measured as ours is: with --reference."""

from collections.abc import Callable

from garboard_e2e.cluster.shared import Shared
from garboard_e2e.scale import reference
from garboard_e2e.scale.played import Played, markdown


def test_virt_controller_starts_as_many(
    empty: Callable[[], Played], shared: Shared, show: Callable[[str], None]
) -> None:
    programs = reference.programs()
    # A cluster of its own, after ours.
    shared.down()
    played = empty()
    try:
        reference.install(played, programs)
        with reference.controller(played, programs) as process:
            played.play("handler")
            rows = [row for prefix in ("first", "second") for row in reference.half(played, process, prefix)]
    finally:
        played.end()
        shared.down()
    show(markdown([f"{played.options.instances} instances", "virt-controller v1.7.0"], rows))
