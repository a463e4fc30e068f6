"""`python3 -m garboard_e2e.reference`: see scripts/reference."""

import argparse
import pathlib
import sys

from ..cluster.build import Build
from ..cluster.shared import Shared
from ..outcome import Failure
from ..places import hold
from . import results, verdicts
from .campaign import Campaign, Outcome, prepared, summary
from .portions import in_order
from .prometheus import LABEL as OF_MONITORING
from .results import Result
from .suite import Suite

DEFAULT_LABEL = "conformance"
# The cluster's; eight letters at most.
NAME = "suite"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/reference")
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--suite", type=pathlib.Path, required=True)
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path("/tmp/garboard-reference"))
    parser.add_argument("--label", default=DEFAULT_LABEL)
    parser.add_argument("--focus", default="")
    parser.add_argument("--failures-first", action="store_true")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--without-known", action="store_true")
    parser.add_argument("--portion", type=int, default=16)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=24 * 60)
    parser.add_argument("--collect", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--list-all", action="store_true")
    parser.add_argument("--keep-cluster", action="store_true")
    return parser.parse_args()


def show(text: str) -> None:
    print(text, flush=True)


def keep_list(suite: Suite) -> None:
    """Every specification of the suite has a line among the results; those that it has no more have none."""
    lines = results.listed_with(suite.selected("", ""), results.load())
    results.save(lines)
    show(f"{len(lines)} specifications")


def chosen_results(chosen: argparse.Namespace, suite: Suite) -> list[Result]:
    """What is to be run, in this order. Pending ones cannot be."""
    every = map(results.listed, suite.selected(chosen.label, chosen.focus))
    listed = {result.text: result for result in every if result.state == ""}
    if chosen.without_known:
        known = verdicts.load()
        listed = {text: result for text, result in listed.items() if verdicts.about(result, known) is None}
    return [listed[text] for text in in_order(list(listed), results.load(), chosen.failures_first, chosen.new)]


def main() -> int:
    chosen = arguments()
    suite = Suite(hold(chosen.suite) / "suite", chosen.directory.resolve(), chosen.processes)
    try:
        if chosen.list_all:
            keep_list(suite)
            return 0
        listed = chosen_results(chosen, suite)
        if chosen.list or not listed:
            show("\n".join([*(result.text for result in listed), f"{len(listed)} specifications"]))
            return 0
        return run(chosen, suite, listed)
    except Failure as failure:
        show(str(failure))
        return 2


def run(chosen: argparse.Namespace, suite: Suite, listed: list[Result]) -> int:
    shared = Shared(Build.made(chosen.programs / "cluster"), NAME, show)
    campaign = Campaign(suite, chosen.portion, chosen.minutes * 60, chosen.collect, show)
    is_monitored = any(OF_MONITORING in result.labels for result in listed)
    try:
        with prepared(shared, suite, is_monitored=is_monitored) as kube:
            outcome = campaign.run(kube, [result.text for result in listed])
    finally:
        if not chosen.keep_cluster:
            shared.down()
    show(f"==== {summary(outcome.found)}; kept in {results.FILE}")
    return judged(outcome)


def judged(outcome: Outcome) -> int:
    """1 where one that no verdict is about failed, or one that was to be run has no result."""
    known = verdicts.load()
    failed = verdicts.unexpected(outcome.found, known)
    for why, texts in (
        ("failed, and no verdict says why", failed),
        ("has no result", outcome.lost),
        ("passes, and a verdict says that it does not", verdicts.outdated(outcome.found, known)),
    ):
        for text in texts:
            show(f"{why}: {text}")
    return int(bool(failed or outcome.lost))


if __name__ == "__main__":
    sys.exit(main())
