"""Two sides of one cluster find each other again and become one (reference 003, "Recovering from split brain").

The master of each side looks, at the addresses of former members and of the seeds, for a side that it has no member in
common with. Which side joins the other is a total order that both compute alike. A side acts only on a message that
names its own present view: then the other side lives, has seen what this one is now, and has decided the same. All
members of the losing side end their incarnations and join the other side as new members, the youngest.
"""

from __future__ import annotations

from phalanx.common.ids import Address, MemberId, Millis, address_of, may_be_member
from phalanx.common.view import MembersView
from phalanx.membership.role import Role
from phalanx.membership.state import MembershipState
from phalanx.wire import events
from phalanx.wire.messages import PROTOCOL_VERSION, MergeOrder, MergeProbe

PROBES_AT_ONCE = 8
"""Addresses at which a master looks in one round; the next round goes on behind them."""
RAREST = 16
"""Where nobody is found a master looks rarer and rarer, down to every so many intervals."""


def side_rank(view: MembersView, has_data: bool) -> tuple[bool, int, int, int, str]:
    """A side's place in the total order; the side with the smaller one joins the other, and gives up its data.

    Members that hold none count only between sides that have equally many that do.
    """
    return (has_data, len(view.data_members), len(view.members), view.version, view.master)


class Merging:
    """Looks for the other side while this member is the master, and answers one that looks for this side."""

    def __init__(self, state: MembershipState) -> None:
        self._state = state
        self._out = state.out
        self._next_look: Millis | None = None
        self._rarity = 1
        self._looked_at = 0
        """How many addresses have been asked, over all rounds."""
        self._seen: tuple[Address, ...] = ()
        """Where it looked last; when that changes it looks often again."""

    def __repr__(self) -> str:
        return f"Merging(next_look={self._next_look}, former={list(self._state.former)})"

    def next_deadline(self) -> Millis | None:
        return self._next_look if self._state.is_master else None

    def on_time(self, now: Millis) -> None:
        state = self._state
        if not state.is_master:
            self._next_look = None
        elif self._next_look is None or now >= self._next_look:
            if self._next_look is not None:
                self._look(now)
            self._next_look = now + state.config.merge_interval_ms * self._rarity

    def _look(self, now: Millis) -> None:
        state = self._state
        for address in [address for address, until in state.former.items() if until <= now]:
            del state.former[address]
        own = {address_of(member) for member in state.members}
        candidates = tuple(a for a in dict.fromkeys([*state.former, *state.config.seeds]) if a not in own)
        self._rarity = min(2 * self._rarity, RAREST) if candidates == self._seen else 1
        self._seen = candidates
        for step in range(min(PROBES_AT_ONCE, len(candidates))):
            self._probe(candidates[(self._looked_at + step) % len(candidates)])
        self._looked_at += PROBES_AT_ONCE

    def _probe(self, to: Address | MemberId, about: MembersView | None = None) -> None:
        state = self._state
        config = state.config
        version, maker = (about.version, about.maker) if about is not None else (0, "")
        probe = MergeProbe(config.cluster, PROTOCOL_VERSION, config.partition_count, state.joined(),
                           state.has_data, version, maker)  # fmt: skip
        self._out.send(to, probe)

    def on_merge_probe(self, sender: MemberId, message: MergeProbe) -> None:
        """Another side is there, or says that it is."""
        state = self._state
        theirs = message.view
        if not theirs.members or not may_be_member(theirs.master):
            return
        if state.role is Role.SLAVE and sender not in state.members and state.master is not None:
            if theirs.master not in state.members:
                self._out.send(state.master, message)
            return
        if not state.is_master or not self._is_other_side(message):
            return
        mine = state.joined()
        self._rarity = 1
        loses = side_rank(mine, state.has_data) < side_rank(theirs, message.has_data)
        answers_mine = (message.about_version, message.about_maker) == (mine.version, mine.maker)
        if loses and answers_mine:
            self._record(message, "this side joins the other one")
            for member in mine.others(state.this):
                self._out.send(member, MergeOrder(theirs))
            if state.wants_to_leave:
                state.leave()
            else:
                state.end("merges with another side of its cluster", rejoin=theirs.members)
        elif not loses or not answers_mine:
            if not answers_mine:
                self._record(message, "this side is joined by the other one" if not loses else "it is asked")
            self._probe(theirs.master, theirs)

    def _is_other_side(self, message: MergeProbe) -> bool:
        config, theirs = self._state.config, message.partition_count
        if (config.cluster, PROTOCOL_VERSION) != (message.cluster, message.protocol):
            return False
        # While the count changes, members are configured with the old and with the new one: a multiple of it.
        small, large = sorted((theirs, config.partition_count))
        return small > 0 and large % small == 0 and self._state.members.isdisjoint(message.view.members)

    def _record(self, message: MergeProbe, decision: str) -> None:
        state, theirs, mine = self._state, message.view, self._state.joined()
        self._out.record(
            events.OtherSideFound(
                theirs.master, len(theirs.members), theirs.version, message.has_data,
                mine.version, len(mine.members), state.has_data, decision, "EL-57 EL-62",
            )
        )  # fmt: skip

    def on_merge_order(self, sender: MemberId, message: MergeOrder) -> None:
        """This member's master has decided that its side joins another."""
        state = self._state
        if state.view is None or sender != state.master or state.this in message.into:
            return
        state.eject(sender, message.into, "EL-60 this side joins another one")
