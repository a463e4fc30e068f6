"""Garboard as a release of Helm."""
