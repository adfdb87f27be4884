"""Requests of operators and clients about the cluster: what a member knows of it, and what its master is to change.
(Answers: `replies`.)"""

from __future__ import annotations

import enum

from phalanx.common.map_plan import Batch
from phalanx.common.map_settings import MapChange, SchemaText
from phalanx.wire.limits import Text, Texts
from phalanx.wire.message import WireMessage


class GetTable(WireMessage, tag=71, frozen=True):
    """Get the member's partition table."""

    id: int
    assign: bool
    """Whether the cluster should assign its partitions if that has not happened yet."""


class GetMembers(WireMessage, tag=72, frozen=True):
    """Get the member's view."""

    id: int


class GetMapNames(WireMessage, tag=73, frozen=True):
    """Get the names of the maps that have entries on this member."""

    id: int
    with_empty: bool = False
    """Whether to name also the maps that had entries before, as far as the member knows."""


class GetReplicas(WireMessage, tag=74, frozen=True):
    """Get statistics of the member's replicas: entries, bytes, and partitions with unacknowledged writes."""

    id: int


class GetHistory(WireMessage, tag=75, frozen=True):
    """Get the decisions that this member remembers. A member in no cluster answers, too."""

    id: int
    partition: int = -1
    """Get only the decisions about this partition, with its migrations; -1: only those about no partition."""


class GetSafety(WireMessage, tag=76, frozen=True):
    """Ask how many partitions would lose data if this member were stopped now, and what is under way."""

    id: int


class GetActivity(WireMessage, tag=108, frozen=True):
    """Get what this member did lately. A member in no cluster answers, too."""

    id: int
    most: int = 0
    """Get this many of the last points; each covers some seconds."""


class GetMigrations(WireMessage, tag=77, frozen=True):
    """Get the master's migrations and their progress. Other members only name the master."""

    id: int


class GetLosses(WireMessage, tag=171, frozen=True):
    """Get the losses that no operator has acknowledged, by the member's table."""

    id: int


class ChangePartitionCount(WireMessage, tag=80, frozen=True):
    """Divide every partition of the live cluster, to reach this partition count. Only the master does so.

    Answered when it is done. While migrations are under way the answer is NOT_READY, and no new one begins: ask again.
    """

    id: int
    partition_count: int


class AcknowledgeLosses(WireMessage, tag=173, frozen=True):
    """Remove losses from the table, because an operator has acknowledged them. Only the master does so. Idempotent.

    Answered when every member knows; until then the answer is NOT_READY: ask again.
    """

    id: int
    ids: Texts
    """The identities of losses (`Loss.id`, `EARLIER`), and members that are away."""
    by: Text
    """The name that the operator gave."""


class GiveUpHolders(WireMessage, tag=182, frozen=True):
    """Go on with dormant partitions without some of their holders, because an operator says so. Only the master does so.

    Dangerous: what only these have is lost. A partition gets the greatest replica of it that a present member has in its folder, or
    what members have to merge; one of which nobody has anything begins empty.
    """

    id: int
    holders: Texts
    """The addresses of the holders that do not come back."""
    begin_empty: int
    """How many partitions are to begin empty: the request is valid only if it is that many."""
    by: Text
    """The name that the operator gave."""


class LeaveCluster(WireMessage, tag=191, frozen=True):
    """Hand over all that the receiver holds, and leave for good: its folder is not needed any more. Answered when it has begun."""

    id: int


class StopCluster(WireMessage, tag=192, frozen=True):
    """Let all members end, in order to be started again with their folders. Only the master does so. Answered when it has begun."""

    id: int


class ForgetMember(WireMessage, tag=193, frozen=True):
    """Await a member no more that was at this address, and has in its folder what it held. Only the master does so. Where
    nobody is awaited, it is refused.
    """

    id: int
    address: Text


class AcceptView(WireMessage, tag=142, frozen=True):
    """Declare the present view stable, without the votes of missing members. Only the master does so, for an operator.

    Dangerous: if missing members still run somewhere, both sides have the majority.
    """

    id: int
    view_version: int
    """The version of the view that the operator has seen: the request is valid only for this view."""


class RaiseClusterVersion(WireMessage, tag=174, frozen=True):
    """Raise the cluster version, and hold it back no longer. Only the master does so, for an operator.

    From then on no member of an older release is admitted.
    """

    id: int
    to: int
    """The version that every member must speak."""


class HoldClusterVersion(WireMessage, tag=175, frozen=True):
    """Let no master raise the cluster version by itself, or (not `holds`) let them again."""

    id: int
    holds: bool


class ChangeLite(WireMessage, tag=89, frozen=True):
    """Make the receiver a lite member, which holds no data, or (not `lite`) a data member.

    Answered when it is done. Until then the answer is NOT_READY and says what it waits for: ask again.
    """

    id: int
    lite: bool


class ChangeMap(WireMessage, tag=79, frozen=True):
    """Change the settings of a map; an empty name: of all maps without own settings.

    Only the master does so: the answer of another member names the master. Answered when the master's table has the
    settings; the replicas follow. A schema, by which what is written next is read, must outlive the master: the answer is
    NOT_READY until every member knows it.
    """

    id: int
    map: Text
    change: MapChange
    schema_before: SchemaText | None = None
    """Of which schema the change's was made: refused if the map has yet another one. None: of none."""


class Replacement(enum.IntEnum):
    """The steps with which a job replaces the content of a map."""

    BEGIN = 1
    """The job begins to prepare new content. Answered with a `CountReply` of the content's stamp; 0: there is nothing
    to do, because the query's batch, or a later one, has replaced the map's content before."""
    DECIDE = 2
    """The new content must replace the present one. Answered with a flag."""
    ABORT = 3
    """The new content is dropped. Answered with a flag; False: the replacement was decided before."""


class ReplaceContent(WireMessage, tag=162, frozen=True):
    """Begin, decide or abort the replacement of a map's content, at the master.

    The answer is NOT_READY until every member knows: ask again.
    """

    id: int
    map: Text
    job: Text
    wish: Replacement
    stamp: int = 0
    """With DECIDE: the stamp that BEGIN returned. A delayed DECIDE must not decide a replacement that began since."""
    batch: Batch | None = None
    """With BEGIN: the query's batch whose content this is; None: it is not a batch of a query."""
    schema: SchemaText | None = None
    """With BEGIN: the map's schema once this content is in its place; empty: none; None: as it is."""
