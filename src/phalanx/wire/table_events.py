"""Events about the partition table, the settings of maps that it carries, and migrations."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.wire.event import RecordedEvent


class TableSearchStarted(RecordedEvent, frozen=True):
    waiting_for: tuple[MemberId, ...]


class TableSearchEnded(RecordedEvent, frozen=True):
    found_at: MemberId
    table_version: int
    rolled_back: tuple[int, ...] = ()
    """Partitions whose migration was under way, and that nobody has committed."""
    adopted: tuple[int, ...] = ()
    """Partitions whose replicas follow a rule that no table knows of."""
    rule: str = "DL-12 DL-30"


class TableInstalled(RecordedEvent, frozen=True):
    table_version: int
    owned: int
    backups: int


class PartitionsAssigned(RecordedEvent, frozen=True):
    table_version: int
    partitions: int
    members: tuple[MemberId, ...]
    rows: tuple[tuple[int, ...], ...] = ()
    """Who holds each partition, owner first: indexes into `members`."""
    rule: str = "DL-02"


class PartitionsRepaired(RecordedEvent, frozen=True):
    """Members left: backups took over, and rows without a survivor got a new, empty owner."""

    table_version: int
    promoted: tuple[int, ...]
    lost: tuple[int, ...]
    gone: tuple[MemberId, ...]
    rule: str


class PartitionLost(RecordedEvent, frozen=True):
    """All replicas of a partition left the cluster that goes on: it begins empty."""

    partition: int
    replicas: tuple[MemberId, ...]
    """Who held it."""
    partition_version: int
    table_version: int
    rule: str = "DL-05"
    replicas_now: tuple[MemberId | None, ...] = ()
    """Who holds it from now on, owner first."""


class WritesMayBeMissing(RecordedEvent, frozen=True):
    """Owners left, and the replicas that go on need not have all that was acknowledged: for some map they confirm no write,
    or have no entries at all."""

    partitions: tuple[int, ...]
    gone: tuple[MemberId, ...]
    table_version: int
    rule: str = "DL-05"


class LossesAcknowledged(RecordedEvent, frozen=True):
    """An operator has taken note of losses: they are told no more."""

    ids: tuple[str, ...]
    """Of losses, and members that were away."""
    operator: str
    partitions: int
    """That these losses were of."""
    table_version: int
    rule: str = "DESIGN 6 losses are told until they are acknowledged"


class BackupsChanged(RecordedEvent, frozen=True):
    """The master was asked to keep another number of backups."""

    map: str
    """Empty: of all maps that have no number of their own."""
    synchronous: int
    asynchronous: int
    table_version: int
    rule: str = "DESIGN 6 online change of backups"


class MapProtected(RecordedEvent, frozen=True):
    """The master was asked to let a map be refused where the cluster is too small, or not to any more."""

    map: str
    """Empty: all maps for which nothing else was set."""
    minimum: int
    majority: bool
    reads: bool
    writes: bool
    table_version: int
    rule: str = "EL-48"


class ContentReplaced(RecordedEvent, frozen=True):
    """The master has put what a job prepared in the place of a map's content."""

    map: str
    job: str
    table_version: int
    rule: str = "DESIGN 9 all or nothing"


class MergePolicyChanged(RecordedEvent, frozen=True):
    """The master was asked to merge a map by another policy from now on."""

    map: str
    """Empty: all maps for which nothing else was set."""
    policy: str
    table_version: int
    rule: str = "DESIGN 5 merge policies"


class ProtectionChanged(RecordedEvent, frozen=True):
    """A map begins to refuse here because this side of the cluster is too small, or refuses no more."""

    map: str
    """The name, or the beginning of names, that the protection was set for; `*`: all other maps."""
    refuses: bool
    minimum: int
    majority: bool
    reads: bool
    writes: bool
    present: int
    """Members of the view that hold data."""
    view_version: int
    reason: str
    """What is missing; empty: nothing any more."""
    rule: str = "EL-48"
    owner: MemberId | None = None
    """The member itself: what it owns it refuses."""


class MapSettingsDiffer(RecordedEvent, frozen=True):
    """This member was configured with settings of maps that are not the cluster's: the cluster's count."""

    differences: tuple[str, ...]
    rule: str = "DESIGN 5 protection"


class PartitionsDivided(RecordedEvent, frozen=True):
    """The master was asked for more partitions: each of `before` goes on as several, in one version of the table."""

    before: int
    after: int
    table_version: int
    rule: str = "DESIGN 6 online change of the partition count"


class MigrationsPlanned(RecordedEvent, frozen=True):
    """The master has worked out what to do until every replica is where it should be."""

    table_version: int
    partitions: int
    """That are to change."""
    migrations: int
    lacking: int
    """Partitions that miss replicas."""
    reason: str
    rule: str = "DL-58 DL-59"


class _MigrationEvent(RecordedEvent, frozen=True):
    partition: int
    kind: str
    source: MemberId | None
    source_current_index: int
    source_new_index: int
    destination: MemberId | None
    destination_current_index: int
    destination_new_index: int
    partition_version: int
    """That the migration was ordered for."""
    table_version: int


class MigrationStarted(_MigrationEvent, frozen=True):
    """The master has ordered a migration."""

    owner: MemberId
    """Who sends the data."""
    rule: str = "DL-58"


class MigrationCopied(RecordedEvent, frozen=True):
    """The owner: the destination holds everything; writes wait for it from now on."""

    partition: int
    partition_version: int
    destination: MemberId
    entries: int
    took_ms: Millis
    rule: str = "DL-33"


class PartitionSealed(RecordedEvent, frozen=True):
    """The owner answers nothing about the partition until it learns whether the destination is the owner now."""

    partition: int
    partition_version: int
    destination: MemberId
    rule: str = "DL-16"


class MigrationCommitted(_MigrationEvent, frozen=True):
    """The master: the destination has committed, so the table has changed."""

    took_ms: Millis
    replicas: tuple[MemberId | None, ...] = ()
    """The partition's row from now on, by replica index."""
    rule: str = "DL-17 DL-20"


class MigrationRolledBack(_MigrationEvent, frozen=True):
    """The master: the table stays as it was, its version grows by two."""

    reason: str
    rule: str = "DL-22"


class MigrationFinalized(RecordedEvent, frozen=True):
    """A participant has learnt how a migration ended."""

    partition: int
    partition_version: int
    endpoint: str
    """`source` or `destination`."""
    current_replica_index: int
    """Before the migration; -1: none."""
    new_replica_index: int
    """After it, if it was committed; -1: none."""
    committed: bool
    partition_version_now: int
    rule: str = "DL-24"


class RebalancingProgress(RecordedEvent, frozen=True):
    """The master tells how far the migrations are: every few seconds while they go on, and when they are over."""

    table_version: int
    arrived: int
    """Partitions that are where they should be."""
    planned: int
    """Partitions that were to change."""
    copied_entries: int
    copied_bytes: int
    """The size of the keys and values that were copied."""
    took_ms: Millis
    """Since the first migration began."""
    left_ms: Millis | None
    """How much longer it will take, at the pace of the partitions so far; None: no partition has arrived yet."""


class FullyReplicated(RecordedEvent, frozen=True):
    """Every partition has all the replicas that the number of members allows."""

    table_version: int
    took_ms: Millis
    """Since redundancy was lost."""


TableEvent = (
    TableSearchStarted | TableSearchEnded | TableInstalled | PartitionsAssigned | PartitionsRepaired | PartitionLost | WritesMayBeMissing | LossesAcknowledged
    | BackupsChanged | ContentReplaced | MapProtected | MergePolicyChanged | ProtectionChanged | MapSettingsDiffer | PartitionsDivided
    | MigrationsPlanned | MigrationStarted | MigrationCopied | PartitionSealed | MigrationCommitted
    | MigrationRolledBack | MigrationFinalized | RebalancingProgress | FullyReplicated
)  # fmt: skip
