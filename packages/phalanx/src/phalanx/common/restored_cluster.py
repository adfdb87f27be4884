"""The identity of a cluster that is restored from backups of its members' folders (DU-23).

A cluster is known by who founded it. What is restored has another founder, made of the former one and of a word that an operator
chooses. So members that are restored with the same word are one cluster, and have nothing in common with the one that was backed
up, which perhaps still runs.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection
from typing import Final

from phalanx.common.errors import UsageError
from phalanx.common.ids import MemberId, address_of, incarnation_of, member_id
from phalanx.common.words import quoted

_PREFIX: Final = "restored-"
"""No process draws an incarnation that begins so."""
_WORD: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


def check_word(word: str) -> None:
    """Raise `UsageError` if this cannot be the word of a restored cluster."""
    if not _WORD.fullmatch(word):
        raise UsageError(
            f"{quoted(word)} cannot name a restored cluster: up to 32 small letters, digits and hyphens, for example 2026-11-27"
        )


def restored_root(root: MemberId, word: str) -> MemberId:
    """Return the founder of what is restored from a cluster that `root` founded: the same for all that are restored with this word."""
    return member_id(address_of(root), f"{_PREFIX}{word}-{zlib.crc32(root.encode()):08x}")


def is_restored(root: MemberId) -> bool:
    """Return whether a cluster with this founder was restored from backups."""
    return incarnation_of(root).startswith(_PREFIX)


def stay_apart(founders: Collection[MemberId], others: Collection[MemberId]) -> bool:
    """Return whether two clusters never become one: one of them was restored, and they have no founder in common."""
    is_of_backup = any(map(is_restored, founders)) or any(map(is_restored, others))
    return is_of_backup and set(founders).isdisjoint(others)
