"""Medians, pairs and tables. A round measures every way once, one after the other, so that the n-th values of two ways
follow each other in time: their ratio is better than that of two medians on a machine that others use too. Pure."""

import statistics
from collections.abc import Iterable, Sequence

# None where a way does not show it.
Values = Sequence[float | None]


def digits(value: float) -> str:
    """Three digits that mean something."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def summary(values: Values) -> str:
    """`median (min–max)`; a dash where nothing was measured."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    return f"{digits(statistics.median(known))} ({digits(min(known))}–{digits(max(known))})"


def ratio(values: Values, base: Values) -> str:
    """The median of the ratios pair by pair, with the quartiles."""
    pairs = [value / other for value, other in zip(values, base, strict=False) if value is not None and other]
    if not pairs:
        return "–"
    low, middle, high = statistics.quantiles(pairs, n=4, method="inclusive") if len(pairs) > 1 else pairs * 3
    return f"{middle:.3f} ({low:.3f}–{high:.3f})"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A markdown table; numbers to the right, the first column to the left."""
    lines = ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"
