"""The part of docs/compatibility.md that says what the functional tests came to: scripts/reference-table. Pure, but for
`main` and `verdicts`."""

import collections
import dataclasses
import re
import sys
from collections.abc import Iterable

from ..places import REPOSITORY
from .results import Result, load

PAGE = REPOSITORY / "docs/compatibility.md"
VERDICTS = REPOSITORY / "tests/reference/verdicts.tsv"
BEGIN, END = "<!-- generated: functional tests -->\n", "<!-- end -->"
CONFORMANCE = "conformance"
GROUPS = ("sig-compute", "sig-network", "sig-storage", "sig-operator", "sig-monitoring", "sig-compute-migrations")
PASSES, FAILS, INAPPLICABLE, NEVER_RUN = "passes", "fails", "does not apply", "never run"
# What may be shown of a specification's text and of a reason, in characters: a cell of a table has at most 200.
TEXT, REASON = 150, 190
# Brackets that name requirements in a tracker, or repeat labels; numbers of tests are kept.
TRACKER = re.compile(
    r"\[(?:rfe_id|ref_id|crit|vendor|level|posneg|label|sig-|release-blocker|storage-req|virtctl)[^\]]*\]\s*"
)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Why specifications fail, or do not apply."""

    pattern: re.Pattern[str]
    # `does not apply`, `later` or `never`.
    kind: str
    why: str


def parse_verdicts(text: str) -> list[Verdict]:
    """A line has a regular expression for the text of specifications, a kind and a reason; the first one counts."""
    found = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        pattern, kind, why = line.split("\t")
        if kind not in (INAPPLICABLE, "later", "never"):
            raise ValueError(f"{kind!r} is none of `{INAPPLICABLE}`, `later` and `never`: {line}")
        found.append(Verdict(re.compile(pattern), kind, why))
    return found


def verdicts() -> list[Verdict]:
    return parse_verdicts(VERDICTS.read_text())


def judge(result: Result, known: Iterable[Verdict]) -> tuple[str, str]:
    """What the page says of a specification, and why."""
    verdict = next((each for each in known if each.pattern.search(result.text)), None)
    if result.state == "passed":
        return PASSES, ""
    if verdict and verdict.kind == INAPPLICABLE:
        return INAPPLICABLE, verdict.why
    if result.state == "":
        return NEVER_RUN, f"expected to fail: {verdict.why}" if verdict else ""
    if result.state == "skipped":
        return INAPPLICABLE, f"the test leaves itself out: {result.failure}"
    if verdict is None:
        return FAILS, result.failure
    return FAILS, verdict.why + {"later": "; not yet", "never": "; that stays so"}[verdict.kind]


def cell(text: str, longest: int) -> str:
    """What fits into one, its middle left out: texts differ at their ends."""
    if len(text) > longest:
        begin = longest // 3
        text = f"{text[:begin]} … {text[begin + 3 - longest :]}"
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def short(text: str) -> str:
    """A specification's text without what is of no use to a reader."""
    return TRACKER.sub("", text)


def group_of(result: Result) -> str:
    return next((group for group in GROUPS if group in result.labels), "other")


def counts(results: list[Result], known: list[Verdict]) -> list[str]:
    """A row for each group."""
    by_group: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for result in results:
        outcome = judge(result, known)[0]
        by_group[group_of(result)][outcome] += 1
        if CONFORMANCE in result.labels:
            by_group[f"label `{CONFORMANCE}`"][outcome] += 1
    rows = ["| group | passes | fails | does not apply | never run | all |", "| --- | --- | --- | --- | --- | --- |"]
    for group in (f"label `{CONFORMANCE}`", *GROUPS, "other"):
        counted = by_group[group]
        if counted:
            numbers = [counted[outcome] for outcome in (PASSES, FAILS, INAPPLICABLE, NEVER_RUN)]
            rows.append(f"| {group} | {' | '.join(map(str, [*numbers, counted.total()]))} |")
    return rows


def render(results: Iterable[Result], known: list[Verdict]) -> str:
    ordered = sorted(results, key=lambda result: short(result.text))
    lines = [*counts(ordered, known), "", "| specification | result | why |", "| --- | --- | --- |"]
    for result in ordered:
        if CONFORMANCE in result.labels:
            outcome, why = judge(result, known)
            when = f", {result.date}" if result.date else ""
            lines.append(f"| {cell(short(result.text), TEXT)} | {outcome}{when} | {cell(why, REASON)} |")
    return "\n".join(lines) + "\n"


def page_with(page: str, part: str) -> str:
    """The page with this part in place of the one that it has."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} lacks {BEGIN.strip()} or the end of it")
    return f"{before}{BEGIN}{part}{END}{after}"


def main() -> int:
    page = PAGE.read_text()
    made = page_with(page, render(load().values(), verdicts()))
    if sys.argv[1:] == ["--check"]:
        if made != page:
            sys.stderr.write(f"{PAGE} is not what the results say: scripts/reference-table writes it\n")
        return int(made != page)
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
