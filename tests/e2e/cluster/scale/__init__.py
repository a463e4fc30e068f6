"""Tests that share one cluster of played machines."""
