"""Within redis-py's own test run: tells which tests ask for what members do not serve. Loaded there by `-p redis_py_plugin`.

A test that fails is no failure if the member refused a command of it by name, for commands that are served are never refused so. What
became of each test is written as JSON to the file that the variable `REDIS_PY_REPORT` names.
"""

from __future__ import annotations

import json
import os
import re
import tracemalloc
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import redis.connection
from redis.exceptions import ResponseError

REFUSAL = re.compile(r"unknown command|unknown subcommand or not served|\bis not served\b|are not served\b")
refused: list[str] = []
"""What the member refused by name in the present test."""
outcomes: dict[str, list[str]] = {}
"""Test to what became of it, and why."""


def _noted(read: Any) -> Any:
    def read_response(self: Any, *args: Any, **named: Any) -> Any:
        try:
            return read(self, *args, **named)
        except ResponseError as error:
            if REFUSAL.search(str(error)) and "MAINT_NOTIFICATIONS" not in str(error):  # each connection asks for these
                refused.append(str(error))
            raise

    return read_response


tracemalloc.start = int  # type: ignore[assignment]  # does nothing: their suite traces each allocation, which takes minutes
redis.connection.AbstractConnection.read_response = _noted(redis.connection.AbstractConnection.read_response)  # type: ignore[method-assign]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    refused.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    known = outcomes.get(report.nodeid, [""])[0]
    if report.failed and refused:
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, f"not served: {refused[-1]}")
        outcomes[report.nodeid] = ["not served", refused[-1]]
    elif report.failed:
        outcomes[report.nodeid] = ["failed", report.longreprtext]
    elif report.skipped:
        outcomes[report.nodeid] = ["skipped", report.longrepr[2] if isinstance(report.longrepr, tuple) else ""]
    elif not known:
        outcomes[report.nodeid] = ["passed", ""]
    return report


def pytest_sessionfinish() -> None:
    Path(os.environ["REDIS_PY_REPORT"]).write_text(json.dumps(outcomes), encoding="utf-8")
