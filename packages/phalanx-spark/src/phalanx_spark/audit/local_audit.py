"""The audit of little data by this process alone: no Java, and none of the seconds that Spark needs to start."""

from __future__ import annotations

from phalanx_spark.audit.local_engine import LocalEngine, LocalKept
from phalanx_spark.audit.local_reading import read_locally
from phalanx_spark.audit.run import judge
from phalanx_spark.audit.verdicts import Report


def audit_locally(folder: str, *, with_charts: bool = False, history: str = "") -> Report:
    """Judge the event logs of a folder of this machine. Raises `UsageError` if there are none, or no such history."""
    engine = LocalEngine()
    try:
        return judge(
            LocalKept(engine), read_locally(engine, folder), folder, 1, with_charts=with_charts, history=history
        )
    finally:
        engine.close()
