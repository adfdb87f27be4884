"""The shapes of the answers of `/api/…`, from which its OpenAPI document is made. What is in them is made in `reports`.

Fields are only added: programs and the console read them. Ages and durations are milliseconds, `at` and `since` are milliseconds
since 1970 by the grid's clock, and a member is `host:port/incarnation`.
"""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

from phalanx.reports.safety import Reason
from phalanx.wire.messages import KeptByMember, LeavingMember

Sentence = Annotated[str, Meta(description="Words for people.")]
Count = Annotated[int, Meta(ge=0)]


class Failure(TypedDict):
    """Why there is no answer."""

    error: Sentence


class AwaitedRestart(TypedDict):
    """For whom a cluster waits that was switched off."""

    said: Sentence
    members: Annotated[list[str], Meta(description="Addresses of the former members to start.")]
    lacking: Annotated[Count, Meta(description="Partitions that no present member has as a whole.")]
    lacks_majority: Annotated[bool, Meta(description="Whether the majority of the last stable list is not back.")]
    last_seen: int | None
    clusters: Annotated[
        list[list[str]],
        Meta(
            description="If members have the data of several clusters: those of each. All but those of one are to be stopped."
        ),
    ]


class Disk(TypedDict):
    """How the disk of a member does."""

    state: Annotated[str, Meta(description="ok, slow, full or failed.")]
    why: Sentence
    unsynced_bytes: Count
    unsynced_ms: Count
    log_bytes: Count
    segments: Count
    room_bytes: Count


class GoneMember(TypedDict):
    """A member whose end caused a loss."""

    member: str
    how: str


class LostPartitions(TypedDict):
    """One loss."""

    id: str
    kind: str
    at: int
    age_ms: int
    by: Annotated[str, Meta(description="The master that decided it.")]
    view_version: int
    partition_count: Count
    count: Annotated[int, Meta(description="How many partitions it concerns.")]
    partitions: list[int]
    gone: list[GoneMember]
    gone_count: Count
    entries: Annotated[int | None, Meta(description="Entries that were lost; null: not known.")]
    returned: Annotated[list[int], Meta(description="Partitions that a member which came back has given back.")]
    said: Sentence


class EarlierLosses(TypedDict):
    """Losses that are only counted: there were too many."""

    losses: Count
    partitions: Count


class AwayMember(TypedDict):
    """A member that was removed, and can come back with what only it has."""

    member: str
    address: str
    at: int
    age_ms: int
    how: str


class Losses(TypedDict):
    """What the cluster has lost and nobody has acknowledged."""

    unacknowledged_losses: list[LostPartitions]
    earlier_losses: EarlierLosses
    away: list[AwayMember]


class ListedMember(TypedDict):
    """A member of the list."""

    member: str
    address: str
    incarnation: str
    master: bool
    suspected: Annotated[bool, Meta(description="Whether the member that answers suspects it.")]
    zone: str
    weight: float
    lite: Annotated[bool, Meta(description="Whether it holds no data.")]
    release: Annotated[str, Meta(description="The version of the package that it runs.")]
    protocols: Annotated[list[int], Meta(description="The oldest and the newest protocol that it speaks.")]


class AwaitedMember(TypedDict):
    """A member that is not in the list, and has in its folder what it held."""

    member: str
    address: str
    stopped: Annotated[
        bool, Meta(description="Whether it was stopped in order to be started again; false: it crashed, or is cut off.")
    ]


class Members(Losses):
    """The member list, oldest first."""

    cluster: str
    asked: Annotated[str, Meta(description="The member that answers.")]
    size: Count
    version: int
    maker: str
    master: str
    cluster_version: Annotated[int, Meta(description="The protocol that all members can use.")]
    cluster_version_held: Annotated[bool, Meta(description="Whether an operator holds it back.")]
    raise_waits_for: Annotated[
        str | None, Meta(description="Why it is not raised, if this member is the master and it is not.")
    ]
    restart_wait: AwaitedRestart | None
    awaited: list[AwaitedMember]
    members: list[ListedMember]


class MigrationUnderWayAnswer(TypedDict):
    """A migration whose outcome the master does not know yet. An index of -1: none."""

    partition: Count
    kind: str
    source: str | None
    source_current_index: int
    source_new_index: int
    destination: str | None
    destination_current_index: int
    destination_new_index: int
    owner: str
    phase: str
    age_ms: int


class MigrationsAnswer(TypedDict):
    """What the master moves."""

    at_rest: bool
    searching_for: list[str]
    planned: Count
    arrived: Count
    remaining: Count
    done: Count
    copied_entries: Count
    copied_bytes: Count
    took_ms: int
    left_ms: Annotated[int | None, Meta(description="At the pace so far; null: not known.")]
    lacking: Count
    without_table: list[str]
    leaving: Annotated[list[LeavingMember], Meta(description="Each is [member, replicas].")]
    missing: Annotated[list[str], Meta(description="Members that can come back, and for which the leaving ones stay.")]
    kept: Annotated[list[KeptByMember], Meta(description="Each is [member, replicas, entries].")]
    under_way: list[MigrationUnderWayAnswer]


class HoldingMember(TypedDict):
    """What a member holds; null: it does not answer."""

    member: str
    address: str
    owned: Count
    backups: Count
    entries: int | None
    bytes: int | None
    unconfirmed: int | None
    kept_entries: int | None


class _PartitionSums(TypedDict):
    partition_count: Count
    table_version: int
    assigned: bool
    view_version: int
    backup_count: Count
    under_replicated: Count
    without_owner: Count
    dormant: Annotated[
        dict[str, list[str]], Meta(description="Partitions that wait for a member with its folder, and who held them.")
    ]
    restart_wait: AwaitedRestart | None
    whole: bool
    migrations: Annotated[MigrationsAnswer | None, Meta(description="null: the master does not answer.")]
    unacknowledged_losses: list[LostPartitions]
    earlier_losses: EarlierLosses
    away: list[AwayMember]


class Partitions(_PartitionSums):
    """Who holds what, and what is being moved."""

    members: list[HoldingMember]


class HeldPartition(TypedDict):
    """One partition."""

    partition: Count
    version: int
    replicas: Annotated[list[str | None], Meta(description="The members that hold it, owner first.")]


class EveryPartition(Partitions):
    """The same, with each partition."""

    partitions: list[HeldPartition]


class CountedMember(HoldingMember):
    """What a member holds and says of itself; null: it does not answer."""

    memory_used: int | None
    memory_limit: Annotated[int | None, Meta(description="0: it has none.")]
    event_log_problem: Annotated[
        str | None, Meta(description="Why its event log cannot be written; empty: it can, or the member does not tell.")
    ]
    suspects: list[str] | None
    master: bool
    release: str | None


class CountedMap(TypedDict):
    """A map and how many entries it has."""

    map: str
    size: Count


class StatusAnswer(_PartitionSums):
    """The whole cluster, and whether all is well."""

    well: bool
    problems: Annotated[list[str], Meta(description="Why not all is well.")]
    cluster_version: int
    members: list[CountedMember]
    maps: Annotated[list[CountedMap], Meta(description="The largest first.")]


Backups = TypedDict("Backups", {"sync": Count, "async": Count})  # `async` is a word of the language
"""How many backups each partition of a map has."""


class ListedMap(TypedDict):
    """A map with entries."""

    map: str
    size: Count
    backups: Backups
    max_entries: Annotated[int, Meta(description="0: any number.")]
    max_bytes: Annotated[int, Meta(description="0: any number.")]
    dicts: Annotated[str, Meta(description="How programs store dicts: rows, json, or any (as each says).")]


class Maps(TypedDict):
    """The maps that have entries."""

    maps: list[ListedMap]


class MapProtection(TypedDict):
    """When members refuse requests for a map."""

    on: bool
    minimum: Count
    majority: bool
    reads: bool
    writes: bool


class MapJournalAnswer(TypedDict):
    """What a partition's journal keeps; 0: the map has none."""

    capacity: Count
    max_bytes: Count


class ColumnAnswer(TypedDict):
    """A column of a map's rows."""

    name: str
    type: Annotated[str, Meta(description="As SQL writes it, such as decimal(12,2) or map<string,int>.")]


class MapSchemaAnswer(TypedDict):
    """The schema of a map's rows, which writers of tables store."""

    key: Annotated[list[str], Meta(description="The columns that are the map's key, in its order.")]
    columns: list[ColumnAnswer]


class MapSettingsAnswer(TypedDict):
    """The settings of a map."""

    backups: Backups
    protection: MapProtection
    merge_policy: str
    max_entries: Annotated[int, Meta(description="0: any number.")]
    max_bytes: Annotated[int, Meta(description="0: any number.")]
    eviction: str
    max_idle_ms: Annotated[int, Meta(description="0: unused entries stay.")]
    dicts: Annotated[str, Meta(description="How programs store dicts: rows, json, or any (as each says).")]
    durability: Annotated[str, Meta(description="What a write waits for: interval (no sync) or always.")]
    schema: Annotated[MapSchemaAnswer | None, Meta(description="null: the map has none.")]
    journal: MapJournalAnswer


Settings = dict[str, MapSettingsAnswer]


class Safety(TypedDict):
    """Whether this member can be stopped now, and why not."""

    member: str
    address: str
    may_be_killed: bool
    may_leave: Annotated[bool, Meta(description="Whether SIGTERM loses nothing.")]
    against_kill: list[Reason]
    against_leaving: list[Reason]
    notes: list[str]
    owned: Count
    backups: Count
    only_here: Count
    lacking: Count
    unconfirmed: Count
    kept: Count
    kept_entries: Count
    migrating: Count
    wanted_replicas: Count
    configured_replicas: Count
    table_version: int
    memory_used: int
    memory_limit: int
    view_version: int
    restart_wait: AwaitedRestart | None
    disk: Annotated[Disk | None, Meta(description="null: it has no folder, or does not tell.")]


class RecordedDecision(TypedDict):
    """A decision of a member."""

    at: int
    age_ms: int
    by: str
    event: str
    said: Sentence
    reason: str
    rule: Annotated[str, Meta(description="Ids of rules, or a name.")]
    meaning: Annotated[str, Meta(description="These rules in words.")]
    fields: Annotated[dict[str, Any], Meta(description="The other fields of the event.")]


class MemberStory(TypedDict):
    """What happened to a member."""

    member: str
    incarnations: Annotated[list[str], Meta(description="All that the subject means, oldest first.")]
    status: Annotated[str, Meta(description="member, removed, left, waiting, gone or not admitted")]
    conclusion: Sentence
    suspected_by: list[str]
    decisions: list[RecordedDecision]
    notes: Annotated[list[str], Meta(description="What is missing in the story.")]
    unacknowledged_losses: NotRequired[list[LostPartitions]]
    earlier_losses: NotRequired[EarlierLosses]
    away: NotRequired[list[AwayMember]]


class HeldSince(TypedDict):
    """Who held a partition from then on."""

    since: int
    replicas: list[str | None]


class PartitionStoryAnswer(TypedDict):
    """What happened to a partition."""

    partition: Count
    version: int | None
    replicas: list[str | None] | None
    conclusion: Sentence
    held: list[HeldSince]
    committed: Count
    rolled_back: Count
    promotions: Count
    losses: Count
    under_way: dict[str, Any] | None
    decisions: list[RecordedDecision]
    notes: list[str]
    unacknowledged_losses: NotRequired[list[LostPartitions]]
    earlier_losses: NotRequired[EarlierLosses]
    away: NotRequired[list[AwayMember]]


class LargestSet(TypedDict):
    """A set of members that can all talk to one another, and how it does by each criterion."""

    kept: list[str]
    lost_partitions: Count
    members: Count
    zones: Count
    whole_zones: Count


class RefusedMap(TypedDict):
    """A map that would refuse calls on one side."""

    map: Annotated[str, Meta(description="Its name; with *: the beginning of names; * alone: all other maps.")]
    needs: Sentence


class CutSide(TypedDict):
    """Members that would continue as one cluster."""

    master: str
    members: list[str]
    waiting: Annotated[list[str], Meta(description="Removed, until their links are whole.")]
    lost_partitions: Annotated[int, Meta(ge=0, description="These begin empty on this side.")]
    refuses: list[RefusedMap]
    because: Sentence


class WhatIf(TypedDict):
    """Who would continue."""

    members: list[str]
    master: str
    lite: list[str]
    zones: dict[str, str]
    table_version: int | None
    cut: list[tuple[str, str]]
    kept: list[str]
    removed: list[str]
    optimal: Annotated[bool, Meta(description="Proven: no set is larger.")]
    could_be_larger_by: float
    lost_partitions: Count
    decided_by: str
    because: Sentence
    narrowed: dict[str, int]
    tie_is_exact: bool
    largest_count: int | None
    largest: list[LargestSet]
    is_full_cut: Annotated[bool, Meta(description="Members that the master does not reach go on without it.")]
    sides: Annotated[list[CutSide], Meta(description="That of the master first.")]
    undecided: Annotated[list[str], Meta(description="Members for which no side was found in time.")]
    meeting: Annotated[
        Sentence, Meta(description="Which side the others join when the links are whole; empty: one side.")
    ]


class LockHolder(TypedDict):
    """One who holds a lock or a permit."""

    holder: str
    token: int
    lease_left_s: float


class LockStateAnswer(TypedDict):
    """The state of a lock or semaphore."""

    name: str
    map: str | None
    permits: int | None
    token: Annotated[int | None, Meta(description="The greatest fencing token; null: no caller has used one.")]
    holders: list[LockHolder]
    waiting: Count
