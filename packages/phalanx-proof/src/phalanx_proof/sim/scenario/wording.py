"""How a scenario says what happened: decisions and effects in words of its own, with the rules that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from phalanx.common.words import counted
from phalanx_proof.sim.scenario.facts import ScenarioFact, rows_in

OF_DATA = frozenset({
    "DataKept", "KeptDropped", "LossesAcknowledged", "MergeConflicts", "MergedTooOld", "MergeEnded", "MergeStarted", "MigrationCommitted",
    "MigrationCopied", "MigrationRolledBack", "MigrationStarted", "PartitionLost", "PartitionSealed", "PartitionsDivided",
    "PartitionsRepaired", "ProtectionChanged", "WritesMayBeMissing",
})  # fmt: skip
"""Kinds of facts that `events data` shows, and `events` leaves out."""
NOT_MEMBERSHIP = OF_DATA | {
    "FullyReplicated", "MajorityChanged", "MigrationFinalized", "MigrationsPlanned", "PartitionsAssigned", "PromotionWaits",
    "RebalancingProgress", "TableInstalled", "TableSearchEnded", "TableSearchStarted", "ViewStable",
}  # fmt: skip
"""Kinds of facts that `events` leaves out."""
SAID_BY_OTHERS = frozenset({"Joined"})
"""Kinds that follow from another fact, which is shown."""
MADE_TO_READ = frozenset({"reason", "what", "took_ms", "rule", "claim_id"})
"""Fields that are not shown: wording, time or numbering."""


def _admits(fields: dict[str, str]) -> str:
    replaced = "" if fields["replaced"] == "[]" else f" in place of {fields['replaced']}"
    return f"admits {fields['joiner']}{replaced}" + (", which was here before" if fields["rejoins"] == "yes" else "")


def _answers(fields: dict[str, str]) -> str:
    late = "" if fields["late"] == "[]" else f", not waiting for {fields['late']} any longer"
    return f"answers {fields['joiner']}'s request to join{late}"


def _answers_claim(fields: dict[str, str]) -> str:
    if fields["accepted"] == "yes":
        return f"agrees with {fields['claimer']}'s claim"
    return f"does not agree with {fields['claimer']}'s claim: it does not suspect {fields['not_suspected']}"


def _judges(fields: dict[str, str]) -> str:
    receivers = fields["suspicion_sent_to"]
    verdict = "both are members" if receivers == "[]" else f"explicit suspicion for {receivers}"
    return f"judges {fields['complainer']}'s complaint about {fields['complainee']}: {verdict}"


def _ejected(fields: dict[str, str]) -> str:
    if "EL-60" in fields["rule"]:
        return f"is told by {fields['by']} that their side joins the other one"
    return f"learns that {fields['by']} went on without it"


def _ends_claim(fields: dict[str, str]) -> str:
    left_out = "nobody" if fields["left_out"] == "[]" else fields["left_out"]
    return f"ends its claim: {fields['outcome']}, {left_out} left out"


def _reports(fields: dict[str, str]) -> str:
    again = "" if fields["reaches_again"] == "[]" else f", and reaches {fields['reaches_again']} again"
    cannot = "everybody" if fields["cannot_reach"] == "[]" else f"all but {fields['cannot_reach']}"
    return f"hears that {fields['reporter']} reaches {cannot}{again}"


def _resolves(fields: dict[str, str]) -> str:
    proven = "" if fields["is_proven"] == "yes" else f", not proven: perhaps {fields['could_be_larger_by']} more"
    return f"decides to keep {fields['kept']} and to remove {fields['removed']}{proven}"


def _evacuates(fields: dict[str, str]) -> str:
    return f"lets others take the {counted(int(fields['partitions']), 'partition')} that only {fields['removed']} have"


def _has_evacuated(fields: dict[str, str]) -> str:
    left = "nothing" if fields["left"] == "[]" else fields["left"]
    return f"ends the evacuation of {fields['removed']}: {left} left"


def _process(fields: dict[str, str]) -> str:
    return {"started": "starts", "crashed": "crashes"}.get(fields["what"], f"ends: {fields['what']}")


def _conflicts(fields: dict[str, str]) -> str:
    keys = counted(int(fields["count"]), "key")
    return f"finds {keys} in conflict with what {fields['former']} kept: {fields['kept_won']} are replaced by {fields['policy']}"


def _copied(fields: dict[str, str]) -> str:
    return f"has copied {_entries(fields)} of partition {fields['partition']} to {fields['destination']}"


def _entries(fields: dict[str, str]) -> str:
    return counted(int(fields["entries"]), "entry", "entries")


def _kept(fields: dict[str, str]) -> str:
    return (
        f"keeps {_entries(fields)} in {counted(int(fields['partitions']), 'partition')} of the cluster that it leaves"
    )


def _lost_writes(fields: dict[str, str]) -> str:
    return f"can lack writes of {fields['gone']} in partitions {fields['partitions']}"


def _merged(fields: dict[str, str]) -> str:
    merged = (
        f"has merged what {fields['former']} kept: sent {fields['sent']}, of which {fields['taken']} changed something"
    )
    left = int(fields["left_to_others"])
    return merged + (f", left {counted(left, 'replica')} to others" if left else "")


def _orders(fields: dict[str, str]) -> str:
    if fields["kind"] == "copy":
        return f"orders {fields['owner']} to copy partition {fields['partition']} to {fields['destination']}"
    source = "" if fields["source"] == "None" else f" from {fields['source']}"
    to = "" if fields["destination"] == "None" else f" to {fields['destination']}"
    return f"orders {fields['owner']} to make a {fields['kind']} of partition {fields['partition']}{source}{to}"


def _protection(fields: dict[str, str]) -> str:
    verb = "refuses" if fields["refuses"] == "yes" else "takes again"
    return f"{verb} requests for {fields['map']}, with {fields['present']} members that hold data"


def _repairs(fields: dict[str, str]) -> str:
    promoted = "" if fields["promoted"] == "[]" else f", backups become owners of {fields['promoted']}"
    lost = "" if fields["lost"] == "[]" else f", {fields['lost']} are lost"
    return f"repairs the table without {fields['gone']}{promoted}{lost}"


WORDS: dict[str, str | Callable[[dict[str, str]], str]] = {
    "ClaimAnswered": _answers_claim,
    "ClaimAsked": "asks {target} to agree with its claim",
    "ClaimEnded": _ends_claim,
    "ClaimStarted": "claims the mastership, suspecting {suspected}",
    "ClusterStarted": "finds the cluster of {size} complete",
    "ComplaintJudged": _judges,
    "ComplaintSent": "complains to {master} about {complainee}",
    "Ejected": _ejected,
    "DataKept": _kept,
    "EvacuationEnded": _has_evacuated,
    "EvacuationStarted": _evacuates,
    "JoinAnswered": _answers,
    "SeedsChanged": "finds seeds: {addresses}",
    "JoinAttemptFailed": "fails to join through {seed} (attempt {attempt})",
    "JoinGivenUp": "gives up joining",
    "JoinHeldBack": "holds {joiner} back until it reaches {reach}",
    "JoinRequestRefused": "refuses {joiner}",
    "JoinWaits": "waits until it reaches {reach}, as {held_back_by} wants",
    "KeptDropped": lambda fields: f"drops {_entries(fields)} that it kept of {fields['former']}",
    "LiteChangeStarted": "lets {subject} hand over what it holds",
    "LiteChanged": "makes {subject} a lite member: {lite}",
    "LastMembersLeave": "lets the last members leave, {leavers}, with {replicas_held} replicas",
    "LeaveStarted": "lets {leaver} prepare to leave",
    "LeaveWaits": "lets {leavers} stay with {replicas_to_hand_over} replicas: {missing} can come back",
    "Left": "leaves",
    "LinksReported": _reports,
    "MemberAdmitted": _admits,
    "MemberQuestioned": "asks {suspect} whether it lives, for {reported_by}",
    "MemberRemoved": "removes {removed}",
    "MemberSuspected": "suspects {suspect}",
    "MergeConflicts": _conflicts,
    "MergeEnded": _merged,
    "MergeStarted": lambda fields: f"begins to merge {_entries(fields)} that {fields['former']} kept",
    "MergedTooOld": "does not take {count} of what {former} kept: perhaps it was removed here",
    "MigrationCommitted": "puts {replicas} into the table for partition {partition}",
    "MigrationCopied": _copied,
    "MigrationRolledBack": "gives up a {kind} of partition {partition} to {destination}: {reason}",
    "MigrationStarted": _orders,
    "OtherSideFound": "finds {other_master}'s side of {other_size}, its own has {size}: {decision}",
    "OutdatedViewHealed": "sends v{view_version} to {member_behind}, which has v{its_version}",
    "PartitionLost": "has lost partition {partition}, which {replicas} held",
    "PartitionSealed": "seals partition {partition} until it knows whether {destination} owns it",
    "PartitionsDivided": "divides {before} partitions into {after}",
    "PartitionsRepaired": _repairs,
    "Process": _process,
    "ProtectionChanged": _protection,
    "ResolutionDecided": _resolves,
    "ResolutionTakenBack": "takes back its decision to remove {removed}",
    "StaleMessageIgnored": "ignores a stale message of {peer}",
    "SuspicionRemoved": "suspects {suspect} no more",
    "ViewInstalled": "installs v{view_version} by {maker}: {members}",
    "ViewsDiverged": "sends explicit suspicion to {peer}",
    "WritesMayBeMissing": _lost_writes,
}


def is_shown(fact: ScenarioFact) -> bool:
    """Tell whether a fact is shown when no kinds are asked for."""
    if fact.kind == "ClusterStarted" and fact.fields["waited_for"] == "1":
        return False
    return fact.kind not in NOT_MEMBERSHIP and fact.kind not in SAID_BY_OTHERS


def say(fact: ScenarioFact) -> str:
    """Return a fact in words, without who it is about."""
    words = WORDS.get(fact.kind)
    if words is None:
        fields = ", ".join(f"{name}={value}" for name, value in fact.fields.items() if name not in MADE_TO_READ)
        text = f"{fact.kind}({fields})"
    elif isinstance(words, str):
        text = words.format_map(fact.fields)
    else:
        text = words(fact.fields)
    return text + rows_in(fact.fields.get("rule", ""))


def tell(facts: Iterable[ScenarioFact]) -> list[str]:
    """Return lines in the order in which things first happened; what several members did alike is said once."""
    who_did: dict[str, dict[str, int]] = {}
    for fact in facts:
        times = who_did.setdefault(say(fact), {})
        times[fact.who] = times.get(fact.who, 0) + 1
    return [f"{_who(times)}: {text}" for text, times in who_did.items()]


def _who(times: dict[str, int]) -> str:
    return " ".join(times) + (" (repeatedly)" if max(times.values()) > 1 else "")


def names_or_nobody(names: Sequence[str]) -> str:
    return " ".join(names) if names else "nobody"


def duration(ms: int) -> str:
    """Return a time as scenarios say it, to a tenth of a second."""
    return f"{ms / 1_000:.1f} s"
