"""The pages of docs/ that say what the functional tests came to: scripts/reference-table. Pure, but for `main`."""

import collections
import pathlib
import re
import sys
from collections.abc import Iterable

from ..places import REPOSITORY
from . import verdicts
from .results import Result, load
from .verdicts import NEVER_RUN, OUTCOMES, Verdict, judge

# A part of it, and the whole of it.
PAGE, WHOLE = REPOSITORY / "docs/compatibility.md", REPOSITORY / "docs/compatibility-suite.md"
BEGIN, END = "<!-- generated: functional tests -->\n", "<!-- end -->"
CONFORMANCE = "conformance"
# By labels; a specification is of the first group that it has the label of.
GROUPS = (
    "sig-compute-migrations",
    "sig-compute-instancetype",
    "sig-compute-realtime",
    "sig-compute",
    "sig-network",
    "sig-storage",
    "sig-operator",
    "sig-monitoring",
    "sig-performance",
)
OTHER = "without a group"
# What may be shown of a specification's text and of a reason, in characters: a cell of a table has at most 200.
TEXT, REASON = 150, 190
# Brackets that name requirements in a tracker, or repeat labels; numbers of tests are kept.
TRACKER = re.compile(
    r"\[(?:rfe_id|ref_id|crit|vendor|level|posneg|label|sig-|release-blocker|storage-req|virtctl)[^\]]*\]\s*"
)
HEAD = """\
# KubeVirt's functional tests, one by one

<!-- Generated from tests/reference: scripts/reference-table writes all of it. -->

All {all} tests of KubeVirt 1.7.0 (`kubevirt.io/kubevirt/tests`), by the group that runs them there, and what each
came to on [the test cluster](compatibility.md#kubevirts-own-functional-tests) when it was run last, with the day.
{never} were never run: they are listed after the table of their group. *Left out by the suite*: the test itself skips
where the cluster lacks what it asks for; its own reason is shown. *Does not apply*: it tests libvirt, or what only
stands for a part of KubeVirt there, or needs what the test cluster has not; the reason says which.

"""


def escaped(text: str) -> str:
    """As Markdown shows it as it is."""
    for mark, shown in (("|", "\\|"), ("<", "&lt;"), ("*", "\\*"), ("](", "]\\(")):
        text = text.replace(mark, shown)
    return text


def cell(text: str, longest: int) -> str:
    """What fits into one, its middle left out: texts differ at their ends."""
    shown, room = escaped(text), min(len(text), longest)
    while len(shown) > longest:
        begin = room // 3
        shown = escaped(f"{text[:begin]} … {text[begin + 3 - room :]}")
        room -= 1
    return shown


def short(text: str) -> str:
    """A specification's text without what is of no use to a reader."""
    return TRACKER.sub("", text)


def group_of(result: Result) -> str:
    return next((group for group in GROUPS if group in result.labels), OTHER)


def counts(results: Iterable[Result], known: list[Verdict]) -> list[str]:
    """A row for each group."""
    by_group: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for result in results:
        outcome = judge(result, known)[0]
        by_group[group_of(result)][outcome] += 1
        by_group["all"][outcome] += 1
        if CONFORMANCE in result.labels:
            by_group[f"label `{CONFORMANCE}`"][outcome] += 1
    lines = [f"| group | {' | '.join(OUTCOMES)} | all |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for group in (f"label `{CONFORMANCE}`", *GROUPS, OTHER, "all"):
        counted = by_group[group]
        if counted:
            numbers = [*(counted[outcome] for outcome in OUTCOMES), counted.total()]
            lines.append(f"| {group} | {' | '.join(map(str, numbers))} |")
    return lines


def rows(results: Iterable[Result], known: list[Verdict]) -> list[str]:
    """A table with a row for each."""
    lines = ["| specification | result | why |", "| --- | --- | --- |"]
    for result in results:
        outcome, why = judge(result, known)
        when = f", {result.date}" if result.date else ""
        lines.append(f"| {cell(short(result.text), TEXT)} | {outcome}{when} | {cell(why, REASON)} |")
    return lines


def in_order(results: Iterable[Result]) -> list[Result]:
    return sorted(results, key=lambda result: (short(result.text), result.text))


def part(results: Iterable[Result], known: list[Verdict]) -> str:
    """That of the page about compatibility: all are counted, those of `conformance` have a row each."""
    ordered = in_order(results)
    important = [result for result in ordered if CONFORMANCE in result.labels]
    return "\n".join([*counts(ordered, known), "", *rows(important, known)]) + "\n"


def whole(results: Iterable[Result], known: list[Verdict]) -> str:
    """The page that has every one: a row for each, and those that were never run in a list, which is shorter."""
    ordered = in_order(results)
    never = sum(judge(result, known)[0] == NEVER_RUN for result in ordered)
    lines = counts(ordered, known)
    for group in (*GROUPS, OTHER):
        members = [result for result in ordered if group_of(result) == group]
        if members:
            lines += ["", f"## {group}", "", *section(members, known)]
    return HEAD.format(all=len(ordered), never=never) + "\n".join(lines) + "\n"


def section(members: list[Result], known: list[Verdict]) -> list[str]:
    """A group: its table, then its list."""
    never = [result for result in members if judge(result, known)[0] == NEVER_RUN]
    others = [result for result in members if judge(result, known)[0] != NEVER_RUN]
    lines = [*rows(others, known), ""] if others else []
    if never:
        lines += [f"Never run: {len(never)}.", "", *(item(result, judge(result, known)[1]) for result in never)]
    return lines if never else lines[:-1]


def item(result: Result, why: str) -> str:
    return f"- {escaped(short(result.text))}{f' ({escaped(why)})' if why else ''}"


def page_with(page: str, made: str) -> str:
    """The page with this part in place of the one that it has."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} lacks {BEGIN.strip()} or the end of it")
    return f"{before}{BEGIN}{made}{END}{after}"


def pages() -> dict[pathlib.Path, str]:
    """Both, as the results have them."""
    results, known = load().values(), verdicts.load()
    return {PAGE: page_with(PAGE.read_text(), part(results, known)), WHOLE: whole(results, known)}


def main() -> int:
    others = {page: text for page, text in pages().items() if not page.exists() or page.read_text() != text}
    if sys.argv[1:] == ["--check"]:
        for page in others:
            sys.stderr.write(f"{page} is not what the results say: scripts/reference-table writes it\n")
        return int(bool(others))
    for page, text in others.items():
        page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
