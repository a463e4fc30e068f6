"""How checks are played, told and counted: a line for each, and `N passed, N failed, N skipped` at the end."""

import contextlib
import os
import subprocess
import tempfile
import time

from garboard import Skipped

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


@contextlib.contextmanager
def room(prefix="gb-"):
    """A directory that machines may be kept in."""
    # Short: a socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix=prefix) as directory:
        os.chmod(directory, 0o755)  # the machine's own user must get through
        yield directory


def play(report, name, host, check):
    """Plays one check with a Garboard, and looks what is left. What the check answered, or None when it did not pass.
    GARBOARD_KEEP names a directory to which the files of one that failed go."""
    report.began = time.monotonic()
    try:
        answer = check(host)
        host.expect_clean()
        return answer or ""
    except Skipped as skipped:
        report.skip(f"{name}: {skipped}")
    except Exception as failure:  # whatever it is, the checks after this one are made
        report.fail(name, f"{type(failure).__name__}: {failure}")
        if keep := os.environ.get("GARBOARD_KEEP"):
            subprocess.run(["cp", "-a", host.directory, f"{keep}/{name.replace(' ', '-')}"], check=False)
        host.stop_everything()
    return None
