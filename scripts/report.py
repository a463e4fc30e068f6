"""How scenes are told and counted: a line for each, and `N passed, N failed, N skipped` at the end."""

import time


class Report:
    """What was shown, one line each."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.began = time.monotonic()

    def ok(self, text, began=None):
        """`began` is for checks that are played side by side; the others began when the one before was told."""
        now = time.monotonic()
        print(f"  ok  {text} ({now - (began or self.began):.1f} s)", flush=True)
        self.passed, self.began = self.passed + 1, now

    def skip(self, text):
        self.skipped += 1
        print(f"skipped: {text}", flush=True)

    def fail(self, scene, failure):
        self.failed += 1
        print(f"  FAILED  {scene}: {failure}", flush=True)

    def sums(self):
        """Prints them; the exit code."""
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        return 1 if self.failed else 0
