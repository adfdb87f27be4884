"""The answers with which members of a simulated cluster find each other if no seeds are configured: late, and also wrong ones.

Until a drawn moment each look can fail, or give nobody, only the one that asks, some of the others, or hosts on which
nobody runs. From then on, and when the faults are over, it gives all hosts.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from phalanx.common.ids import Address, MemberId, Millis
from phalanx.machine.inputs import Input, SeedsFound
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.options import NO_SOURCES, HistoryOptions

ALONE_EVERY_MS: Millis = 1_000
JOINED_EVERY_MS: Millis = 10_000
FIRST_WITHIN_MS: Millis = 600


class SeedAnswers:
    """The source of seeds that all hosts of one history ask."""

    def __init__(
        self,
        options: HistoryOptions,
        call_at: Callable[..., None],
        now: Callable[[], Millis],
        feed: Callable[[Host, MemberId, Input], None],
    ) -> None:
        self._all = tuple(sorted(options.address(host) for host in range(options.hosts)))
        self._rng = Random(f"seeds:{options.profile}:{options.seed}")
        self._known_at = options.seeds_known_at_ms
        self._call_at, self._now, self._feed = call_at, now, feed

    @property
    def is_used(self) -> bool:
        """Return whether members have sources of seeds in this history."""
        return self._known_at != NO_SOURCES

    def heal(self) -> None:
        """Give all hosts at every look from now on."""
        self._known_at = min(self._known_at, self._now())

    def begin(self, host: Host, member: MemberId) -> None:
        """Begin to look for an incarnation that has begun, and go on looking."""
        self._call_at(self._now() + self._rng.randrange(FIRST_WITHIN_MS), self._look, host, member)

    def _look(self, host: Host, member: MemberId) -> None:
        node = host.node
        if node is None or node.this != member:
            return
        self._feed(host, member, self._answer(host.address))
        view = node.membership.view
        pause_ms = JOINED_EVERY_MS if view is not None and len(view.members) > 1 else ALONE_EVERY_MS
        self._call_at(self._now() + pause_ms, self._look, host, member)

    def _answer(self, own: Address) -> SeedsFound:
        if self._now() >= self._known_at:
            return SeedsFound(self._all)
        rng = self._rng
        match rng.randrange(6):
            case 0:
                return SeedsFound((), ("dns:members:5701: no such name",))
            case 1:
                return SeedsFound((own,))
            case 2:
                return SeedsFound(tuple(sorted({own, rng.choice(self._all)})))
            case 3:
                return SeedsFound(self._all)
            case _:
                return SeedsFound(tuple(sorted(rng.sample(self._all, rng.randrange(1, len(self._all) + 1)))))
