"""What some commands need beside the grid itself: Spark with its Java, and the library that draws charts.

To be asked before anything else is begun: what is missing is said at once, in one line with what to do.
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
"""A Java that does not tell its version by then is left to Spark."""


def require_spark(who: str, *, extra: str = "spark", instead: str = "") -> None:
    """Raises `UsageError` where Spark cannot start: `who` needs it, and what can be done `instead`."""
    without = f"; {instead}" if instead else ""
    _require(who, ("pyspark", "pyarrow", "numpy"), extra, without)
    home = os.environ.get("JAVA_HOME")
    # As Spark's launcher chooses it: JAVA_HOME, even if it is wrong, comes before the PATH.
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
    """Raises `UsageError` where no Parquet files can be read and written."""
    _require(who, ("pyarrow", "numpy"), "spark")


def require_charts(who: str) -> None:
    """Raises `UsageError` where charts cannot be drawn."""
    _require(who, ("vl_convert",), "audit")


def _require(who: str, modules: Iterable[str], extra: str, without: str = "") -> None:
    missing = [_PACKAGES.get(name, name) for name in modules if find_spec(name) is None]
    if missing:
        raise UsageError(f"{who} needs {' and '.join(missing)}: pip install 'phalanx[{extra}]'{without}")


_PACKAGES = {"pyspark": "PySpark", "vl_convert": "vl-convert-python"}
"""Names of modules that are installed under others."""


def _java_major(java: str) -> int | None:
    """The version that a Java tells; None: it tells none that is understood."""
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ASKED_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r' version "(?:1\.)?(\d+)', told.stderr)
    return int(found[1]) if found is not None else None
