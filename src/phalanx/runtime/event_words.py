"""Events as log lines for operators: what a member decided, in a sentence, and how loud it is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from phalanx.common.ids import MemberId, address_of
from phalanx.common.map_settings import Protection
from phalanx.common.words import counted
from phalanx.wire.events import (
    BackupsChanged,
    ClaimEnded,
    ClaimStarted,
    ContentReplaced,
    DataKept,
    EvacuationEnded,
    EvacuationStarted,
    Event,
    EventsLost,
    FullyReplicated,
    JoinGivenUp,
    JoinHeldBack,
    JoinWaits,
    KeptDropped,
    LeaveStarted,
    Left,
    LinksReported,
    LiteChanged,
    LiteChangeStarted,
    LossesAcknowledged,
    MajorityChanged,
    MapProtected,
    MapSettingsDiffer,
    MemberAdmitted,
    MemberRemoved,
    MergeConflicts,
    MergedTooOld,
    MergeEnded,
    MergePolicyChanged,
    MergeStarted,
    MigrationCommitted,
    MigrationCopied,
    MigrationFinalized,
    MigrationRolledBack,
    MigrationsPlanned,
    MigrationStarted,
    PartitionLost,
    PartitionSealed,
    PromotionWaits,
    ProtectionChanged,
    ResolutionDecided,
    ResolutionTakenBack,
    ServesAgain,
    StaleMessageIgnored,
    TableInstalled,
    TableSearchEnded,
    ViewAccepted,
    ViewsDiverged,
    ViewStable,
    WokeUp,
    WritesMayBeMissing,
)

Told = tuple[int, str]
"""The log level, and the sentence without its subject, the member."""

_QUIET = (
    MigrationStarted, MigrationCopied, PartitionSealed, MigrationCommitted, MigrationFinalized, TableInstalled,
    PartitionLost, Left, StaleMessageIgnored, ViewStable,
)  # fmt: skip
"""Many of these come with every change, or another line tells them all: for the event log, and for log level DEBUG."""


def in_words(event: Event) -> Told:
    """The log level, and the sentence without its subject, the member. An event without one is told field by field."""
    tell = _TELLERS.get(type(event))
    if tell is not None:
        return tell(event)
    return logging.DEBUG if isinstance(event, _QUIET) else logging.INFO, str(event)


def _join_given_up(event: JoinGivenUp) -> Told:
    return logging.INFO, f"gives up joining: {event.reason}"


def _events_lost(event: EventsLost) -> Told:
    lines = counted(event.missing, "event is", "events are")
    said = f"has a gap in its event log: {lines} missing, the first of {event.missing_ms / 1000:.1f} s ago"
    return logging.WARNING, f"{said} ({event.reason})"


def _member_admitted(event: MemberAdmitted) -> Told:
    instead = f" instead of {_names(event.replaced)}" if event.replaced else ""
    return logging.INFO, f"admits {address_of(event.joiner)}{instead} (member list ver {event.view_version})"


def _member_removed(event: MemberRemoved) -> Told:
    said = f"removes {address_of(event.removed)} (member list ver {event.view_version}): {event.reason}"
    return logging.INFO, said


def _claim_started(event: ClaimStarted) -> Told:
    return logging.WARNING, f"claims to be the master: it suspects {_names(event.suspected)}"


def _claim_ended(event: ClaimEnded) -> Told:
    without = f", without {_names(event.left_out)}" if event.left_out else ""
    return logging.INFO, f"has claimed to be the master for {event.took_ms} ms: {event.outcome}{without}"


def _views_diverged(event: ViewsDiverged) -> Told:
    return logging.INFO, f"and {address_of(event.peer)} have different member lists: {event.what}"


def _woke_up(event: WokeUp) -> Told:
    said = f"was away for {event.away_ms} ms, and serves nobody before it knows that it is still a member"
    return logging.WARNING, said


def _serves_again(event: ServesAgain) -> Told:
    said = f"knows after {event.after_ms} ms whether it is still a member"
    return logging.INFO, f"{said}; {event.refused} requests were refused, to be asked again"


def _view_accepted(event: ViewAccepted) -> Told:
    said = f"takes member list ver {event.view_version} for the stable one, as an operator said, although "
    return logging.WARNING, said + event.before


def _backups_changed(event: BackupsChanged) -> Told:
    which = f"map {event.map}" if event.map else "maps without numbers of their own"
    counts = f"{event.synchronous} synchronous and {event.asynchronous} asynchronous backups"
    return logging.INFO, f"gives {which} {counts} (partition table ver {event.table_version})"


def _map_protected(event: MapProtected) -> Told:
    wish = Protection(event.minimum, event.majority, event.reads, event.writes)
    said = f"lets {_which(event.map)} need {wish}" if wish.is_on else f"protects {_which(event.map)} no more"
    return logging.INFO, f"{said} (partition table ver {event.table_version})"


def _content_replaced(event: ContentReplaced) -> Told:
    said = f"has replaced the content of map {event.map} by that of job {event.job}"
    return logging.INFO, f"{said} (partition table ver {event.table_version})"


def _merge_policy_changed(event: MergePolicyChanged) -> Told:
    said = f"lets {_which(event.map)} be merged by {event.policy} (partition table ver {event.table_version})"
    return logging.INFO, said


def _protection_changed(event: ProtectionChanged) -> Told:
    if event.refuses:
        of_what = Protection(event.minimum, event.majority, event.reads, event.writes).of_what
        return logging.WARNING, f"refuses {of_what} of {_which(event.map)} from now on: {event.reason}"
    here = counted(event.present, "member that holds data is", "members that hold data are")
    return logging.WARNING, f"refuses {_which(event.map)} no more: {here} here"


def _map_settings_differ(event: MapSettingsDiffer) -> Told:
    said = "was configured otherwise than the cluster, which counts: "
    return logging.WARNING, said + "; ".join(event.differences)


def _migrations_planned(event: MigrationsPlanned) -> Told:
    lacking = f"; {event.lacking} lack replicas" if event.lacking else ""
    said = f"plans {counted(event.migrations, 'migration')} of {_partitions(event.partitions)}{lacking}: {event.reason}"
    return logging.INFO, said


def _migration_rolled_back(event: MigrationRolledBack) -> Told:
    return logging.WARNING, f"rolls back the {event.kind} of partition {event.partition}: {event.reason}"


def _join_held_back(event: JoinHeldBack) -> Told:
    return logging.WARNING, f"does not admit {address_of(event.joiner)} yet: {event.reason}"


def _join_waits(event: JoinWaits) -> Told:
    said = f"waits to be admitted by {address_of(event.held_back_by)}: {event.reason}"
    return logging.WARNING, said


def _fully_replicated(event: FullyReplicated) -> Told:
    took = f"after {event.took_ms / 1000:.1f} s"
    return logging.INFO, f"every partition has all its replicas again, {took} (table ver {event.table_version})"


def _data_kept(event: DataKept) -> Told:
    said = f"keeps {_entries(event.entries)} of {_partitions(event.partitions)}, to merge them where it rejoins"
    return logging.WARNING, said


def _merge_started(event: MergeStarted) -> Told:
    return logging.INFO, f"merges {_entries(event.entries)} of {_partitions(event.partitions)} that it has kept"


def _merge_ended(event: MergeEnded) -> Told:
    others = counted(event.left_to_others, "partition was", "partitions were")
    left = f"; {others} left to others" if event.left_to_others else ""
    said = f"has merged what it had kept: {event.sent} handed in, {event.taken} taken, {event.took_ms} ms{left}"
    return logging.INFO, said


def _kept_dropped(event: KeptDropped) -> Told:
    said = f"leaves with {_entries(event.entries)} of {_partitions(event.partitions)} that it kept, and that nobody has taken"
    return logging.ERROR, f"{said}: they are lost"


def _writes_may_be_missing(event: WritesMayBeMissing) -> Told:
    said = f"lets {_partitions(len(event.partitions))} go on from replicas that need not have all that was acknowledged"
    return logging.WARNING, f"{said}, for {_names(event.gone)} went (partition table ver {event.table_version})"


def _losses_acknowledged(event: LossesAcknowledged) -> Told:
    said = f"tells {', '.join(event.ids)} no more, losses of {_partitions(event.partitions)}: {event.operator} has taken note"
    return logging.INFO, f"{said} (partition table ver {event.table_version})"


def _merge_conflicts(event: MergeConflicts) -> Told:
    said = (
        f"has merged {event.count} keys of map {event.map} that {address_of(event.former)} had otherwise: "
        f"{event.policy} took {event.kept_won} of its"
    )
    # One for each partition and map; `MergeEnded` sums up.
    return logging.DEBUG, said


def _merged_too_old(event: MergedTooOld) -> Told:
    said = (
        f"does not bring back {event.count} keys of map {event.map} that {address_of(event.former)} had: they may "
        f"have been removed here long ago"
    )
    return logging.WARNING, said


def _leave_started(event: LeaveStarted) -> Told:
    said = f"lets {address_of(event.leaver)} leave, which has {event.replicas_to_hand_over} replicas to hand over"
    return logging.INFO, said


def _lite_change_started(event: LiteChangeStarted) -> Told:
    held = event.replicas_to_hand_over
    return logging.INFO, f"lets {address_of(event.subject)} hand over {held} replicas, to hold no data any more"


def _lite_changed(event: LiteChanged) -> Told:
    is_now = "holds no data any more" if event.lite else "may hold data from now on"
    return logging.INFO, f"says that {address_of(event.subject)} {is_now} (member list ver {event.view_version})"


def _links_reported(event: LinksReported) -> Told:
    reporter = address_of(event.reporter)
    if not event.cannot_reach:
        return logging.INFO, f"hears that {reporter} reaches everybody again"
    return logging.WARNING, f"hears that {reporter} cannot reach {_names(event.cannot_reach)}"


def _resolution_decided(event: ResolutionDecided) -> Told:
    removed = _names(event.removed)
    return logging.WARNING, f"is going to remove {removed}, so that all others reach each other: {event.reason}"


def _resolution_taken_back(event: ResolutionTakenBack) -> Told:
    return logging.INFO, f"does not remove {_names(event.removed)}: {event.reason}"


def _evacuation_started(event: EvacuationStarted) -> Told:
    nobody = f"; {event.without_taker} of them nobody can take" if event.without_taker else ""
    said = f"lets others take {_partitions(event.partitions)} that only {_names(event.removed)} have{nobody}"
    return logging.INFO, said


def _evacuation_ended(event: EvacuationEnded) -> Told:
    took = f"after {event.took_ms / 1000:.1f} s"
    if event.left:
        listed = ", ".join(map(str, event.left[:20])) + (", ..." if len(event.left) > 20 else "")
        said = f"{_names(event.removed)} still had {_partitions(len(event.left))} {took}: {listed}"
        return logging.WARNING, f"ends the move of what only others have; {said}"
    return logging.INFO, f"has let others take all that only {_names(event.removed)} had, {took}"


def _search(event: TableSearchEnded) -> Told:
    parts = [f"goes on as the master with partition table ver {event.table_version} of {address_of(event.found_at)}"]
    if event.rolled_back:
        under_way = counted(len(event.rolled_back), "migration under way is", "migrations under way are")
        parts.append(f"{under_way} rolled back")
    if event.adopted:
        are_taken = counted(len(event.adopted), "partition is taken as its", "partitions are taken as their")
        parts.append(f"{are_taken} replicas have {'it' if len(event.adopted) == 1 else 'them'}")
    # A table without owners is what every new cluster begins with.
    return logging.INFO if event.table_version else logging.DEBUG, "; ".join(parts)


def _partitions(count: int) -> str:
    return counted(count, "partition")


def _entries(count: int) -> str:
    return counted(count, "entry", "entries")


def _which(name: str) -> str:
    return f"map {name}" if name not in ("", "*") else "all other maps"


def _names(members: tuple[MemberId, ...]) -> str:
    return ", ".join(map(address_of, members))


def _majority(event: MajorityChanged) -> Told:
    if event.has_majority:
        return logging.INFO, f"has the majority again (member list ver {event.view_version})"
    return logging.WARNING, f"has not the majority (member list ver {event.view_version}): {event.told}"


def _promotion_waits(event: PromotionWaits) -> Told:
    waits = "until it has heard that it is still the master"
    if event.waits_ms:
        waits = f"for {event.waits_ms / 1000:.1f} s, until no lease of theirs runs any more"
    return logging.INFO, f"gives what {_names(event.gone)} held to nobody yet: it waits {waits}"


_TELLERS: dict[type, Callable[[Any], Told]] = {
    JoinGivenUp: _join_given_up,
    EventsLost: _events_lost,
    MemberAdmitted: _member_admitted,
    MemberRemoved: _member_removed,
    ClaimStarted: _claim_started,
    ClaimEnded: _claim_ended,
    ViewsDiverged: _views_diverged,
    WokeUp: _woke_up,
    ServesAgain: _serves_again,
    MajorityChanged: _majority,
    PromotionWaits: _promotion_waits,
    ViewAccepted: _view_accepted,
    TableSearchEnded: _search,
    BackupsChanged: _backups_changed,
    MapProtected: _map_protected,
    ContentReplaced: _content_replaced,
    MergePolicyChanged: _merge_policy_changed,
    ProtectionChanged: _protection_changed,
    MapSettingsDiffer: _map_settings_differ,
    MigrationsPlanned: _migrations_planned,
    MigrationRolledBack: _migration_rolled_back,
    JoinHeldBack: _join_held_back,
    JoinWaits: _join_waits,
    FullyReplicated: _fully_replicated,
    DataKept: _data_kept,
    MergeStarted: _merge_started,
    MergeEnded: _merge_ended,
    MergeConflicts: _merge_conflicts,
    KeptDropped: _kept_dropped,
    WritesMayBeMissing: _writes_may_be_missing,
    LossesAcknowledged: _losses_acknowledged,
    MergedTooOld: _merged_too_old,
    LeaveStarted: _leave_started,
    LiteChangeStarted: _lite_change_started,
    LiteChanged: _lite_changed,
    LinksReported: _links_reported,
    ResolutionDecided: _resolution_decided,
    ResolutionTakenBack: _resolution_taken_back,
    EvacuationStarted: _evacuation_started,
    EvacuationEnded: _evacuation_ended,
}
"""Kind of event to who tells it."""
