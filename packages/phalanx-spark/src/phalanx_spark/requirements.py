"""Check that Spark with its Java, and what judges and draws without it, can start.

Commands check this before they begin anything else: the error says in one line what is missing and what to do.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from phalanx.common.errors import UsageError
from phalanx.runtime.settings.optional_packages import require_packages

JAVA_LEAST = 17
_ASKED_S = 10.0
"""How long Java can take to print its version. After that no error is raised: Spark checks it."""


def require_spark(who: str, *, extra: str = "spark", instead: str = "") -> None:
    """Raise `UsageError` if Spark cannot start. The text says `who` needs it, and what can be done `instead`."""
    without = f"; {instead}" if instead else ""
    require_packages(who, ("pyspark", "pyarrow", "numpy"), extra, without)
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
    require_packages(who, ("pyarrow", "numpy"), "spark")


def require_audit(who: str) -> None:
    """Raise `UsageError` if event logs cannot be judged: neither by this process, nor by Spark."""
    require_packages(who, ("duckdb", "sqlglot", "pyspark", "pyarrow", "numpy"), "audit")


def require_charts(who: str) -> None:
    """Raise `UsageError` if charts cannot be drawn."""
    require_packages(who, ("vl_convert",), "audit")


def _java_major(java: str) -> int | None:
    """Return the major version that a Java prints; None: none, or it is not understood."""
    try:
        printed = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ASKED_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r' version "(?:1\.)?(\d+)', printed.stderr)
    return int(found[1]) if found is not None else None
