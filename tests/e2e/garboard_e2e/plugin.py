"""How tests are reported and counted: findings beside the name, every skipped test with its reason, and a last line
`N passed, N failed, N skipped`, which scripts/test reads."""

from collections.abc import Generator

import pytest


class Counts:
    """Of each test its worst phase: one that passes and leaves something behind has failed."""

    def __init__(self) -> None:
        self.failed: set[str] = set()
        self.skipped: dict[str, str] = {}
        self.passed: set[str] = set()

    def add(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.skipped:
            self.skipped[report.nodeid] = reason_of(report)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def sums(self) -> str:
        passed, skipped = self.passed - self.failed, self.skipped.keys() - self.failed
        return f"{len(passed)} passed, {len(self.failed)} failed, {len(skipped)} skipped"


def reason_of(report: pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


COUNTS = pytest.StashKey[Counts]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.stash[COUNTS] = Counts()


class Listener:
    """Counts each phase of each test, also of those that ran in another process."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.counts.add(report)


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.pluginmanager.register(Listener(session.config.stash[COUNTS]))


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """In place of `PASSED` alone: how long it took and what it found. A failure has its message at once, because a
    campaign that is stopped prints no summary."""
    if report.when == "call" and report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        return "failed", "F", f"FAILED {str(getattr(crash, 'message', ''))[:1000]}"
    if report.when != "call" or not report.passed:
        return None
    notes = "; ".join(str(value) for name, value in report.user_properties if name == "note")
    return "passed", ".", f"PASSED ({report.duration:.1f} s)" + (f" {notes}" if notes else "")


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, None, None]:
    yield
    for test, reason in config.stash[COUNTS].skipped.items():
        terminalreporter.write_line(f"skipped: {test}: {reason}")


def pytest_unconfigure(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    is_worker = hasattr(config, "workerinput")
    if reporter is not None and not is_worker and not config.option.collectonly:
        reporter.write_line(config.stash[COUNTS].sums())
