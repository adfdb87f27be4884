"""On the master: links for which members were removed, which must be whole again before such a member comes back.

A member removed for a broken link still reaches the master, and asks for admission as a new incarnation at once. The
master tells it which members to reach first: the present members (and joiners) at the other ends of its broken links.
It asks each for an answer, which comes over the other's connection to it: so the way there and back is open, on the
path of data. Until all have answered it waits, and repeats its request, so it is back as soon as the links are.

A link that breaks again soon after is worse than none, because each time costs copies of all that a member holds. From
the second time on the member waits besides, twice as long each time. Links are remembered by address, because both ends
can come back as other incarnations, and forgotten when they have worked for long. The next master begins without them:
it can admit such a member once more, and then resolves the link anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from phalanx.common.config import NodeConfig
from phalanx.common.ids import Address, MemberId, Millis, address_of

FORGOTTEN_AFTER_MS = 3_600_000
LONGEST_WAIT_MS = 600_000
REMEMBERED = 4_096
"""The most links that are remembered; the links that failed longest ago are forgotten first."""


class HeldBack(msgspec.Struct, frozen=True):
    """Why a joiner cannot be admitted yet."""

    reach: tuple[MemberId, ...]
    reason: str
    is_news: bool
    """Whether the reason is new. A joiner asks again and again, and each reason is told once."""


class _Trouble(msgspec.Struct):
    """What is known of one link."""

    times: int = 0
    """How often a member was removed because of this link."""
    at: Millis = 0
    """When that last happened, or when the link last kept a joiner waiting."""
    wait_until: Millis = 0


class BrokenLinks:
    """The broken links that one master remembers."""

    def __init__(self, config: NodeConfig) -> None:
        self._first_wait_ms = config.heartbeat_timeout_ms
        self._links: dict[tuple[Address, Address], _Trouble] = {}
        """Link to its trouble; the link that failed last stands last."""
        self._held_back: dict[MemberId, tuple[MemberId, ...]] = {}
        """Joiner that is held back to the members that it must reach."""

    def __repr__(self) -> str:
        return f"BrokenLinks({sorted(self._links)})"

    def note(self, links: Iterable[tuple[Address, Address]], now: Millis) -> None:
        """Note links for which members were removed."""
        for one, other in links:
            link = (one, other) if one < other else (other, one)
            trouble = self._links.pop(link, None)
            if trouble is None or now - trouble.at > FORGOTTEN_AFTER_MS:
                trouble = _Trouble()
            trouble.times, trouble.at = trouble.times + 1, now
            if trouble.times > 1:
                wait_ms = min(self._first_wait_ms << min(trouble.times - 2, 16), LONGEST_WAIT_MS)
                trouble.wait_until = now + wait_ms
            self._links[link] = trouble
        while len(self._links) > REMEMBERED:
            del self._links[next(iter(self._links))]

    def check(
        self, joiner: MemberId, reaches: Collection[MemberId], others: Iterable[MemberId], now: Millis
    ) -> HeldBack | None:
        """Return why the joiner waits; None: it need not. `others`: all that it would be together with."""
        if not self._links:
            return None
        troubles = {other: trouble for other in others if (trouble := self._between(joiner, other)) is not None}
        missing = tuple(other for other in troubles if other not in reaches)
        wait_ms = max((trouble.wait_until - now for trouble in troubles.values()), default=0)
        if not missing and wait_ms <= 0:
            self._held_back.pop(joiner, None)
            return None
        for trouble in troubles.values():
            trouble.at = now
        names = ", ".join(map(address_of, missing or troubles))
        if missing:
            reason = f"its link to {names} was broken, and must be whole first, both ways"
        else:
            often = max(trouble.times for trouble in troubles.values())
            reason = f"its link to {names} has broken {often} times: it must stay whole for a while first"
        is_news = self._held_back.get(joiner) != missing
        self._held_back[joiner] = missing
        while len(self._held_back) > REMEMBERED:
            del self._held_back[next(iter(self._held_back))]
        return HeldBack(tuple(troubles), reason, is_news)

    def _between(self, one: MemberId, other: MemberId) -> _Trouble | None:
        first, second = address_of(one), address_of(other)
        return self._links.get((first, second) if first < second else (second, first))
