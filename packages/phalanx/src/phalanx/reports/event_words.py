"""Events in words: one sentence for each decision of a member, for its log and for `phalanx why`, and its log level.

In a sentence `{name}` is a field of the event. A part in square brackets is left out if a field in it is empty.
`{entries:entry/entries}` counts things (a collection: how many it has), `{took_ms:s}` are seconds, `{size:MiB}` mebibytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from phalanx.common.ids import MemberId, address_of, may_be_member
from phalanx.common.map_settings import Protection
from phalanx.common.words import counted
from phalanx.reports.event_levels import level_of
from phalanx.wire.events import Event

MOST_NUMBERS = 20
"""How many numbers a sentence lists at most."""


class _Either(NamedTuple):
    """Two sentences for one kind of event."""

    field: str
    true: str
    """The sentence if the field is true, or not empty."""
    false: str


_TABLE = "(partition table ver {table_version})"
_EVACUATION = "{removed} still had {left:partition} after {took_ms:s}: {left}"
_PRESENT = "{present:member that holds data is/members that hold data are} here {in_view}"
_PROMOTION = "does not give the data of {gone} to others yet: it waits"

SENTENCES: dict[str, str | _Either] = {
    "BackupsChanged": _Either(
        "map",
        f"gives map {{map}} {{synchronous}} synchronous and {{asynchronous}} asynchronous backups {_TABLE}",
        f"gives maps without numbers of their own {{synchronous}} synchronous and {{asynchronous}} asynchronous backups {_TABLE}",
    ),
    "ClaimAnswered": "answers the claim of {claimer}, agreed: {accepted}[; not suspected: {not_suspected}]",
    "ClaimEnded": "has claimed to be the master for {took_ms} ms: {outcome}[, without {left_out}]",
    "ClaimStarted": "claims to be the master: it suspects {suspected}",
    "ClusterStarted": "begins to work {in_view}: {size:member}",
    "ClusterMemoryShort": _Either(
        "is_short",
        "finds that the cluster has too little memory: without {lost} the others would need {needed:MiB}, and have {room:MiB}",
        "finds that the cluster has memory enough again: without {lost} the others would need {needed:MiB}, and have {room:MiB}",
    ),
    "OtherSideFound": "finds another side of the cluster, with {other_master} as its master and {other_size:member}, and has {size:member} itself: {decision}",
    "TableSearchStarted": "asks the others for their partition tables: {waiting_for}",
    "TableInstalled": "installs partition table ver {table_version}",
    "PartitionLost": "begins partition {partition} empty: none of {replicas} is left",
    "MigrationStarted": "orders for partition {partition}: {kind}[ from {source}][ to {destination}]",
    "MigrationCopied": "has copied partition {partition} to {destination}: {entries:entry/entries}",
    "PartitionSealed": "takes no writes for partition {partition} until it has moved",
    "MigrationCommitted": "has committed for partition {partition}: {kind}[ from {source}][ to {destination}]",
    "MigrationFinalized": "ends a migration of partition {partition} as its {endpoint}, committed: {committed}",
    "ComplaintJudged": "judges the complaint of {complainer} about {complainee}[; tells {suspicion_sent_to}]",
    "ComplaintSent": "complains to {master} of {complainee}",
    "ContentReplaced": f"has replaced the content of map {{map}} by that of job {{job}} {_TABLE}",
    "DataKept": "keeps {entries:entry/entries} of {partitions:partition}, to merge them where it rejoins",
    "Ejected": "learns from {by} that others went on without it {in_view}",
    "EvacuationEnded": _Either(
        "left",
        f"ends the move of what only others have; {_EVACUATION}",
        "has let others take all that only {removed} had, after {took_ms:s}",
    ),
    "EvaluationFailed": "refused a request {request}, whose function or condition failed with {error}; nothing was changed[; {untold} more failed since the last such line]",
    "EvacuationStarted": "lets others take {partitions:partition} that only {removed} have[; no member can take {without_taker} of them]",
    "EventsLost": "has a gap in its event log: {missing:event is/events are} missing, the first of {missing_ms:s} ago",
    "FullyReplicated": "every partition has all its replicas again, after {took_ms:s} (table ver {table_version})",
    "JoinAnswered": "answers {joiner} with member list {view_version}[; late: {late}]",
    "JoinAttemptFailed": "attempt {attempt} to join through {seed} failed",
    "SeedsChanged": _Either(
        "failures",
        "does not find all seeds: {failures}[; it has {addresses}]",
        "finds seeds: {addresses}",
    ),
    "JoinGivenUp": "gives up joining",
    "JoinHeldBack": "does not admit {joiner} yet[; it has to reach {reach}]",
    "JoinRequestRefused": "refuses {joiner}",
    "JoinWaits": "waits to be admitted by {held_back_by}[; it has to reach {reach}]",
    "Joined": "joined {master} {in_view}",
    "KeptDropped": "leaves with {entries:entry/entries} of {partitions:partition} that it kept, and that no owner has taken: they are lost",
    "LastMembersLeave": "lets the last members that hold data leave, {leavers}: the data ends with them, {replicas_held:replica}",
    "LeaveStarted": "lets {leaver} leave, which has {replicas_to_hand_over} replicas to hand over",
    "LeaveWaits": "lets {leavers} stay for now, because no member can take over the {replicas_to_hand_over} replicas that only they hold; {missing} went without having left, and can come back: start it again, or another member",
    "Left": "left {in_view}",
    "LinksReported": _Either(
        "cannot_reach",
        "hears that {reporter} cannot reach {cannot_reach}[; it reaches {reaches_again} again]",
        "hears that {reporter} reaches everybody again",
    ),
    "ClusterVersionChanged": _Either(
        "is_held",
        "holds the cluster version back at {version} {in_view}",
        "says that members use cluster version {version} {in_view}, after {before}",
    ),
    "ClusterVersionWaits": "does not raise the cluster version to {version} yet: {words}",
    "LiteChangeStarted": "lets {subject} hand over {replicas_to_hand_over} replicas, to hold no data any more",
    "LiteChanged": _Either(
        "lite",
        "says that {subject} holds no data any more {in_view}",
        "says that {subject} can hold data from now on {in_view}",
    ),
    "LossesAcknowledged": f"no longer reports {{ids}}, losses of {{partitions:partition}}: {{operator}} has acknowledged them {_TABLE}",
    "MajorityChanged": _Either(
        "has_majority", "has the majority again {in_view}", "does not have the majority {in_view}: {told}"
    ),
    "MapProtected": _Either("wish", f"lets {{which}} need {{wish}} {_TABLE}", f"no longer protects {{which}} {_TABLE}"),
    "MapSettingsDiffer": "has other settings of maps than the cluster, and uses those of the cluster: {differences}",
    "MemberAdmitted": "admits {joiner}[ instead of {replaced}] {in_view}",
    "MemberQuestioned": "asks {suspect} whether it lives, because {reported_by} suspects it",
    "MemberRemoved": "removes {removed} {in_view}",
    "MemberSuspected": "suspects {suspect}",
    "MemoryFull": _Either(
        "is_full",
        "has reached its memory limit: it uses {used:MiB} of {limit:MiB}, and refuses writes that need more",
        "accepts all writes again: it uses {used:MiB} of {limit:MiB} of memory",
    ),
    "MemoryNearlyFull": _Either(
        "is_near",
        "has little memory left: it uses {used:MiB} of {limit:MiB}",
        "has memory again: it uses {used:MiB} of {limit:MiB}",
    ),
    "MergeConflicts": "found {count} keys of map {map} with other values of {former}: {policy} took {kept_won} of these values",
    "MergeEnded": "has merged what {former} held: {sent} sent, {taken} taken, {took_ms} ms"
    "[; {left_to_others:partition was/partitions were} left to others]",
    "MergePolicyChanged": f"lets {{which}} be merged by {{policy}} {_TABLE}",
    "MergeStarted": "begins to merge what {former} held: {entries:entry/entries} of {partitions:partition}",
    "MergedTooOld": "does not bring back {count} keys of map {map} that {former} had: they were perhaps removed here long ago",
    "MigrationRolledBack": "rolls back the {kind} of partition {partition}",
    "MigrationsPlanned": "plans {migrations:migration} of {partitions:partition}[; {lacking} lack replicas]",
    "OutdatedViewHealed": "sends member list {view_version} to {member_behind}, which had {its_version}",
    "PartitionsAssigned": f"assigns the {{partitions}} partitions {_TABLE}",
    "PartitionsDivided": f"divides the {{before}} partitions into {{after}} {_TABLE}",
    "PartitionsRepaired": f"takes {{gone}} out of the table[; it had no other replica of {{lost}}] {_TABLE}",
    "PromotionWaits": _Either(
        "waits_ms",
        f"{_PROMOTION} for {{waits_ms:s}}, until no lease of theirs runs any more",
        f"{_PROMOTION} until it has heard that it is still the master",
    ),
    "ProtectionChanged": _Either(
        "refuses",
        f"refuses {{of_what}} of {{which}} from now on; {_PRESENT}",
        f"no longer refuses {{which}}; {_PRESENT}",
    ),
    "RebalancingProgress": "has moved {arrived} of {planned:partition}: {copied_entries:entry/entries}, {copied_bytes:MiB}, in "
    "{took_ms:s}[; about {left_ms:s} left]",
    "ResolutionDecided": "is going to remove {removed}, so that all others reach each other",
    "ResolutionTakenBack": "does not remove {removed}",
    "ServesAgain": "knows after {after_ms} ms whether it is still a member; {refused} requests were refused, and their callers ask again",
    "StaleMessageIgnored": "ignores from {peer}: {what}",
    "SuspicionRemoved": "no longer suspects {suspect}",
    "TableSearchEnded": "continues as the master with partition table ver {table_version} of {found_at}"
    "[; {rolled_back:migration under way is/migrations under way are} rolled back]"
    "[; {adopted:partition is taken as its replicas have it/partitions are taken as their replicas have them}]",
    "UpdateWasSlow": "was held up for {took_ms} ms by one call of function {function} (update_warning_ms: {warning_ms})[; {untold} more were slow since the last such line]",
    "ViewAccepted": "counts majorities of member list {view_version} from now on, because an operator said so, although {before}",
    "ViewStable": "knows that all members have member list {view_version}: majorities are of {voters}[; without data: {besides}]",
    "ViewsDiverged": "and {peer} have different member lists: {what}",
    "WokeUp": "did not run for {away_ms} ms, and serves no caller until it knows that it is still a member",
    "WritesMayBeMissing": "continues {partitions:partition} with replicas that perhaps lack acknowledged writes, "
    f"because {{gone}} went {_TABLE}",
}
"""Kind of event to its sentence, without subject (the member) and reason. Other kinds are shown field by field."""


def in_words(event: Event) -> tuple[int, str]:
    """Return the log level and the sentence, without its subject (the member). Without a sentence: all fields."""
    kind, fields = type(event).__name__, msgspec.structs.asdict(event)
    said = sentence_of(kind, fields)
    if said is None:
        return level_of(event), str(event)
    reason = fields.get("reason")
    return level_of(event), f"{said}: {reason}" if reason else said


def sentence_of(
    kind: str,
    fields: Mapping[str, Any],
    name: Callable[[MemberId], str] = address_of,
    in_view: str = "(member list {})",
) -> str | None:
    """Return the decision in words, without the reason; None: the kind has no sentence, or a field is missing.

    `name`: returns the text for a member; `in_view`: the text for the version of a member list.
    """
    form = SENTENCES.get(kind)
    if form is None:
        return None
    try:
        known = {**fields, **_worked_out(fields), "in_view": in_view.format(fields.get("view_version"))}
        if isinstance(form, _Either):
            form = form.true if known[form.field] else form.false
        form = _OPTIONAL.sub(lambda part: part[1] if all(map(known.get, _FIELD.findall(part[1]))) else "", form)
        return form.format_map({field: _Shown(value, name) for field, value in known.items()})
    except KeyError:  # another version's event
        return None


_OPTIONAL = re.compile(r"\[(.*?)\]")
_FIELD = re.compile(r"{(\w+)")


class _Shown:
    """A field's value, with the formats that sentences use."""

    def __init__(self, value: Any, name: Callable[[MemberId], str]) -> None:
        self._value, self._name = value, name

    def __format__(self, form: str) -> str:
        value = self._value
        if form == "s":
            return f"{value / 1000:.1f} s"
        if form == "MiB":
            return f"{value / 2**20:,.1f} MiB"
        if form:
            return counted(len(value) if is_many(value) else value, *form.split("/"))
        return show_value(value, self._name)


def is_many(value: object) -> bool:
    """Return whether a field has several values: a tuple in an event, a list in an event that was read from JSON."""
    return isinstance(value, (list, tuple))


def show_value(value: Any, name: Callable[[MemberId], str]) -> str:
    """Return a field's value in words."""
    if is_many(value):
        is_long = len(value) > MOST_NUMBERS and isinstance(value[0], int)
        listed = [show_value(each, name) for each in (value[:MOST_NUMBERS] if is_long else value)]
        return ", ".join([*listed, "..."] if is_long else listed) or "nobody"
    return name(MemberId(value)) if isinstance(value, str) and may_be_member(value) else str(value)


def _worked_out(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return further words for sentences about maps, made from the fields of the event."""
    found = {}
    if "map" in fields:
        found["which"] = f"map {fields['map']}" if fields["map"] not in ("", "*") else "all other maps"
    if "majority" in fields:
        protection = Protection(*(fields[name] for name in ("minimum", "majority", "reads", "writes")))
        found["of_what"], found["wish"] = protection.of_what, str(protection) if protection.is_on else ""
    return found
