"""The report as one page: verdicts first, then charts on one time line. The page is complete, and needs no network.

Vega-Lite draws the charts; its code (0.9 MB) is in the page, so that a report that is mailed or kept opens anywhere.
"""

from __future__ import annotations

import re
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from phalanx.common.errors import UsageError
from phalanx.common.words import shown
from phalanx_spark.audit.verdicts import Report

_MARK = re.compile("@([A-Z]+)@")
"""Where a part of the page goes."""
_EXPORTS = "window.vegaEmbed = vegaEmbed;"
"""All that the page uses of the bundled library."""


def write_page(report: Report, path: Path) -> None:
    """Write the page. Raises `UsageError` if the file cannot be written."""
    try:
        path.write_text(page_of(report), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--html {path} cannot be written: {error.strerror}") from error


def page_of(report: Report) -> str:
    """Return the text of the page."""
    import vl_convert  # tens of megabytes, for this alone

    assets = files("phalanx_spark.audit") / "assets"
    parts = {
        "TITLE": escape(shown(f"Audit of {report.folder}")),
        "STYLE": (assets / "report.css").read_text(encoding="utf-8"),
        # A text of the logs must not end the script that carries it.
        "REPORT": msgspec.json.encode(_shown(msgspec.to_builtins(report))).decode().replace("<", "\\u003c"),
        # Its names are its own: the page has others.
        "BUNDLE": "(() => {" + vl_convert.javascript_bundle(_EXPORTS).replace("</script", "<\\/script") + "})();",
        "SCRIPT": (assets / "report.js").read_text(encoding="utf-8"),
    }
    page = (assets / "report.html").read_text(encoding="utf-8")
    # In one pass, because a text that members logged can hold a mark, too.
    return _MARK.sub(lambda mark: parts[mark[1]], page)


def _shown(value: Any) -> Any:
    """Return the report with all its texts as they can be shown: anybody can have made a text that members logged."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items()}
    return [_shown(each) for each in value] if isinstance(value, list | tuple) else value
