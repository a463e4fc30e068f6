"""What a test ends with, apart from success."""

import unittest


class Failure(AssertionError):
    """What a person would have complained about."""


class Skipped(unittest.SkipTest):
    """Why something cannot be shown here."""
