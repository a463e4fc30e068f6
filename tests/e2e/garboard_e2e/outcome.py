"""What a test ends with, apart from success."""

import unittest


class Failure(AssertionError):
    """A fault that a test has found."""


class Skipped(unittest.SkipTest):
    """Why something cannot be shown here."""
