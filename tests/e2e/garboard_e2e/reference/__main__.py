"""`python3 -m garboard_e2e.reference`: see scripts/reference."""

import argparse
import collections
import pathlib
import sys

from ..cluster.build import Build
from ..cluster.shared import Shared
from ..outcome import Failure
from .preparation import prepare
from .suite import Spec, run

DEFAULT_LABEL = "conformance && sig-compute"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/reference")
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--suite", type=pathlib.Path, required=True)
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path("/tmp/garboard-reference"))
    parser.add_argument("--label", default=DEFAULT_LABEL)
    parser.add_argument("--focus", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep-cluster", action="store_true")
    return parser.parse_args()


def line(spec: Spec) -> str:
    failure = " ".join(spec.failure.split())[:200]
    return f"{spec.state:8} {spec.seconds:6.0f} s  {spec.text}" + (
        f"\n                    {failure}" if failure else ""
    )


def main() -> int:
    chosen = arguments()
    shared = Shared(Build.made(chosen.programs / "cluster"), "reference", lambda text: print(text, flush=True))
    try:
        kube = shared.empty()
        kube.install()
        prepare(kube, chosen.suite)
        specs = run(kube, chosen.suite / "suite", chosen.directory, chosen.label, chosen.focus, chosen.list)
    except Failure as failure:
        print(failure)
        return 2
    finally:
        if not chosen.keep_cluster:
            shared.down()
    for spec in specs:
        print(line(spec))
    counted = collections.Counter(spec.state for spec in specs)
    print(", ".join(f"{number} {state}" for state, number in sorted(counted.items())) or "nothing was selected")
    return 0


if __name__ == "__main__":
    sys.exit(main())
