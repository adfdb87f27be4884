"""Events as log lines for operators: what a member decided, in a sentence, and how loud it is."""

from __future__ import annotations

import logging

from phalanx.common.ids import MemberId, address_of
from phalanx.common.map_settings import Protection
from phalanx.wire.events import (
    BackupsChanged,
    ClaimEnded,
    ClaimStarted,
    ContentReplaced,
    DataKept,
    EvacuationEnded,
    EvacuationStarted,
    Event,
    FullyReplicated,
    JoinHeldBack,
    JoinWaits,
    LeaveStarted,
    Left,
    LinksReported,
    LiteChanged,
    LiteChangeStarted,
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
)

_QUIET = (
    MigrationStarted, MigrationCopied, PartitionSealed, MigrationCommitted, MigrationFinalized, TableInstalled,
    PartitionLost, Left, StaleMessageIgnored, ViewStable,
)  # fmt: skip
"""Many of these come with every change, or another line tells them all: for the event log, and for log level DEBUG."""


def in_words(event: Event) -> tuple[int, str]:
    """The log level, and the sentence without its subject, the member. An event without one is told field by field."""
    match event:
        case MemberAdmitted():
            instead = f" instead of {_names(event.replaced)}" if event.replaced else ""
            return logging.INFO, f"admits {address_of(event.joiner)}{instead} (member list ver {event.view_version})"
        case MemberRemoved():
            said = f"removes {address_of(event.removed)} (member list ver {event.view_version}): {event.reason}"
            return logging.INFO, said
        case ClaimStarted():
            return logging.WARNING, f"claims to be the master: it suspects {_names(event.suspected)}"
        case ClaimEnded():
            without = f", without {_names(event.left_out)}" if event.left_out else ""
            return logging.INFO, f"has claimed to be the master for {event.took_ms} ms: {event.outcome}{without}"
        case ViewsDiverged():
            return logging.INFO, f"and {address_of(event.peer)} have different member lists: {event.what}"
        case WokeUp():
            said = f"was away for {event.away_ms} ms, and serves nobody before it knows that it is still a member"
            return logging.WARNING, said
        case ServesAgain():
            return (
                logging.INFO,
                f"knows after {event.after_ms} ms whether it is still a member; {event.held} requests have waited",
            )
        case MajorityChanged():
            return _majority(event)
        case PromotionWaits():
            return logging.INFO, _waiting(event)
        case ViewAccepted():
            said = f"takes member list ver {event.view_version} for the stable one, as an operator said, although "
            return logging.WARNING, said + event.before
        case TableSearchEnded():
            return _search(event)
        case BackupsChanged():
            which = f"map {event.map}" if event.map else "maps without numbers of their own"
            counts = f"{event.synchronous} synchronous and {event.asynchronous} asynchronous backups"
            return logging.INFO, f"gives {which} {counts} (partition table ver {event.table_version})"
        case MapProtected():
            wish = Protection(event.minimum, event.majority, event.reads, event.writes)
            said = f"lets {_which(event.map)} need {wish}" if wish.is_on else f"protects {_which(event.map)} no more"
            return logging.INFO, f"{said} (partition table ver {event.table_version})"
        case ContentReplaced():
            said = f"has replaced the content of map {event.map} by that of job {event.job}"
            return logging.INFO, f"{said} (partition table ver {event.table_version})"
        case MergePolicyChanged():
            said = f"lets {_which(event.map)} be merged by {event.policy} (partition table ver {event.table_version})"
            return logging.INFO, said
        case ProtectionChanged(refuses=True):
            of_what = Protection(event.minimum, event.majority, event.reads, event.writes).of_what
            return logging.WARNING, f"refuses {of_what} of {_which(event.map)} from now on: {event.reason}"
        case ProtectionChanged():
            return (
                logging.WARNING,
                f"refuses {_which(event.map)} no more: {event.present} members that hold data are here",
            )
        case MapSettingsDiffer():
            said = "was configured otherwise than the cluster, which counts: "
            return logging.WARNING, said + "; ".join(event.differences)
        case MigrationsPlanned():
            lacking = f"; {event.lacking} lack replicas" if event.lacking else ""
            said = f"plans {event.migrations} migrations of {event.partitions} partitions{lacking}: {event.reason}"
            return logging.INFO, said
        case MigrationRolledBack():
            return logging.WARNING, f"rolls back the {event.kind} of partition {event.partition}: {event.reason}"
        case LinksReported() | ResolutionDecided() | ResolutionTakenBack() | EvacuationStarted() | EvacuationEnded():
            return _partial_cut(event)
        case JoinHeldBack():
            return logging.WARNING, f"does not admit {address_of(event.joiner)} yet: {event.reason}"
        case JoinWaits():
            said = f"waits to be admitted by {address_of(event.held_back_by)}: {event.reason}"
            return logging.WARNING, said
        case FullyReplicated():
            took = f"after {event.took_ms / 1000:.1f} s"
            return logging.INFO, f"every partition has all its replicas again, {took} (table ver {event.table_version})"
        case DataKept():
            said = f"keeps {event.entries} entries of {event.partitions} partitions, to merge them where it rejoins"
            return logging.WARNING, said
        case MergeStarted():
            return logging.INFO, f"merges {event.entries} entries of {event.partitions} partitions that it has kept"
        case MergeEnded():
            left = f"; {event.left_to_others} partitions were left to others" if event.left_to_others else ""
            said = f"has merged what it had kept: {event.sent} handed in, {event.taken} taken, {event.took_ms} ms{left}"
            return logging.INFO, said
        case MergeConflicts():
            said = (
                f"has merged {event.count} keys of map {event.map} that {address_of(event.former)} had otherwise: "
                f"{event.policy} took {event.kept_won} of its"
            )
            # One for each partition and map; `MergeEnded` sums up.
            return logging.DEBUG, said
        case MergedTooOld():
            said = (
                f"does not bring back {event.count} keys of map {event.map} that {address_of(event.former)} had: they may "
                f"have been removed here long ago"
            )
            return logging.WARNING, said
        case LeaveStarted():
            said = (
                f"lets {address_of(event.leaver)} leave, which has {event.replicas_to_hand_over} replicas to hand over"
            )
            return logging.INFO, said
        case LiteChangeStarted():
            held = event.replicas_to_hand_over
            return logging.INFO, f"lets {address_of(event.member)} hand over {held} replicas, to hold no data any more"
        case LiteChanged():
            is_now = "holds no data any more" if event.lite else "may hold data from now on"
            return logging.INFO, f"says that {address_of(event.member)} {is_now} (member list ver {event.view_version})"
        case _:
            return logging.DEBUG if isinstance(event, _QUIET) else logging.INFO, str(event)


def _partial_cut(
    event: LinksReported | ResolutionDecided | ResolutionTakenBack | EvacuationStarted | EvacuationEnded,
) -> tuple[int, str]:
    match event:
        case LinksReported():
            reporter = address_of(event.reporter)
            if not event.cannot_reach:
                return logging.INFO, f"hears that {reporter} reaches everybody again"
            return logging.WARNING, f"hears that {reporter} cannot reach {_names(event.cannot_reach)}"
        case ResolutionDecided():
            removed = _names(event.removed)
            return logging.WARNING, f"is going to remove {removed}, so that all others reach each other: {event.reason}"
        case ResolutionTakenBack():
            return logging.INFO, f"does not remove {_names(event.removed)}: {event.reason}"
        case EvacuationStarted():
            nobody = f"; {event.without_taker} of them nobody can take" if event.without_taker else ""
            said = f"lets others take {event.partitions} partitions that only {_names(event.removed)} have{nobody}"
            return logging.INFO, said
        case EvacuationEnded():
            took = f"after {event.took_ms / 1000:.1f} s"
            if event.left:
                listed = ", ".join(map(str, event.left[:20])) + (", ..." if len(event.left) > 20 else "")
                said = f"{_names(event.removed)} still had {len(event.left)} partitions {took}: {listed}"
                return logging.WARNING, f"ends the move of what only others have; {said}"
            return logging.INFO, f"has let others take all that only {_names(event.removed)} had, {took}"


def _search(event: TableSearchEnded) -> tuple[int, str]:
    parts = [f"goes on as the master with partition table ver {event.table_version} of {address_of(event.found_at)}"]
    if event.rolled_back:
        parts.append(f"{len(event.rolled_back)} migrations under way are rolled back")
    if event.adopted:
        parts.append(f"{len(event.adopted)} partitions are taken as their replicas have them")
    # A table without owners is what every new cluster begins with.
    return logging.INFO if event.table_version else logging.DEBUG, "; ".join(parts)


def _which(name: str) -> str:
    return f"map {name}" if name not in ("", "*") else "all other maps"


def _names(members: tuple[MemberId, ...]) -> str:
    return ", ".join(map(address_of, members))


def _majority(event: MajorityChanged) -> tuple[int, str]:
    if event.has_majority:
        return logging.INFO, f"has the majority again (member list ver {event.view_version})"
    return logging.WARNING, f"has not the majority (member list ver {event.view_version}): {event.told}"


def _waiting(event: PromotionWaits) -> str:
    waits = (
        f"for {event.waits_ms / 1000:.1f} s, until no lease of theirs runs any more"
        if event.waits_ms
        else ("until it has heard that it is still the master")
    )
    return f"gives what {_names(event.gone)} held to nobody yet: it waits {waits}"
