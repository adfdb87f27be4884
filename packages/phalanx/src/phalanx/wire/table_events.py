"""Events about the partition table, the settings of maps in it, and migrations."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.wire.event import DEBUG, ERROR, LOST, MOVE, REPAIR, TROUBLE, WARNING, Either, Event, Notice

_SEARCHED = Notice(
    "continues as the master with partition table ver {table_version} of {found_at}[; {rolled_back:migration under way is/migrations under way are} rolled back][; {adopted:partition is taken as its replicas have it/partitions are taken as their replicas have them}]",
    is_detail=True,
)


class TableSearchStarted(Event, frozen=True):
    """A new master asks all other members for their partition tables."""

    notice = Notice("asks the others for their partition tables: {waiting_for}")

    waiting_for: tuple[MemberId, ...]


class TableSearchEnded(Event, frozen=True):
    """A new master has found the most recent partition table."""

    notice = Either("table_version", _SEARCHED, _SEARCHED._replace(level=DEBUG))

    found_at: MemberId
    """The member that had it."""
    table_version: int
    rolled_back: tuple[int, ...] = ()
    """Partitions with a migration under way that no member had committed."""
    adopted: tuple[int, ...] = ()
    """Partitions whose replicas follow an owner with a newer epoch than any table says."""
    rule: str = "DL-12 DL-30"


class TableInstalled(Event, frozen=True):
    notice = Notice("installs partition table ver {table_version}", DEBUG)

    table_version: int
    owned: int
    """How many partitions this member owns in this table."""
    backups: int
    """Of how many partitions it is a backup."""


class PartitionsAssigned(Event, frozen=True):
    notice = Notice(
        "assigns the {partitions} partitions {in_table}",
        group=REPAIR,
        log="partition table ver {table_version}: {partitions} partitions assigned to {members:#} members",
    )

    table_version: int
    partitions: int
    members: tuple[MemberId, ...]
    rows: tuple[tuple[int, ...], ...] = ()
    """The replicas of each partition, owner first, as indexes into `members`."""
    rule: str = "DL-02"


class PartitionsRepaired(Event, frozen=True):
    """Members left. Backups became owners, and partitions without a replica got a new, empty owner."""

    notice = Either(
        "lost",
        Notice(
            "takes {gone} out of the table; it had no other replica of {lost} {in_table}",
            ERROR,
            LOST,
            log="partition table ver {table_version}: {promoted:#} backups became owners, {lost:#} partitions lost all replicas",
        ),
        Notice(
            "takes {gone} out of the table {in_table}",
            group=REPAIR,
            log="partition table ver {table_version}: {promoted:#} backups became owners, {lost:#} partitions lost all replicas",
        ),
    )

    table_version: int
    promoted: tuple[int, ...]
    """Partitions of which a backup became the owner."""
    lost: tuple[int, ...]
    """Partitions that lost all replicas."""
    gone: tuple[MemberId, ...]
    """The members that left."""
    rule: str


class PartitionLost(Event, frozen=True):
    """All replicas of a partition left the cluster: the partition begins empty."""

    notice = Notice("begins partition {partition} empty: none of {replicas} is left", DEBUG, LOST)

    partition: int
    replicas: tuple[MemberId, ...]
    """The members that held it."""
    partition_version: int
    table_version: int
    rule: str = "DL-05"
    replicas_now: tuple[MemberId | None, ...] = ()
    """The members that hold it from now on, owner first."""


class WritesMayBeMissing(Event, frozen=True):
    """Owners left, and their successors may lack acknowledged writes: for some map they were no synchronous backups, or
    held no entries at all."""

    notice = Notice(
        "continues {partitions:partition} with replicas that perhaps lack acknowledged writes, because {gone} went {in_table}",
        WARNING,
        TROUBLE,
    )

    partitions: tuple[int, ...]
    gone: tuple[MemberId, ...]
    """The members that left."""
    table_version: int
    rule: str = "DL-05"


class LossesAcknowledged(Event, frozen=True):
    """An operator has acknowledged losses: the table reports them no longer."""

    notice = Notice(
        "no longer reports {ids}, losses of {partitions:partition}: {operator} has acknowledged them {in_table}"
    )

    ids: tuple[str, ...]
    """The identities of the losses, and members that were away."""
    operator: str
    """The name that the operator gave."""
    partitions: int
    """How many partitions these losses concerned."""
    table_version: int
    rule: str = "PX-05"


class BackupsChanged(Event, frozen=True):
    """The master has changed the number of backups, as an operator or a program asked."""

    notice = Either(
        "map",
        Notice("gives map {map} {synchronous} synchronous and {asynchronous} asynchronous backups {in_table}"),
        Notice(
            "gives maps without numbers of their own {synchronous} synchronous and {asynchronous} asynchronous backups {in_table}"
        ),
    )

    map: str
    """The name of the map; empty: all maps without a number of their own."""
    synchronous: int
    """The number of synchronous backups from now on."""
    asynchronous: int
    """The number of asynchronous backups from now on."""
    table_version: int
    rule: str = "PX-06"


class MapProtected(Event, frozen=True):
    """The master has changed a map's protection, as asked: when members refuse requests for it."""

    notice = Either(
        "wish", Notice("lets {which} need {wish} {in_table}"), Notice("no longer protects {which} {in_table}")
    )

    map: str
    """The name of the map; empty: all maps without a protection of their own."""
    minimum: int
    """How many data members this side must have; 0: any number."""
    majority: bool
    """Whether this side must have the majority of the last stable view."""
    reads: bool
    """Whether reads are refused otherwise."""
    writes: bool
    """Whether writes are refused otherwise."""
    table_version: int
    rule: str = "EL-48"


class ContentReplaced(Event, frozen=True):
    """The content that a job prepared has replaced a map's content in the master's table."""

    notice = Notice("has replaced the content of map {map} by that of job {job} {in_table}")

    map: str
    job: str
    table_version: int
    rule: str = "PX-07"


class MergePolicyChanged(Event, frozen=True):
    """The master has changed the merge policy of a map, as asked."""

    notice = Notice("lets {which} be merged by {policy} {in_table}")

    map: str
    """The name of the map; empty: all maps without a policy of their own."""
    policy: str
    table_version: int
    rule: str = "PX-11"


class ProtectionChanged(Event, frozen=True):
    """This member begins, or stops, to refuse requests for a map because its side is too small."""

    notice = Either(
        "refuses",
        Notice(
            "refuses {of_what} of {which} from now on; {present:member that holds data is/members that hold data are} here {in_view}",
            WARNING,
        ),
        Notice(
            "no longer refuses {which}; {present:member that holds data is/members that hold data are} here {in_view}",
            WARNING,
        ),
    )

    map: str
    """The name, or the beginning of names, that the protection was set for; `*`: all other maps."""
    refuses: bool
    minimum: int
    """As in `MapProtected`; so are the next three fields."""
    majority: bool
    reads: bool
    writes: bool
    present: int
    """How many members of the view hold data."""
    view_version: int
    reason: str
    """What is missing; empty: nothing any more."""
    rule: str = "EL-48"
    owner: MemberId | None = None
    """This member: it refuses requests for the partitions that it owns."""


class MapSettingsDiffer(Event, frozen=True):
    """This member was configured with other settings of maps than the cluster has. The cluster's settings apply."""

    notice = Notice(
        "has other settings of maps than the cluster, and uses those of the cluster: {differences}", WARNING
    )

    differences: tuple[str, ...]
    """One text for each difference."""
    rule: str = "PX-09"


class PartitionsDivided(Event, frozen=True):
    """The master has divided each partition into several, as asked, in one version of the table."""

    notice = Notice("divides the {before} partitions into {after} {in_table}")

    before: int
    """The partition count before."""
    after: int
    """The partition count from now on."""
    table_version: int
    rule: str = "PX-08"


class MigrationsPlanned(Event, frozen=True):
    """The master has planned the migrations that bring every replica to where it should be."""

    notice = Notice("plans {migrations:migration} of {partitions:partition}[; {lacking} lack replicas]", group=REPAIR)

    table_version: int
    partitions: int
    """How many partitions will change."""
    migrations: int
    """How many migrations that takes."""
    lacking: int
    """How many partitions lack replicas."""
    reason: str
    rule: str = "DL-58 DL-59"
    wanted_replicas: int | None = None
    """How many replicas each partition is to have; None: written by an earlier release."""


class _MigrationEvent(Event, frozen=True):
    partition: int
    kind: str
    source: MemberId | None
    source_current_index: int
    source_new_index: int
    destination: MemberId | None
    destination_current_index: int
    destination_new_index: int
    partition_version: int
    """The partition's version for which the migration was ordered."""
    table_version: int


class MigrationStarted(_MigrationEvent, frozen=True):
    """The master has ordered a migration."""

    notice = Notice("orders for partition {partition}: {kind}[ from {source}][ to {destination}]", DEBUG, MOVE)

    owner: MemberId
    """The partition's owner, which sends the data."""
    rule: str = "DL-58"


class MigrationCopied(Event, frozen=True):
    """On the owner: the destination holds everything, and from now on writes wait for its acknowledgement, too."""

    notice = Notice("has copied partition {partition} to {destination}: {entries:entry/entries}", DEBUG, MOVE)

    partition: int
    partition_version: int
    destination: MemberId
    entries: int
    """How many the destination got; 0 also if it had them."""
    took_ms: Millis
    rule: str = "DL-33"


class PartitionSealed(Event, frozen=True):
    """The owner serves no request for the partition until it learns whether the destination has become the owner."""

    notice = Notice("takes no writes for partition {partition} until it has moved", DEBUG, MOVE)

    partition: int
    partition_version: int
    destination: MemberId
    rule: str = "DL-16"


class MigrationCommitted(_MigrationEvent, frozen=True):
    """On the master: the destination has committed, so the table has changed."""

    notice = Notice("has committed for partition {partition}: {kind}[ from {source}][ to {destination}]", DEBUG, MOVE)

    took_ms: Millis
    replicas: tuple[MemberId | None, ...] = ()
    """The partition's row from now on, by replica index."""
    rule: str = "DL-17 DL-20"


class MigrationRolledBack(_MigrationEvent, frozen=True):
    """On the master: the migration was given up. The partition's row stays as it was, and its version grows by two."""

    notice = Notice("rolls back the {kind} of partition {partition}", DEBUG, TROUBLE)

    reason: str
    rule: str = "DL-22"


class MigrationFinalized(Event, frozen=True):
    """A participant has learned how a migration ended."""

    notice = Notice("ends a migration of partition {partition} as its {endpoint}, committed: {committed}", DEBUG, MOVE)

    partition: int
    partition_version: int
    endpoint: str
    """The role of this member in the migration: `source` or `destination`."""
    current_replica_index: int
    """This member's replica index before the migration; -1: none."""
    new_replica_index: int
    """Its replica index after the migration, if it was committed; -1: none."""
    committed: bool
    partition_version_now: int
    rule: str = "DL-24"


class RebalancingProgress(Event, frozen=True):
    """The master tells how far the migrations are: every few seconds while they go on, and when they are over."""

    notice = Notice(
        "has moved {arrived} of {planned:partition}: {copied_entries:entry/entries}, {copied_bytes:MiB}, in {took_ms:s}[; about {left_ms:s} left]",
        group=REPAIR,
    )

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


class FullyReplicated(Event, frozen=True):
    """Every partition has all the replicas that the number of members allows."""

    notice = Notice(
        "every partition has all its replicas again, after {took_ms:s} (table ver {table_version})", group=REPAIR
    )

    table_version: int
    took_ms: Millis
    """The time since the first partition lacked a replica."""
    rule: str = "DL-58"
