"""Which specifications are run together, and in which order. Pure."""

from collections.abc import Iterable, Sequence

from .results import Result

# The length of an argument of a program ends at 128 KiB.
LONGEST = 100_000


def in_order(specs: Sequence[str], known: dict[str, Result], failures_first: bool, new_only: bool) -> list[str]:
    """The texts, each once: with `failures_first` what failed, then what was never run, then the rest; with `new_only`
    what was never run alone."""
    unique = list(dict.fromkeys(specs))
    nothing = Result("", ())
    if new_only:
        unique = [text for text in unique if known.get(text, nothing).state == ""]
    if failures_first:
        unique.sort(key=lambda text: rank(known.get(text, nothing)))
    return unique


def rank(result: Result) -> int:
    if result.has_failed:
        return 0
    return 1 if result.state == "" else 2


def portions(texts: Iterable[str], most: int) -> list[list[str]]:
    """At most so many in each, and not more than an argument holds."""
    made: list[list[str]] = []
    length = 0
    for text in texts:
        if not made or len(made[-1]) == most or length + 2 * len(text) > LONGEST:
            made.append([])
            length = 0
        made[-1].append(text)
        length += 2 * len(text)
    return made
