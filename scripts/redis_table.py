"""Write the table of commands into docs/redis.md, from what the RESP endpoint knows of them.

./run python scripts/redis_table.py
"""

from __future__ import annotations

from pathlib import Path

from phalanx_protocols.resp.server import TABLE
from phalanx_protocols.resp.table import Command

PAGE = Path(__file__).parent.parent / "docs" / "redis.md"
BEGIN, END = "<!-- commands: written by scripts/redis_table.py -->\n", "<!-- end of commands -->\n"


def table() -> str:
    """Return the table of all commands, those that are refused at its end."""
    lines = ["| command | repeat? | differs from Redis |", "|---|---|---|"]
    served = [command for command in TABLE if command.summary != "Refused."]
    refused: dict[str, list[Command]] = {}
    for command in TABLE:
        if command.summary == "Refused.":
            refused.setdefault(command.differs, []).append(command)
    lines += [
        f"| `{each.name.upper()}` | {'yes' if each.is_idempotent else 'no'} | {each.differs or '-'} |"
        for each in served
    ]
    lines += [
        f"| {', '.join(f'`{each.name.upper()}`' for each in some)} | - | {differs} |"
        for differs, some in refused.items()
    ]
    return "\n".join(lines) + "\n"


def with_table(page: str) -> str:
    """Return the page with the present table."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
