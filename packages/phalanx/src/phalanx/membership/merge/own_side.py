"""What a side says of itself to another one, and which others can be sides of its cluster."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.common.ids import MemberId
from phalanx.common.restored_cluster import stay_apart
from phalanx.common.versions import DORMANT_FROM, Release, agree, spoken_by_all
from phalanx.common.view import MembersView
from phalanx.machine.local_context import LocalContext
from phalanx.membership.state import MembershipState
from phalanx.membership.table_news import TableNews
from phalanx.wire.messages import MergeProbe


def spoken_by(message: MergeProbe) -> Release:
    """Return the versions that all members of the asking side speak."""
    return Release(message.newest or message.protocol, message.protocol)


class OwnSide:
    """The side of which this member is the master."""

    def __init__(
        self,
        local: LocalContext,
        state: MembershipState,
        table: TableNews,
        founders: Callable[[], tuple[MemberId, ...]],
    ) -> None:
        """`founders`: returns who founded this cluster, and those that have merged into it."""
        self._local = local
        self._state = state
        self._table = table
        self._founders = founders

    @property
    def has_data(self) -> bool:
        """Whether it serves data."""
        return self._table.has_data

    @property
    def partition_count(self) -> int:
        """The number of its partitions."""
        return self._table.partition_count

    def spoken(self) -> Release:
        """Return the versions that all its members speak."""
        return spoken_by_all(self._state.joined().all_releases().values())

    @property
    def needed_version(self) -> int:
        """Return the version that members of another side have to speak to know what this side's table says; 0: any."""
        return DORMANT_FROM if self._table.awaited_holders() else 0

    def probe(self, about: MembersView | None, question: int, answers: int) -> MergeProbe:
        """Return what asks another side. `about`: its view, as far as it is known. `answers`: the number of its own question."""
        config, spoken = self._local.config, self.spoken()
        version, maker = (about.version, about.maker) if about is not None else (0, "")
        return MergeProbe(
            config.cluster, spoken.oldest, self.partition_count, self._state.joined(), self.has_data, version, maker, question, answers,
            spoken.newest, self._founders(), MemberId("") if self.has_data else self._local.stored_root,
        )  # fmt: skip

    def can_be_one_with(self, message: MergeProbe) -> bool:
        """Return whether the asking side is another one, and of the same cluster."""
        config, theirs = self._local.config, message.partition_count
        if config.cluster != message.cluster or agree(self._local.release, spoken_by(message)) is None:
            return False
        if stay_apart(self._founders(), message.founders):
            return False
        if self._keeps_what_it_has_read(message):
            return False
        # It has perhaps divided its partitions: then it has a multiple of what it began with. Both can have, in different ways.
        small, large = sorted((theirs, config.partition_count))
        return small > 0 and large % small == 0 and self._state.members.isdisjoint(message.view.members)

    def _keeps_what_it_has_read(self, message: MergeProbe) -> bool:
        """Return whether this side waits with what was read from folders, and the asking one has the data of another cluster (DU-25).

        1. The first seed has lost its folder, founds a cluster, and is used. 2. The others wait for their majority, and have no data that
        they serve. 3. Did they join it, each were refused, because it has the data of another cluster, and they never got together.
        """
        root = self._local.stored_root
        is_other = bool(root and message.founders) and root not in message.founders
        return is_other and (message.has_data or message.stored_root not in ("", root)) and not self.has_data
