"""Checks from outside what locks promise: who held what when, by what the programs were told.

* A token that is asked for after another one was told is greater.
* No more hold it at a time than are allowed: from when each was told until it releases, or its lease ends by its own clock.
* A write with a token is refused once a greater token has been told of its key, or was written with.

Where two sides of a cut can both serve the map, each has holders of its own, and none of this holds across the sides. Then
only what is true after the merge is checked: nothing stays locked, and the next token is greater than all before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.history.lock_history import FencedWrite, Grant, LockAnswer, Name


class LockChecker:
    """Judges the locks of one history."""

    def __init__(self, findings: Findings, may_part: Callable[[bytes, LockAnswer, LockAnswer], bool]) -> None:
        """`may_part`: whether the owner that recorded the later of two things about a key need not know of the earlier one."""
        self._findings = findings
        self._may_part = may_part
        self.excused = 0

    def check(self, grants: Iterable[Grant], writes: Iterable[FencedWrite]) -> None:
        """Check the history of a cluster in which one side at a time serves the locks."""
        by_name: dict[Name, list[Grant]] = {}
        for grant in grants:
            by_name.setdefault(grant.name, []).append(grant)
        for several in by_name.values():
            self._check_tokens(several)
            self._check_holders(several)
        of_key: dict[bytes, list[FencedWrite]] = {}
        for write in writes:
            of_key.setdefault(write.key, []).append(write)
        for key, written in of_key.items():
            self._check_writes(written, by_name.get((key, False), []))

    def check_last(self, last: Iterable[Grant], before: Iterable[Grant]) -> None:
        """Check that the tokens granted at rest are greater than all before, whichever side granted them."""
        greatest: dict[Name, Grant] = {}
        for grant in before:
            if grant.name not in greatest or greatest[grant.name].token < grant.token:
                greatest[grant.name] = grant
        for grant in last:
            other = greatest.get(grant.name)
            if other is not None and grant.token <= other.token:
                self._findings.add(grant.answered_at, "a token only grows", f"at rest {grant}, after {other}")

    def _check_tokens(self, grants: list[Grant]) -> None:
        by_time = sorted(grants, key=lambda grant: grant.answered_at)
        for later in grants:
            earlier = [grant for grant in by_time if grant.answered_at <= later.asked_at]
            greatest = max(earlier, key=lambda grant: grant.token, default=None)
            if greatest is not None and later.token <= greatest.token:
                self._add(later, "a token only grows", f"{later}, after {greatest}", greatest)
        for one, other in pairwise(sorted(grants, key=lambda grant: grant.token)):
            if one.token == other.token:
                self._add(other, "each holder has a token of its own", f"{one}, and {other}", one)

    def _check_holders(self, grants: list[Grant]) -> None:
        grants = sorted(grants, key=lambda grant: grant.answered_at)
        for grant in grants:
            held = [
                other for other in grants if other.answered_at <= grant.answered_at < other.until and other is not grant
            ]
            if len(held) >= grant.permits and grant.answered_at < grant.until:
                story = f"{grant}; and {'; '.join(map(repr, held))}"
                self._add(grant, "no more hold it at a time than are allowed", story, *held)

    def _check_writes(self, writes: list[FencedWrite], grants: list[Grant]) -> None:
        for write in writes:
            newer: list[LockAnswer] = [
                *(other for other in writes if other.answered_at <= write.began_at and other.token > write.token),
                *(grant for grant in grants if grant.answered_at <= write.began_at and grant.token > write.token),
            ]
            if newer:
                self._add(write, "an older token is refused", f"{write}, after {newer[0]}", newer[0])

    def _add(self, later: LockAnswer, what: str, story: str, *earlier: LockAnswer) -> None:
        key = later.key if isinstance(later, FencedWrite) else later.name[0]
        if any(self._may_part(key, each, later) for each in earlier):
            self.excused += 1
        else:
            self._findings.add(later.answered_at, what, story)
