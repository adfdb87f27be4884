"""Check for optional packages that some commands need: Spark with its Java, what serves HTTP, what draws charts.

Commands check this before they begin anything else: the error says in one line what is missing and what to do.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from importlib.util import find_spec

from phalanx.common.errors import UsageError

JAVA_LEAST = 17
_ASKED_S = 10.0
"""How long Java may take to print its version. After that no error is raised: Spark checks it."""


def require_spark(who: str, *, extra: str = "spark", instead: str = "") -> None:
    """Raise `UsageError` if Spark cannot start. The text says `who` needs it, and what can be done `instead`."""
    without = f"; {instead}" if instead else ""
    _require(who, ("pyspark", "pyarrow", "numpy"), extra, without)
    home = os.environ.get("JAVA_HOME")
    # Spark's launcher also prefers JAVA_HOME, even if it is wrong, to the PATH.
    java = shutil.which(f"{home}/bin/java") if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME={home} has none" if home else "none was found"
        raise UsageError(
            f"{who}: Spark needs Java {JAVA_LEAST} or newer, and {where}: install it, or set JAVA_HOME{without}"
        )
    major = _java_major(java)
    if major is not None and major < JAVA_LEAST:
        raise UsageError(
            f"{who}: Spark needs Java {JAVA_LEAST} or newer, and {java} is {major}: install a newer one, or set JAVA_HOME"
            f"{without}"
        )


def require_parquet(who: str) -> None:
    """Raise `UsageError` if Parquet files cannot be read and written."""
    _require(who, ("pyarrow", "numpy"), "spark")


def require_http(who: str) -> None:
    """Raise `UsageError` if there is nothing that serves HTTP and metrics."""
    _require(who, ("starlette", "uvicorn", "prometheus_client"), "http")


def require_audit(who: str) -> None:
    """Raise `UsageError` if event logs cannot be judged: neither by this process, nor by Spark."""
    _require(who, ("duckdb", "sqlglot", "pyspark", "pyarrow", "numpy"), "audit")


def require_charts(who: str) -> None:
    """Raise `UsageError` if charts cannot be drawn."""
    _require(who, ("vl_convert",), "audit")


def _require(who: str, modules: Iterable[str], extra: str, without: str = "") -> None:
    missing = [_PACKAGES.get(name, name) for name in modules if find_spec(name) is None]
    if missing:
        raise UsageError(f"{who} needs {' and '.join(missing)}: pip install 'phalanx[{extra}]'{without}")


_PACKAGES = {"prometheus_client": "prometheus-client", "pyspark": "PySpark", "vl_convert": "vl-convert-python"}
"""Module to the name of its package, where that is another name."""


def _java_major(java: str) -> int | None:
    """Return the major version that a Java prints; None: none, or it is not understood."""
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ASKED_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r' version "(?:1\.)?(\d+)', told.stderr)
    return int(found[1]) if found is not None else None
