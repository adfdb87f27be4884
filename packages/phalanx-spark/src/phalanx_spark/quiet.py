"""Start Java so that it prints errors only.

`setLogLevel` cannot stop what Java prints before a session exists: only a configuration that is there when Java starts
can. It is named in `SPARK_SUBMIT_OPTS`, which adds to the settings and to `spark-defaults.conf` for the driver's Java,
and removes nothing of them. It is not used if the user has a `log4j2.properties` or names one.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OPTIONS = "SPARK_SUBMIT_OPTS"
_NAMED = "log4j2.configurationFile"
_OURS = Path(__file__).with_name("log4j2.properties")


@contextmanager
def quiet_start() -> Iterator[None]:
    """Use our configuration while Java starts, unless there is another one. A Java that runs already stays as it is."""
    before = os.environ.get(_OPTIONS)
    if _is_configured(before or ""):
        yield
        return
    os.environ[_OPTIONS] = f"{before or ''} {shlex.quote(f'-D{_NAMED}={_OURS}')}".strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ[_OPTIONS]
        else:
            os.environ[_OPTIONS] = before


def _is_configured(options: str) -> bool:
    folder = os.environ.get("SPARK_CONF_DIR")
    if folder is None and (home := os.environ.get("SPARK_HOME")) is not None:
        folder = f"{home}/conf"
    return _NAMED in options or (folder is not None and Path(folder, "log4j2.properties").is_file())
