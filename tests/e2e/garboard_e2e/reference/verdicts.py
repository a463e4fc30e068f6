"""Why functional tests fail or do not apply: tests/reference/verdicts.tsv, and what a result comes to with it. Pure,
but for `load`."""

import dataclasses
import re
from collections.abc import Iterable

from ..places import REPOSITORY
from .results import LEFT_OUT, Result

FILE = REPOSITORY / "tests/reference/verdicts.tsv"
PASSES, FAILS, SKIPS, INAPPLICABLE, NEVER_RUN = (
    "passes",
    "fails",
    "left out by the suite",
    "does not apply",
    "never run",
)
OUTCOMES = (PASSES, FAILS, SKIPS, INAPPLICABLE, NEVER_RUN)
# Kinds of verdicts, and how their reasons are shown. Those of the first are about Garboard; those of the second about
# what is tested in its place, or what the tests would need of a cluster. What tests something that stands for a part of
# KubeVirt here says nothing of Garboard, not even where it passes.
FAILURES = {"later": "{why}; not yet", "never": "{why}; that stays so"}
STAND_IN = "stand-in"
ELSEWHERE = {
    "libvirt": "tests libvirt: {why}",
    "cluster": "needs what the test cluster has not: {why}",
    STAND_IN: "tests what only stands for a part of KubeVirt: {why}",
}
PENDING = "the suite marks it as pending and runs it nowhere"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """About the specifications whose subject (`Result.subject`) has the pattern in it."""

    pattern: re.Pattern[str]
    # One of `FAILURES` or `ELSEWHERE`.
    kind: str
    why: str


def parse(text: str) -> list[Verdict]:
    """A line has a regular expression, a kind and a reason."""
    found = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        pattern, kind, why = line.split("\t")
        if kind not in FAILURES | ELSEWHERE:
            raise ValueError(f"{kind!r} is none of {', '.join(FAILURES | ELSEWHERE)}: {line}")
        found.append(Verdict(re.compile(pattern), kind, why))
    return found


def load() -> list[Verdict]:
    return parse(FILE.read_text())


def about(result: Result, known: Iterable[Verdict]) -> Verdict | None:
    """The first one that is about it."""
    return next((each for each in known if each.pattern.search(result.subject)), None)


def judge(result: Result, known: Iterable[Verdict]) -> tuple[str, str]:
    """What the pages say of a specification, and why."""
    verdict = about(result, known)
    if result.state == "passed" and not (verdict and verdict.kind == STAND_IN):
        return PASSES, ""
    if result.state in LEFT_OUT:
        return SKIPS, PENDING if result.state == "pending" else result.failure
    if verdict and verdict.kind in ELSEWHERE:
        return INAPPLICABLE, ELSEWHERE[verdict.kind].format(why=verdict.why)
    if result.state == "":
        return NEVER_RUN, f"expected to fail: {verdict.why}" if verdict else ""
    return FAILS, FAILURES[verdict.kind].format(why=verdict.why) if verdict else result.failure


def unexpected(found: Iterable[Result], known: list[Verdict]) -> list[str]:
    """Of what was run: the texts of what failed without a verdict."""
    return [result.text for result in found if result.has_failed and about(result, known) is None]


def outdated(found: Iterable[Result], known: list[Verdict]) -> list[str]:
    """The texts of what passed although a verdict says that it fails, or does not apply. A stand-in may well pass."""
    verdicts = ((result.text, about(result, known)) for result in found if result.state == "passed")
    return [text for text, verdict in verdicts if verdict and verdict.kind != STAND_IN]
