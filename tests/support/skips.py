"""In CI nothing is skipped: what a test needs is installed, or the run fails and says what is missing."""

import os
from collections.abc import Generator

import pytest


class NoSkips:
    """Turn each skipped test, and each skipped file, into a failure whose text is the reason of the skip."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        # A test that is expected to fail, and does, is reported as skipped too.
        if report.skipped and not hasattr(report, "wasxfail"):
            report.outcome, report.longrepr = "failed", _reason(report)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if report.skipped:
            report.outcome, report.longrepr = "failed", _reason(report)
        return report


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return f"{told}: not allowed with CI={os.environ.get('CI', '')}. Install what the test needs."
