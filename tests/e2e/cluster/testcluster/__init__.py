"""Tests of the test cluster itself, which share one of their own."""
