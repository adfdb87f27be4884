"""What a joiner finds beside the cluster: processes in no cluster, and addresses where no process answers."""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.departure import HowGone
from phalanx.common.ids import Address, MemberId, Millis, address_of
from phalanx.common.versions import Release
from phalanx.machine.inputs import LinkLost, LinkRefused, LinkUp, SeedsFound
from phalanx.machine.local_context import LocalContext
from phalanx.membership.join.former_members import REMEMBERED, lasting
from phalanx.membership.join.gone_members import GoneMembers
from phalanx.wire.join_events import SeedsChanged
from phalanx.wire.messages import JoinResponse


class JoinSurroundings:
    """Decides with which version of the protocol a new cluster of this member begins."""

    def __init__(self, local: LocalContext, gone: GoneMembers) -> None:
        self._local = local
        self._gone = gone
        self.version_before = 0
        """The cluster version that the incarnation before this one had; 0: there was none."""
        self._also_looking: dict[MemberId, Release] = {}
        """Processes that were found in no cluster either, as long as this member joins, and what they speak."""
        self._explained: set[Address] = set()
        """Addresses at which somebody answered, or no process listens, when they were last tried."""

    def forget(self) -> None:
        """Forget what was found: this member has joined, or ended."""
        self._also_looking.clear()
        self._explained.clear()

    def on_link(self, event: LinkLost | LinkRefused | LinkUp) -> None:
        """Note whether it is known what is at an address."""
        if isinstance(event, LinkRefused):
            is_explained = event.is_deserted or event.final
            (self._explained.add if is_explained else self._explained.discard)(address_of(MemberId(event.peer)))

    def on_seeds(self, event: SeedsFound) -> None:
        """Note what sources of seeds have answered: a master looks there for other sides of its cluster."""
        former = self._gone.former
        if (former.found, former.not_found) != (event.addresses, event.failures):
            former.found, former.not_found = event.addresses, event.failures
            self._local.out.record(SeedsChanged(event.addresses, event.failures))

    def note_looking(self, sender: MemberId, release: Release) -> None:
        """Note a process that is in no cluster."""
        if len(self._also_looking) < REMEMBERED:
            self._also_looking[sender] = release
            self._explained.add(address_of(sender))

    def learn(self, message: JoinResponse, now: Millis) -> None:
        """Take over where the cluster's former members can be."""
        self._gone.former.learn(message.former, now)

    def version_to_begin_with(self, seeds: Collection[Address], heard_of: Collection[Address], now: Millis) -> int:
        """Return the newest version that this build speaks, if no process of an older release can be there that has data.

        1. X, of the older release, keeps its data aside, or is another side of the cluster. 2. All others end, and are started
        with the newer release. 3. A finds X in no cluster, or does not reach it, and forms the cluster. 4. X is refused for good.

        `heard_of`: addresses that only others have named.
        """
        gone, config = self._gone, self._local.config
        gone.former.remember(heard_of, now)
        if self.version_before:
            return self.version_before
        gone.departures.learn_unknown(lasting(config, [s for s in seeds if s not in self._explained]), now)
        for member, its in self._also_looking.items():
            gone.departures.note(member, HowGone.CUT_OFF, its.newest, now)
        gone.former.remember(map(address_of, self._also_looking), now)
        self.forget()
        newest = self._local.release.newest
        is_safe = config.raise_cluster_version and not gone.departures.awaited(newest, now)
        return newest if is_safe else self._local.release.oldest
