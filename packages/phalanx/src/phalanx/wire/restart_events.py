"""Events of a cluster that is switched off and comes back from its folders, and of partitions that wait for folders."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.wire.event import LOST, REPAIR, TROUBLE, WARNING, Either, Event, Notice


class RestartWaits(Event, frozen=True):
    """A cluster that was switched off waits for former members before it goes on."""

    notice = Either(
        "lacks_majority",
        Notice(
            "waits for {waits_for}: the majority of the last stable list is not back[, and nobody else has all of {partitions:partition/partitions}]",
            WARNING,
            TROUBLE,
        ),
        Notice(
            "waits for {waits_for} before the cluster goes on[: nobody else has all of {partitions:partition/partitions}]",
            WARNING,
            TROUBLE,
        ),
    )

    waits_for: tuple[MemberId, ...]
    """The incarnations that have written the missing folders, or the identities for which their processes vote."""
    partitions: int
    """Partitions that no present member has as a whole."""
    lacks_majority: bool
    rule: str = "DU-29 DU-33"


class ClustersMixed(Event, frozen=True):
    """Members that wait together have the data of several clusters, which never go on together."""

    notice = Notice(
        "serves nothing: {one} have the data of one cluster, and {others} that of another one. Stop all but those of one: then it goes on",
        WARNING,
        TROUBLE,
    )

    one: tuple[MemberId, ...]
    others: tuple[MemberId, ...]
    rule: str = "DU-29 DU-33"


class FolderIsOld(Event, frozen=True):
    """A member has come back with a folder that is older than others know: it has no vote in the restart of the cluster."""

    notice = Notice(
        "the data_dir of {of} was put back from an earlier time, or copied then: a process has started with it {start:time/times}, and others know of {known_start}. It has no vote: put the newer folder back, or start it with an empty one",
        WARNING,
        TROUBLE,
    )

    of: MemberId
    """The member with that folder."""
    start: int
    """How often a process has started with it."""
    known_start: int
    """How often others know that one has."""
    rule: str = "DU-56"


class ClockJumped(Event, frozen=True):
    """A process has read a folder that was not written for more than a day, by its machine's clocks."""

    notice = Notice(
        "was off for {off_ms:s} by the clock of its machine, and times to live have run meanwhile: if that clock jumped, entries have ended too early",
        WARNING,
        TROUBLE,
    )

    off_ms: Millis
    rule: str = "DU-28"


class ClusterRestarted(Event, frozen=True):
    """A cluster that was switched off goes on with what its members have read from their folders."""

    notice = Notice(
        "goes on with what {members} have read from their folders[, without {absent}] {in_table}", group=REPAIR
    )

    table_version: int
    members: tuple[MemberId, ...]
    absent: tuple[MemberId, ...]
    """Voters of the last stable view that were not there, and who held partitions on a side without the majority."""
    rule: str = "DU-29 DU-30"


class PartitionsDormant(Event, frozen=True):
    """The last holders of partitions left the cluster, and have them in their folders: nobody serves them until a holder is back."""

    notice = Notice("does not serve {partitions:partition} until one of {holders} is back {in_table}", WARNING, TROUBLE)

    partitions: tuple[int, ...]
    holders: tuple[MemberId, ...]
    """The members that held them last."""
    table_version: int
    rule: str = "DU-32"


class PartitionsWoken(Event, frozen=True):
    """Members are back that have dormant partitions in their folders."""

    notice = Notice(
        "serves {partitions:partition} again, which {members} have read from their folders {in_table}", group=REPAIR
    )

    partitions: tuple[int, ...]
    members: tuple[MemberId, ...]
    """Their holders from now on."""
    table_version: int
    rule: str = "DU-32"


class HoldersGivenUp(Event, frozen=True):
    """An operator let dormant partitions go on without holders that do not come back: what only these had is lost."""

    notice = Notice(
        "goes on without {holders} with {partitions:partition}[, of which {empty:partition} begin empty][, and {to_merge:partition} with what is to be merged], because {by} said so {in_table}",
        WARNING,
        LOST,
    )

    partitions: tuple[int, ...]
    empty: tuple[int, ...]
    """Those of which nobody had anything."""
    holders: tuple[MemberId, ...]
    by: str
    """The name that the operator gave."""
    table_version: int
    to_merge: tuple[int, ...] = ()
    """Those that begin empty, and get what members have kept of them."""
    rule: str = "DU-32"
