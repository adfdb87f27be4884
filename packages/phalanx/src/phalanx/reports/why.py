"""What members remember of their decisions, put together, and a story of them as a plain object."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from phalanx.common.errors import PhalanxError
from phalanx.common.ids import MemberId, address_of
from phalanx.common.table import PartitionTable
from phalanx.reports.losses import ago
from phalanx.reports.partition_story import Held, PartitionStory
from phalanx.reports.story import Decision, EventStory, StorySource, find_incarnations
from phalanx.rules import words_of
from phalanx.wire.messages import HistoryReply, LossesReply

PARTITION: Final = re.compile(r"\d{1,6}")
"""More digits are the beginning of an incarnation."""


class UnknownSubject(PhalanxError):
    """Nobody knows a member or partition of that name."""


def put_together(replies: dict[MemberId, tuple[HistoryReply, int] | None]) -> StorySource:
    """Return the decisions of all members, oldest first. `replies`: with the time at which each came; None: none came."""
    source = StorySource(decisions=[])
    for member, reply in replies.items():
        if reply is None:
            source.notes.append(f"{address_of(member)} does not answer: its decisions are missing here")
            continue
        _add_reply(source, member, *reply)
    source.decisions.sort(key=lambda decision: decision.at_ms)
    return source


def _add_reply(source: StorySource, member: MemberId, history: HistoryReply, at_ms: int) -> None:
    for age, line in zip(history.ages, history.events, strict=True):
        fields = msgspec.json.decode(line)
        source.decisions.append(Decision(at_ms=at_ms - age, by=member, event=fields.pop("event"), fields=fields))
    if history.view is not None:
        source.views[member] = (history.view.version, history.view.members)
    for suspect in history.suspected:
        source.suspected_by.setdefault(suspect, []).append(member)
    if history.forgotten:
        source.notes.append(f"{address_of(member)} has forgotten {history.forgotten} older decisions")


def named_by(reply: LossesReply | None) -> list[MemberId]:
    """Return the members that went with losses, and those that are away."""
    if reply is None:
        return []
    losses = [each.member for loss in reply.losses.losses for each in loss.gone]
    return [*losses, *(each.member for each in reply.losses.away)]


def times_of(source: StorySource, now: int) -> dict[int, str]:
    """Return how long ago each decision was made, in words, by its identity."""
    return {id(each): ago(now - each.at_ms) for each in source.decisions}


def story_of_member(source: StorySource, subject: str, reply: LossesReply | None) -> EventStory:
    """Return the story of a member. Raises `UnknownSubject` if nobody knows it, `UsageError` if several are meant."""
    known = list(dict.fromkeys([*source.known(), *named_by(reply)]))
    subjects = find_incarnations(subject, known)
    if not subjects:
        addresses = ", ".join(sorted({address_of(each) for each in known})) or "none"
        raise UnknownSubject(f"nothing is known of {subject!r}; known are: {addresses}")
    return EventStory(source, subjects)


def story_of_partition(source: StorySource, partition: int, table: PartitionTable | None) -> PartitionStory:
    """Return the story of a partition. `table`: as it is now; None: not known. Raises `UnknownSubject` if nobody knows it."""
    replicas: Held | None = None
    version = None
    if table is not None:
        if partition >= table.partition_count:
            count = table.partition_count
            raise UnknownSubject(
                f"there is no partition {partition}: the {count} are numbered from 0; a member is host:port"
            )
        replicas, version = table.slots(partition), table.versions[partition]
    story = PartitionStory(source, partition, replicas, version)
    if not story.decisions and not story.rows:
        raise UnknownSubject(f"nothing is known of partition {partition}")
    return story


def as_object(story: EventStory, status: str, said: str, now: int) -> dict[str, Any]:
    """Return what happened to a member, and what became of it, as a plain object."""
    return {
        "member": story.subjects[-1],
        "incarnations": story.subjects,
        "status": status,
        "conclusion": said,
        "suspected_by": story.source.suspected_by.get(story.subjects[-1], []),
        "decisions": _decisions_as_objects(story, now),
        "notes": story.source.notes,
    }


def partition_as_object(story: PartitionStory, said: str, now: int) -> dict[str, Any]:
    """Return what happened to a partition, and who holds it, as a plain object."""
    under_way = story.under_way()
    return {
        "partition": story.partition,
        "version": story.version,
        "replicas": story.rows[-1].replicas if story.rows else None,
        "conclusion": said,
        "held": [{"since": row.since_ms, "replicas": row.replicas} for row in story.rows],
        **story.counts(),
        "under_way": under_way.fields if under_way is not None else None,
        "decisions": _decisions_as_objects(story, now),
        "notes": story.source.notes,
    }


def _decisions_as_objects(story: EventStory | PartitionStory, now: int) -> list[dict[str, Any]]:
    return [
        {
            "at": each.at_ms,
            "age_ms": now - each.at_ms,
            "by": each.by,
            "event": each.event,
            "said": story.words(each),
            "reason": each.reason,
            "rule": each.rule,
            "meaning": words_of(each.rule),
            # Who held all the others does not belong here.
            "fields": {name: value for name, value in each.fields.items() if name != "rows"},
        }
        for each in story.decisions
    ]
