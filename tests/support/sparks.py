"""One Spark session for all tests of a folder: to start one takes longer than most of what they do with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FRUGAL = {
    # Hundreds of queries over a few rows, each run once: the best compiler's work never pays, nor do many collectors.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Settings of a Spark that does little with much else beside it."""


class SharedSession:
    """The session of the folder whose tests are running, if they use one."""

    def __init__(self) -> None:
        self._session: SparkSession | None = None
        self._settings: dict[str, str] = {}

    def get(self, **settings: str) -> SparkSession:
        """The session on two cores with these settings; one with other settings ends."""
        from phalanx.spark import session  # Most tests need no Spark, and importing it takes a while.

        if self._session is None or self._settings != settings:
            self.stop()
            self._session, self._settings = session("local[2]", **(FRUGAL | settings)), settings
        return self._session

    def stop(self) -> None:
        """End it: before a test makes a session of its own, of which there can be one in a process."""
        if self._session is not None:
            self._session.stop()
            self._session = None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        if nextitem is None or _folder(nextitem) != _folder(item):
            self.stop()


def _folder(item: pytest.Item) -> Path:
    return item.path.parent


SHARED = SharedSession()
