"""Medians, pairs and tables. A round measures every way once, one after the other, so that the n-th values of two ways
are neighbours in time: their ratio says more than the ratio of two medians on a machine that others use too."""

import statistics


def digits(value):
    """Three digits that mean something."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def summary(values):
    """`median (min–max)`; a dash where nothing was measured."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    return f"{digits(statistics.median(known))} ({digits(min(known))}–{digits(max(known))})"


def ratio(values, base):
    """The median of the ratios pair by pair, with the quartiles."""
    pairs = [value / other for value, other in zip(values, base) if value is not None and other]
    if not pairs:
        return "–"
    low, middle, high = statistics.quantiles(pairs, n=4, method="inclusive") if len(pairs) > 1 else pairs * 3
    return f"{middle:.3f} ({low:.3f}–{high:.3f})"


def difference(values, base):
    """The median of the differences pair by pair."""
    pairs = [value - other for value, other in zip(values, base) if value is not None and other is not None]
    return f"{statistics.median(pairs):+.1f}" if pairs else "–"


def table(header, rows):
    """A markdown table; numbers to the right, the first column to the left."""
    lines = ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"
