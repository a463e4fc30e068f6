"""Tests that share one installation."""
