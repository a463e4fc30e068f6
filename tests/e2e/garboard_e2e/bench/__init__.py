"""Benchmarks: their figures are what docs/benchmarks.md holds. scripts/bench runs `python3 -m garboard_e2e.bench`, and
builds what it needs; `choices`, `cluster` and `overhead` are programs of their own."""
