"""Which pairs cannot talk, as it is written on a command line: `A-B`, `B1,B2-C1,C2`, `A->B`, `B-*`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from phalanx.common.errors import UsageError

FORM = "expected names on both sides, for example A-B, B1,B2-C1,C2, A->B for one way, or B-* for all others"
_BETWEEN = re.compile(r"<->|->|<-|-|>|<")

Find = Callable[[str], str | None]
"""The member that a name stands for, if there is one."""


def read_cuts(
    texts: Iterable[str], members: Sequence[str], find: Find, most_pairs: int | None = None
) -> dict[str, set[str]]:
    """Return each member with the members that it cannot reach: nobody on one side of a cut reaches the other side.

    `most_pairs`: how many pairs all cuts together can have, each as often as it is named; None: any number. Raises
    `UsageError` for a text that is not a cut, for unknown names, and for more pairs.
    """
    cut: dict[str, set[str]] = {}
    pairs = 0
    for text in texts:
        left, right, way = _split(text, members, find)
        if "*" not in text and len({*left, *right}) == 1:
            raise UsageError(f"--cut {text}: both sides are {left[0]}, and a member always reaches itself")
        pairs += len(left) * len(right)
        if most_pairs is not None and pairs > most_pairs:
            raise UsageError(
                f"--cut {text}: the cuts have more than {most_pairs:,} pairs; ask by the command phalanx what-if"
            )
        for one in left:
            for other in right:
                if one != other:
                    here, there = (other, one) if way == "<" else (one, other)
                    cut.setdefault(here, set()).add(there)
    return cut


def _split(text: str, members: Sequence[str], find: Find) -> tuple[list[str], list[str], str]:
    """Split the text into the names of both sides and the direction.

    A name can contain a hyphen, so the sides meet where the text on both sides of the mark is a name.
    """
    pieces = text.split(",")
    # What stands between two commas is a name, but where the sides meet. So only the first that is none is looked into, if there is one:
    # trying all marks with all names would take time by the square of the text.
    odd = [place for place, piece in enumerate(pieces) if find(piece.strip()) is None][:1] or range(len(pieces))
    sides: tuple[list[str], list[str], str] | None = None
    for place in odd:
        for match in _BETWEEN.finditer(pieces[place]):
            before, after = pieces[place][: match.start()], pieces[place][match.end() :]
            if not (place or before.strip()) or not (place < len(pieces) - 1 or after.strip()):
                continue  # one side has nothing
            fits = _may_be_name(before, find) and _may_be_name(after, find)
            if fits or sides is None:
                way = "<" if match.group() in ("<-", "<") else "-"
                sides = [*pieces[:place], before], [after, *pieces[place + 1 :]], way
            if fits:
                break
    if sides is None:
        raise UsageError(f"--cut {text}: {FORM}")
    try:
        return _side(sides[0], members, find), _side(sides[1], members, find), sides[2]
    except UsageError as error:
        raise UsageError(f"--cut {text}: {error}") from None


def _may_be_name(text: str, find: Find) -> bool:
    return text.strip() == "*" or find(text.strip()) is not None


def _side(names: Sequence[str], members: Sequence[str], find: Find) -> list[str]:
    if len(names) == 1 and names[0].strip() == "*":
        return list(members)
    return [_find(name.strip(), members, find) for name in names]


def _find(name: str, members: Sequence[str], find: Find) -> str:
    if not name:
        raise UsageError(f"a name is missing; {FORM}")
    found = find(name)
    if found is None:
        shown = ", ".join(members[:12]) + (f" and {len(members) - 12} more" if len(members) > 12 else "")
        raise UsageError(f"there is no member {name!r}; there are: {shown or 'none'}")
    return found


def find_all(text: str, option: str, members: Sequence[str], find: Find) -> list[str]:
    """Find the members of a list of names. Raises `UsageError`."""
    try:
        return [_find(name.strip(), members, find) for name in text.split(",")]
    except UsageError as error:
        raise UsageError(f"{option} {text}: {error}") from None
