"""Draws the transition tables of the code into pages of docs, and the list of pages into the README, between the markers that name them.

Part of `./run docs` (scripts/docs.py): rewrites what is stale; with `--check` only says whether something is.
"""

import enum
import re
import sys
from collections.abc import Mapping

from page_list import ROOT, in_repository, page_table, read_nav

from phalanx.grid.migration_source import STAGE_CHANGES
from phalanx.grid.replica.staged import STAGED_CHANGES
from phalanx.grid.replication.progress import STREAM_CHANGES
from phalanx.membership.claim.mastership_claim import CLAIM_CHANGES
from phalanx.membership.detect.suspicion import TRUST_CHANGES
from phalanx.membership.partial.resolution import RESOLUTION_CHANGES
from phalanx.membership.role import ROLE_CHANGES
from phalanx.partition.migration_phases import MIGRATION_CHANGES

PAGES = (*(ROOT / "docs" / f"{name}.md" for name in ("membership", "migrations", "staged_writes")), ROOT / "README.md")
TABLES: dict[str, Mapping[tuple[enum.StrEnum, enum.StrEnum], enum.StrEnum]] = {
    "role": ROLE_CHANGES,  # type: ignore[dict-item]  # each has enums of its own
    "trust": TRUST_CHANGES,  # type: ignore[dict-item]
    "claim": CLAIM_CHANGES,  # type: ignore[dict-item]
    "resolution": RESOLUTION_CHANGES,  # type: ignore[dict-item]
    "stream": STREAM_CHANGES,  # type: ignore[dict-item]
    "migration": MIGRATION_CHANGES,  # type: ignore[dict-item]
    "stage": STAGE_CHANGES,  # type: ignore[dict-item]
    "staged": STAGED_CHANGES,  # type: ignore[dict-item]
}


def words_of(event: enum.Enum) -> str:
    """What an event says of itself; of one that travels as a number, its name."""
    return event.value if isinstance(event.value, str) else event.name


def draw(table: Mapping[tuple[enum.StrEnum, enum.StrEnum], enum.StrEnum]) -> str:
    """The table as a Mermaid state diagram; states in the order in which the table first names them."""
    states = list(dict.fromkeys(state for (before, _), after in table.items() for state in (before, after)))
    lines = ["```mermaid", "stateDiagram-v2", *(f"    {state.name}: {state.value}" for state in states)]
    lines.append(f"    [*] --> {states[0].name}")
    lines += [f"    {before.name} --> {after.name}: {words_of(event)}" for (before, event), after in table.items()]
    return "\n".join([*lines, "```"])


def drawn(page: str) -> str:
    """The page with every diagram and list drawn anew. Raises `KeyError` for a marker that names no table."""

    def anew(name: str) -> str:
        # Lines of Markdown around a table are empty; a marker is a line of HTML.
        return f"\n{page_table(read_nav(), in_repository)}\n\n" if name == "pages" else f"{draw(TABLES[name])}\n"

    marker = re.compile(r"(<!-- drawn: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    return marker.sub(lambda found: f"{found[1]}{anew(found[2])}{found[3]}", page)


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
                f"{page.name}: what is drawn is not what the code's tables and mkdocs.yml say; ./run docs draws it anew",
                file=sys.stderr,
            )
            status = 1
        else:
            page.write_text(new, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
