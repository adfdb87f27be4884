"""Check for optional packages that some commands need, before they begin anything else."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from phalanx.common.errors import UsageError


def require_packages(who: str, modules: Iterable[str], extra: str, without: str = "") -> None:
    """Raise `UsageError` if one of these modules is not installed: `who` needs it, and which extra brings it. `without` ends the text."""
    missing = [_PACKAGES.get(name, name.replace("_", "-")) for name in modules if find_spec(name) is None]
    if missing:
        raise UsageError(f"{who} needs {' and '.join(missing)}: pip install 'phalanx[{extra}]'{without}")


def require_http(who: str) -> None:
    """Raise `UsageError` if there is nothing that serves HTTP and metrics."""
    require_packages(who, ("starlette", "uvicorn", "prometheus_client"), "http")


_PACKAGES = {"pyspark": "PySpark", "vl_convert": "vl-convert-python"}
"""Module to the name of its package, where that is another name."""
