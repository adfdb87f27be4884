"""The advisor's chart and page: what each timeout costs in members removed without need, and in time until a hang is found."""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phalanx.common.errors import UsageError
from phalanx.common.words import shown
from phalanx_proof.search.advice import Advice

WIDTH, HEIGHT = 640, 220
BAD, GOOD, CHOSEN = "#c0392b", "#1f5f99", "#2e7d32"
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 800px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.advice { border-left: 4px solid #2e7d32; background: #f2f8f2; padding: .6rem 1rem; }
.none { border-color: #c0392b; background: #fbf1f0; }
table { border-collapse: collapse; } th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
th { font-weight: 600; } tr.chosen { background: #f2f8f2; font-weight: 600; } td:first-child, th:first-child { text-align: left; }
svg { max-width: 100%; height: auto; } .wide { overflow-x: auto; } .wide td, .wide th { padding: .2rem .4rem; font-size: .9rem; }
.wide td { white-space: nowrap; }
"""


def chart_of(advice: Advice) -> dict[str, Any]:
    """Return the chart in Vega-Lite: two panels over one axis."""
    rows = []
    for each in advice.trials:
        row = {"timeout": each.timeout_ms / 1_000, "detector": each.detector, "removed": each.removed_per_thousand}
        if each.found:
            row |= {name: each.found_after_ms[name] / 1_000 for name in ("median", "p99")}
        rows.append(row)
    several = len({each.detector for each in advice.trials}) > 1
    dash = {"strokeDash": {"field": "detector", "title": "detector"}} if several else {}
    timeouts = sorted({each.timeout_ms / 1_000 for each in advice.trials})
    x = {"field": "timeout", "type": "quantitative", "title": "heartbeat timeout (s)",
         "scale": {"type": "log", "nice": False, "padding": 12}, "axis": {"values": timeouts, "labelOverlap": False}}  # fmt: skip

    def line(field: str, colour: str, title: str, **mark: Any) -> dict[str, Any]:
        y = {"field": field, "type": "quantitative", "title": title}
        return {"mark": {"type": "line", "point": {"size": 50, "color": colour}, "color": colour, **mark},
                "encoding": {"x": x, "y": y, **dash}}  # fmt: skip

    labels = {
        "mark": {"type": "text", "dy": -7, "dx": 6, "align": "left", "color": BAD},
        "encoding": {"x": x, "y": {"field": "removed", "type": "quantitative"},
                     "text": {"field": "removed", "type": "quantitative", "format": ",.3~r"}},
    }  # fmt: skip
    marked = []
    if advice.recommended is not None:
        at = [{"timeout": advice.recommended.timeout_ms / 1_000}]
        marked = [{"data": {"values": at}, "mark": {"type": "rule", "color": CHOSEN, "strokeWidth": 2, "strokeDash": [6, 3]},
                   "encoding": {"x": x}}]  # fmt: skip
    found = "removed after (s)"
    panels: list[tuple[str, list[dict[str, Any]]]] = [
        ("Members removed while they ran, per 1,000 pauses and stalls",
         [*marked, line("removed", BAD, "removed per 1,000"), labels]),
        ("How long a hung member stays: in half of the cases (pale), and in 99 of 100",
         [*marked, line("median", GOOD, found, opacity=0.4), line("p99", GOOD, found)]),
    ]  # fmt: skip
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": rows},
        "vconcat": [
            {"title": {"text": title, "anchor": "start"}, "width": WIDTH, "height": HEIGHT, "layer": layers}
            for title, layers in panels
        ],
        "config": {"background": "white", "font": "sans-serif", "axis": {"grid": True, "gridColor": "#eee"}},
    }


def write_chart(advice: Advice, path: Path) -> None:
    """Write the chart as a PNG."""
    import vl_convert

    _write(path, vl_convert.vegalite_to_png(chart_of(advice), scale=2.0))


def write_page(advice: Advice, conditions: Mapping[str, Any], repeat: str, path: Path) -> None:
    """Write one HTML file that needs nothing else: what to do, the chart, the figures, the conditions."""
    import vl_convert

    svg = vl_convert.vegalite_to_svg(chart_of(advice))
    said = " ".join(html.escape(each) for each in advice.because)
    stated = "".join(f"<tr><td>{html.escape(k)}</td><td>{html.escape(str(v))}</td></tr>" for k, v in conditions.items())
    page = f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Heartbeat timeout</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>
<h1>Which heartbeat timeout?</h1>
<p class="advice{"" if advice.recommended else " none"}">{said}</p>
{svg}
<h2>Figures</h2><div class="wide">{_table(advice)}</div>
<h2>Conditions</h2><table>{stated}</table>
<p>From simulated histories: other conditions need other timeouts. Repeat with <code>{html.escape(shown(repeat))}</code></p>
</body></html>
"""
    _write(path, page.encode())


def _table(advice: Advice) -> str:
    heads = ("timeout", "detector", "histories", "pauses and stalls", "removed running", "per 1,000", "hangs", "found",
             "median ms", "p99 ms")  # fmt: skip
    rows = []
    for each in advice.trials:
        after = each.found_after_ms
        cells = (f"{each.timeout_ms:,} ms", each.detector, f"{each.histories:,}", f"{each.troubles:,}", f"{each.removed:,}",
                 f"{each.removed_per_thousand:.2f}", f"{each.hangs:,}", f"{each.found:,}", f"{after.get('median', 0):,}",
                 f"{after.get('p99', 0):,}")  # fmt: skip
        chosen = ' class="chosen"' if each == advice.recommended else ""
        rows.append(f"<tr{chosen}>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    return f"<table><tr>{''.join(f'<th>{each}</th>' for each in heads)}</tr>{''.join(rows)}</table>"


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
