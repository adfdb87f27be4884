"""Which pairs cannot talk, as it is written on a command line: `A-B`, `B1,B2-C1,C2`, `A->B`, `B-*`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from phalanx.common.errors import UsageError

FORM = "expected names on both sides, for example A-B, B1,B2-C1,C2, A->B for one way, or B-* for all others"
_BETWEEN = re.compile(r"<->|->|<-|-|>|<")

Find = Callable[[str], str | None]
"""The member that a name stands for, if there is one."""


def read_cuts(
    texts: Iterable[str], members: Sequence[str], find: Find, most_pairs: int | None = None
) -> dict[str, set[str]]:
    """Return each member with the members that it cannot reach: nobody on one side of a cut reaches the other side.

    `most_pairs`: how many pairs all cuts together may have, each as often as it is named; None: any number. Raises
    `UsageError` for a text that is no cut, for names of no member, and for more pairs.
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
    """The sides and the way. A name may have a hyphen in it: the place counts at which both sides are names."""
    problem = ""
    for before, mark, after in _places(text):
        try:
            left, right = _side(before, members, find), _side(after, members, find)
        except UsageError as error:
            problem = problem or str(error)
            continue
        return left, right, "<" if mark in ("<-", "<") else "-"
    raise UsageError(f"--cut {text}: {problem or FORM}")


def _places(text: str) -> Iterator[tuple[str, str, str]]:
    for match in _BETWEEN.finditer(text):
        before, after = text[: match.start()], text[match.end() :]
        if before.strip() and after.strip():
            yield before, match.group(), after


def _side(text: str, members: Sequence[str], find: Find) -> list[str]:
    if text.strip() == "*":
        return list(members)
    return [_find(name.strip(), members, find) for name in text.split(",")]


def _find(name: str, members: Sequence[str], find: Find) -> str:
    if not name:
        raise UsageError(f"a name is missing; {FORM}")
    found = find(name)
    if found is None:
        shown = ", ".join(members[:12]) + (f" and {len(members) - 12} more" if len(members) > 12 else "")
        raise UsageError(f"there is no member {name!r}; there are: {shown or 'none'}")
    return found


def find_all(text: str, option: str, members: Sequence[str], find: Find) -> list[str]:
    """The members of a list of names. Raises UsageError."""
    try:
        return [_find(name.strip(), members, find) for name in text.split(",")]
    except UsageError as error:
        raise UsageError(f"{option} {text}: {error}") from None
