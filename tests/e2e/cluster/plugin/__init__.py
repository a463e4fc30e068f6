"""Tests that share one installation, made and removed by the command."""
