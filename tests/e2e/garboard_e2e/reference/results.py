"""What each functional test came to when it was run last: tests/reference/results.tsv, a line each. Pure, but for
`load` and `save`."""

import dataclasses
import pathlib
from collections.abc import Iterable

from ..places import REPOSITORY
from .suite import Spec

FILE = REPOSITORY / "tests/reference/results.tsv"
FIELDS = ("text", "labels", "state", "seconds", "commit", "date", "failure")
# How much of a message is kept, in characters.
LONGEST = 300
# Which of two specifications with the same text stands for both.
WORST = ("failed", "panicked", "timedout", "interrupted", "aborted", "pending", "skipped", "passed", "")
# What is neither a failure nor a pass: the suite has marked it so, or the test has left itself out.
LEFT_OUT = ("pending", "skipped")


@dataclasses.dataclass(frozen=True)
class Result:
    """One specification. `state` is ginkgo's, or empty for one that was never run; so are those that come after it."""

    text: str
    labels: tuple[str, ...]
    state: str = ""
    seconds: int = 0
    # The commit of this repository that it was run with, and the day (UTC).
    commit: str = ""
    date: str = ""
    failure: str = ""

    @property
    def has_failed(self) -> bool:
        return self.state not in ("", "passed", *LEFT_OUT)

    @property
    def subject(self) -> str:
        """What verdicts are about: the text, and after it each label as `label:NAME`."""
        return " ".join([self.text, *(f"label:{label}" for label in self.labels)])

    def line(self) -> str:
        fields = (
            self.text,
            ",".join(self.labels),
            self.state,
            self.seconds or "",
            self.commit,
            self.date,
            self.failure,
        )
        return "\t".join(str(field) for field in fields)


def one_line(text: str) -> str:
    return " ".join(text.split())


def of(spec: Spec, commit: str, date: str) -> Result:
    """What a run gives."""
    failure = one_line(spec.failure)[:LONGEST]
    return Result(one_line(spec.text), spec.labels, spec.state, round(spec.seconds), commit, date, failure)


def listed(spec: Spec) -> Result:
    """Of one that the suite has. Whether it is pending is known without a run."""
    return Result(one_line(spec.text), spec.labels, "pending" if spec.state == "pending" else "")


def listed_with(specs: Iterable[Spec], known: dict[str, Result]) -> dict[str, Result]:
    """A line for each of the suite's, with what is known of it; what the suite has no more is left out. The suite
    alone marks tests as pending: no run has that state."""
    was_run = {text: result for text, result in known.items() if result.state != "pending"}
    lines: dict[str, Result] = {}
    for spec in specs:
        line = listed(spec)
        lines[line.text] = line if line.state else was_run.get(line.text, line)
    return lines


def parse(text: str) -> dict[str, Result]:
    """By the texts of the specifications."""
    found = {}
    for line in text.splitlines()[1:]:
        name, labels, state, seconds, commit, date, failure = line.split("\t")
        kept = tuple(labels.split(",")) if labels else ()
        found[name] = Result(name, kept, state, int(seconds or 0), commit, date, failure)
    return found


def render(results: Iterable[Result]) -> str:
    lines = ["\t".join(FIELDS), *sorted(result.line() for result in results)]
    return "\n".join(lines) + "\n"


def merge(before: dict[str, Result], new: Iterable[Result]) -> dict[str, Result]:
    """What is new replaces what was there; of several with the same text the worst is kept."""
    merged: dict[str, Result] = {}
    for result in new:
        known = merged.get(result.text)
        if known is None or WORST.index(result.state) < WORST.index(known.state):
            merged[result.text] = result
    return before | merged


def load(path: pathlib.Path = FILE) -> dict[str, Result]:
    return parse(path.read_text()) if path.exists() else {}


def save(results: dict[str, Result], path: pathlib.Path = FILE) -> None:
    """Whole or not at all."""
    unfinished = path.with_suffix(".new")
    unfinished.write_text(render(results.values()))
    unfinished.rename(path)
