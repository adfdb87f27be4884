"""The event log's schema: facts that a member records, for people and for the audit.

A driver writes each as one line of JSON with `at`, `cluster`, `member`, `address`, the `event` name (the class's tag)
and the fields below. Fields are only ever added. A decision carries its inputs and the rule (a checklist row).
"""

from __future__ import annotations

import msgspec

from phalanx.common.ids import MemberId, Millis

EVENT_SCHEMA_VERSION = 1


class _Event(msgspec.Struct, frozen=True, tag_field="event", tag=True):
    pass


class JoinAttemptFailed(_Event, frozen=True):
    attempt: int
    seed: str
    reason: str
    rule: str = "EL-10"


class Joined(_Event, frozen=True):
    view_version: int
    master: MemberId
    members: tuple[MemberId, ...]
    rule: str = "EL-13"


class JoinGivenUp(_Event, frozen=True):
    reason: str
    rule: str = "EL-11"


class ViewInstalled(_Event, frozen=True):
    view_version: int
    maker: MemberId
    master: MemberId
    members: tuple[MemberId, ...]
    rule: str


class MajorityChanged(_Event, frozen=True):
    """Whether this member's side has the majority of the last stable view is not what it was."""

    view_version: int
    has_majority: bool
    told: str
    """The numbers, in words."""
    rule: str


class PromotionWaits(_Event, frozen=True):
    """The master gives what members held that are gone to others only when no lease on it can run any more."""

    gone: tuple[MemberId, ...]
    waits_ms: Millis
    """0: until it has heard that it is still the master itself."""
    rule: str


class ViewStable(_Event, frozen=True):
    """All voters of this view have it: from now on majority means majority of it."""

    view_version: int
    number: int
    """Greater than that of every stable view before it."""
    voters: tuple[MemberId, ...]
    """The identities under which they vote: of a process the first that it had."""
    besides: tuple[MemberId, ...] = ()
    """Members that hold no data: they vote on earlier views only."""
    rule: str = "EL-50 EL-63"


class ViewAccepted(_Event, frozen=True):
    """An operator said that this view is the stable one, whatever became of the members of others."""

    view_version: int
    members: tuple[MemberId, ...]
    before: str
    """What was missing."""
    rule: str


class ClusterStarted(_Event, frozen=True):
    """The cluster has the members that it was to wait for: this member begins to work."""

    view_version: int
    size: int
    waited_for: int
    rule: str = "DESIGN 3 minimum cluster size"


class MemberSuspected(_Event, frozen=True):
    suspect: MemberId
    reason: str
    rule: str


class SuspicionRemoved(_Event, frozen=True):
    suspect: MemberId
    rule: str


class LinksReported(_Event, frozen=True):
    """On the master: a slave's list of those that it cannot reach has changed. One after another they tell who could talk
    to whom, and when."""

    reporter: MemberId
    cannot_reach: tuple[MemberId, ...]
    """All of them; nobody: it reaches everybody."""
    reaches_again: tuple[MemberId, ...]
    rule: str


class ResolutionDecided(_Event, frozen=True):
    """The master has decided who stays, of members that cannot all reach each other."""

    links: tuple[tuple[MemberId, MemberId], ...]
    """The broken ones that were decided about."""
    reports: tuple[tuple[MemberId, ...], ...]
    """Each reporter, and behind it those that it cannot reach."""
    kept: tuple[MemberId, ...]
    removed: tuple[MemberId, ...]
    narrowed: tuple[tuple[str, int], ...]
    """How many sets of the greatest size there were, and how many were left after each further criterion."""
    is_proven: bool
    """Whether no larger set can exist; else the time for the search was over."""
    could_be_larger_by: float
    """By so much at most, in data members."""
    reason: str
    rule: str


class ResolutionTakenBack(_Event, frozen=True):
    """What members reported has changed before anybody was removed."""

    removed: tuple[MemberId, ...]
    """Who was to be."""
    reason: str
    rule: str


class EvacuationStarted(_Event, frozen=True):
    """Members are about to be removed that still reach the master: others take what only they hold."""

    removed: tuple[MemberId, ...]
    partitions: int
    """Of how many something might be lost."""
    without_taker: int
    """Of these, so many have an owner that reaches nobody who stays and can hold data."""
    until: Millis
    rule: str = "DESIGN 4 evacuate before you kick"


class EvacuationEnded(_Event, frozen=True):
    removed: tuple[MemberId, ...]
    left: tuple[int, ...]
    """Partitions of which something may be lost when these members go."""
    took_ms: Millis
    table_version: int
    rule: str = "DESIGN 4 evacuate before you kick"


class JoinHeldBack(_Event, frozen=True):
    """A joiner was removed before because it could not reach others, and has to show first that it can."""

    joiner: MemberId
    reach: tuple[MemberId, ...]
    reason: str
    rule: str


class JoinWaits(_Event, frozen=True):
    """This joiner has to reach some members before the master admits it."""

    held_back_by: MemberId
    reach: tuple[MemberId, ...]
    reason: str
    rule: str = "PD-24 PD-28"


class MemberAdmitted(_Event, frozen=True):
    joiner: MemberId
    view_version: int
    replaced: tuple[MemberId, ...]
    """Earlier incarnations on the joiner's address, removed by the same view."""
    rejoins: bool = False
    """Whether a member on its address was removed before."""
    rule: str = "CS-10"


class JoinRequestRefused(_Event, frozen=True):
    joiner: MemberId
    reason: str
    rule: str


class MemberRemoved(_Event, frozen=True):
    removed: MemberId
    view_version: int
    reason: str
    rule: str


class JoinAnswered(_Event, frozen=True):
    joiner: MemberId
    view_version: int
    late: tuple[MemberId, ...]
    """Members that had not acknowledged the view in time."""
    rule: str = "EL-17 EL-18"


class OutdatedViewHealed(_Event, frozen=True):
    member_behind: MemberId
    its_version: int
    view_version: int
    rule: str = "EL-32"


class ClaimStarted(_Event, frozen=True):
    claim_id: int
    view_version: int
    suspected: tuple[MemberId, ...]
    rule: str


class ClaimAnswered(_Event, frozen=True):
    claimer: MemberId
    accepted: bool
    not_suspected: tuple[MemberId, ...]
    """Older members that this member does not suspect: why it does not agree yet."""
    rule: str


class ClaimEnded(_Event, frozen=True):
    claim_id: int
    outcome: str
    left_out: tuple[MemberId, ...]
    took_ms: Millis
    rule: str


class ViewsDiverged(_Event, frozen=True):
    """An explicit suspicion was sent or obeyed."""

    peer: MemberId
    what: str
    rule: str


class StaleMessageIgnored(_Event, frozen=True):
    peer: MemberId
    what: str
    rule: str


class ComplaintSent(_Event, frozen=True):
    """A heartbeat came from somebody who is not in this member's list."""

    complainee: MemberId
    master: MemberId
    rule: str


class ComplaintJudged(_Event, frozen=True):
    complainer: MemberId
    complainee: MemberId
    suspicion_sent_to: tuple[MemberId, ...]
    rule: str


class MemberQuestioned(_Event, frozen=True):
    """Another member suspects one that this member does not watch, and it is asked whether it lives."""

    suspect: MemberId
    reported_by: MemberId
    rule: str


class OtherSideFound(_Event, frozen=True):
    """A cluster of the same name with no member in common."""

    other_master: MemberId
    other_size: int
    other_version: int
    other_has_data: bool
    view_version: int
    size: int
    has_data: bool
    decision: str
    rule: str


class TableSearchStarted(_Event, frozen=True):
    waiting_for: tuple[MemberId, ...]


class TableSearchEnded(_Event, frozen=True):
    found_at: MemberId
    table_version: int
    rolled_back: tuple[int, ...] = ()
    """Partitions whose migration was under way, and that nobody has committed."""
    adopted: tuple[int, ...] = ()
    """Partitions whose replicas follow a rule that no table knows of."""
    rule: str = "DL-12 DL-30"


class TableInstalled(_Event, frozen=True):
    table_version: int
    owned: int
    backups: int


class PartitionsAssigned(_Event, frozen=True):
    table_version: int
    partitions: int
    members: tuple[MemberId, ...]
    rows: tuple[tuple[int, ...], ...] = ()
    """Who holds each partition, owner first: indexes into `members`."""
    rule: str = "DL-02"


class PartitionsRepaired(_Event, frozen=True):
    """Members left: backups took over, and rows without a survivor got a new, empty owner."""

    table_version: int
    promoted: tuple[int, ...]
    lost: tuple[int, ...]
    gone: tuple[MemberId, ...]
    rule: str


class PartitionLost(_Event, frozen=True):
    """All replicas of a partition left the cluster that goes on: it begins empty."""

    partition: int
    replicas: tuple[MemberId, ...]
    """Who held it."""
    partition_version: int
    table_version: int
    rule: str = "DL-05"
    replicas_now: tuple[MemberId | None, ...] = ()
    """Who holds it from now on, owner first."""


class BackupsChanged(_Event, frozen=True):
    """The master was asked to keep another number of backups."""

    map: str
    """Empty: of all maps that have no number of their own."""
    synchronous: int
    asynchronous: int
    table_version: int
    rule: str = "DESIGN 6 online change of backups"


class MapProtected(_Event, frozen=True):
    """The master was asked to let a map be refused where the cluster is too small, or not to any more."""

    map: str
    """Empty: all maps for which nothing else was set."""
    minimum: int
    majority: bool
    reads: bool
    writes: bool
    table_version: int
    rule: str = "EL-48"


class MergePolicyChanged(_Event, frozen=True):
    """The master was asked to merge a map by another policy from now on."""

    map: str
    """Empty: all maps for which nothing else was set."""
    policy: str
    table_version: int
    rule: str = "DESIGN 5 merge policies"


class ProtectionChanged(_Event, frozen=True):
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


class MapSettingsDiffer(_Event, frozen=True):
    """This member was configured with settings of maps that are not the cluster's: the cluster's count."""

    differences: tuple[str, ...]
    rule: str = "DESIGN 5 protection"


class PartitionsDivided(_Event, frozen=True):
    """The master was asked for more partitions: each of `before` goes on as several, in one version of the table."""

    before: int
    after: int
    table_version: int
    rule: str = "DESIGN 6 online change of the partition count"


class MigrationsPlanned(_Event, frozen=True):
    """The master has worked out what to do until every replica is where it should be."""

    table_version: int
    partitions: int
    """That are to change."""
    migrations: int
    lacking: int
    """Partitions that miss replicas."""
    reason: str
    rule: str = "DL-58 DL-59"


class _MigrationEvent(_Event, frozen=True):
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


class MigrationCopied(_Event, frozen=True):
    """The owner: the destination holds everything; writes wait for it from now on."""

    partition: int
    partition_version: int
    destination: MemberId
    entries: int
    took_ms: Millis
    rule: str = "DL-33"


class PartitionSealed(_Event, frozen=True):
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


class MigrationFinalized(_Event, frozen=True):
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


class FullyReplicated(_Event, frozen=True):
    """Every partition has all the replicas that the number of members allows."""

    table_version: int
    took_ms: Millis
    """Since redundancy was lost."""


class LeaveStarted(_Event, frozen=True):
    leaver: MemberId
    replicas_to_hand_over: int
    rule: str = "DESIGN 6 graceful shutdown"


class LiteChangeStarted(_Event, frozen=True):
    """A member that held data is to hold none: others take its replicas over first."""

    member: MemberId
    replicas_to_hand_over: int
    rule: str = "DESIGN 4 lite members"


class LiteChanged(_Event, frozen=True):
    """A live member became one that holds no data (`lite`), or one that does."""

    member: MemberId
    lite: bool
    view_version: int
    rule: str = "DESIGN 4 lite members"


class Left(_Event, frozen=True):
    view_version: int
    rule: str = "DESIGN 6 graceful shutdown"


class Ejected(_Event, frozen=True):
    """This member was taken for dead and others went on without it; it comes back as a new member."""

    by: MemberId
    view_version: int
    rule: str


class WokeUp(_Event, frozen=True):
    """This member did not run for a while, and does not serve before it knows that it still is a member."""

    away_ms: Millis
    held: int
    """Requests that wait already, from when it was away before."""
    rule: str


class ServesAgain(_Event, frozen=True):
    """A member that was away serves again; or it is over, and refuses what has waited."""

    after_ms: Millis
    """Since it woke up."""
    held: int
    """Requests that have waited."""
    rule: str


class DataKept(_Event, frozen=True):
    """This incarnation has ended without handing over: the next one of its process will merge what it held."""

    partitions: int
    """Replicas that are not empty, and those of earlier incarnations that are not merged yet."""
    entries: int
    rule: str = "DESIGN 5 kept aside"


class MergeStarted(_Event, frozen=True):
    """What a former incarnation of this process held is being merged into the cluster."""

    former: MemberId
    partitions: int
    entries: int
    rule: str = "EL-60"


class MergeEnded(_Event, frozen=True):
    """The cluster has acknowledged all that a former incarnation of this process held: it is dropped."""

    former: MemberId
    entries: int
    sent: int
    """Entries and removals that their new owners have acknowledged."""
    taken: int
    """Those of them that have changed what the new owners had."""
    left_to_others: int
    """Replicas that other members have merged, or have themselves."""
    took_ms: Millis
    rule: str = "EL-60"


class MergeConflict(msgspec.Struct, frozen=True):
    """Two sides had different versions of one key."""

    key: str
    """In hexadecimal, cut if it is long."""
    kept_stamp: int
    """Of the version of the side that gave up its cluster."""
    here_stamp: int
    winner: str
    """`kept` or `here`."""


class MergeConflicts(_Event, frozen=True):
    """Keys of one map of which both sides had something, and not the same; as many of them as one event names."""

    former: MemberId
    map: str
    policy: str
    count: int
    kept_won: int
    """Of these the version of the side that gave up its cluster has remained."""
    conflicts: tuple[MergeConflict, ...]
    rule: str = "DESIGN 5 conflicts"


class MergedTooOld(_Event, frozen=True):
    """Kept entries that were not brought back: they may have been removed here so long ago that this is forgotten."""

    former: MemberId
    map: str
    count: int
    keys: tuple[str, ...]
    """Some of them, in hexadecimal."""
    purged_to: int
    """The newest removal that is forgotten here: they were written before."""
    rule: str = "DESIGN 5 tombstones"


Event = (
    JoinAttemptFailed | Joined | JoinGivenUp | ViewInstalled | MajorityChanged | ViewStable | ViewAccepted | PromotionWaits | ClusterStarted | MemberSuspected | SuspicionRemoved
    | MemberAdmitted | JoinRequestRefused | MemberRemoved | JoinAnswered | OutdatedViewHealed | ClaimStarted
    | ClaimAnswered | ClaimEnded | ViewsDiverged | StaleMessageIgnored | ComplaintSent | ComplaintJudged
    | MemberQuestioned | OtherSideFound | TableSearchStarted | TableSearchEnded | TableInstalled | PartitionsAssigned
    | PartitionsRepaired | PartitionLost | BackupsChanged | MapProtected | MergePolicyChanged | MapSettingsDiffer | ProtectionChanged
    | PartitionsDivided | MigrationsPlanned | MigrationStarted | MigrationCopied | PartitionSealed | MigrationCommitted
    | MigrationRolledBack | MigrationFinalized | FullyReplicated | LinksReported | ResolutionDecided
    | ResolutionTakenBack | EvacuationStarted | EvacuationEnded | JoinHeldBack | JoinWaits
    | LeaveStarted | LiteChangeStarted | LiteChanged | Left | Ejected | WokeUp | ServesAgain
    | DataKept | MergeStarted | MergeEnded | MergeConflicts | MergedTooOld
)  # fmt: skip
