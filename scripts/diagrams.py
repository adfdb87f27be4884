"""Draws the transition tables of the code into pages of docs, between the markers that name them.

Part of `./run docs` (scripts/docs.py): rewrites what is stale; with `--check` only says whether something is.
"""

import enum
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from phalanx.grid.replication.progress import STREAM_CHANGES
from phalanx.membership.claim.mastership_claim import STANDINGS
from phalanx.membership.detect.suspicion import TRUST_CHANGES
from phalanx.membership.partial.resolution import STEPS
from phalanx.membership.role import TRANSITIONS

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = (DOCS / "membership.md", DOCS / "migrations.md")
TABLES: dict[str, Mapping[tuple[enum.StrEnum, enum.StrEnum], enum.StrEnum]] = {
    "role": TRANSITIONS,  # type: ignore[dict-item]  # each has enums of its own
    "trust": TRUST_CHANGES,  # type: ignore[dict-item]
    "claim": STANDINGS,  # type: ignore[dict-item]
    "resolution": STEPS,  # type: ignore[dict-item]
    "stream": STREAM_CHANGES,  # type: ignore[dict-item]
}


def draw(table: Mapping[tuple[enum.StrEnum, enum.StrEnum], enum.StrEnum]) -> str:
    """The table as a Mermaid state diagram; states in the order in which the table first names them."""
    states = list(dict.fromkeys(state for (before, _), after in table.items() for state in (before, after)))
    lines = ["```mermaid", "stateDiagram-v2", *(f"    {state.name}: {state.value}" for state in states)]
    lines.append(f"    [*] --> {states[0].name}")
    lines += [f"    {before.name} --> {after.name}: {turn.value}" for (before, turn), after in table.items()]
    return "\n".join([*lines, "```"])


def drawn(page: str) -> str:
    """The page with every table drawn anew. Raises `KeyError` for a marker that names no table."""
    marker = re.compile(r"(<!-- drawn: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    return marker.sub(lambda found: f"{found[1]}{draw(TABLES[found[2]])}\n{found[3]}", page)


def main(arguments: list[str]) -> int:
    """Draw the pages anew, or with `--check` only say whether that changes one. The exit status."""
    status = 0
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        new = drawn(old)
        if old == new:
            continue
        if "--check" in arguments:
            print(
                f"{page.name}: a diagram is not what the code's table says; ./run docs draws it anew", file=sys.stderr
            )
            status = 1
        else:
            page.write_text(new, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
