"""`phalanx why`: what happened to a member or a partition, who decided it, and by which rule."""

from __future__ import annotations

import datetime as dt
import re
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from phalanx.cli.app import fail
from phalanx.cli.losses import show_losses
from phalanx.cli.options import ClusterName, Json, SecretFile
from phalanx.cli.output import Text, console, print_json
from phalanx.cli.partition_story import ABOUT_MANY, Held, PartitionStory
from phalanx.cli.story import LISTS, Decision, EventStory, StorySource, find_incarnations, together
from phalanx.client.ask import Inquirer, ask_any, ask_each
from phalanx.common.errors import UnavailableError, UsageError
from phalanx.common.ids import MemberId, address_of
from phalanx.common.words import counted
from phalanx.operations.losses import about_members, about_partition, ago, as_objects
from phalanx.rules import words_of
from phalanx.runtime.rotating_log import read_logs as read_parts
from phalanx.wire.messages import HistoryReply, LossesReply

PARTITION = re.compile(r"\d{1,6}")
"""More digits are the beginning of an incarnation."""


def why(
    subject: Annotated[
        str,
        typer.Argument(
            help="A member: host:port, an identity, the beginning of an incarnation. Or a partition's number."
        ),
    ],
    at: Annotated[
        str | None, typer.Option("--at", metavar="HOST:PORT", help="Ask the members of the cluster of this one.")
    ] = None,
    event_log: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Read the event logs in a folder instead.")
    ] = None,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Tell what happened to a member or a partition, and why: who decided what, when, by which rule."""
    if (at is None) == (event_log is None):
        raise UsageError("give either --at HOST:PORT, to ask living members, or --event-log DIR, to read their logs")
    partition = int(subject) if PARTITION.fullmatch(subject) else None
    source = (
        ask_members(at, cluster, partition) if at is not None else read_logs(event_log or Path(), cluster, partition)
    )
    now = _now()
    times = {id(each): ago(now - each.at_ms) if at is not None else _clock(each.at_ms) for each in source.decisions}
    if partition is not None:
        _tell_of_partition(source, partition, at, cluster, times, now, json=json)
        return
    told = _ask_losses(at, cluster) if at is not None else None
    known = list(dict.fromkeys([*source.known(), *_named_by(told)]))
    subjects = find_incarnations(subject, known)
    if not subjects:
        addresses = ", ".join(sorted({address_of(each) for each in known})) or "none"
        fail(f"nothing is known of {subject!r}; known are: {addresses}")
    story = EventStory(source, subjects)
    status, said = story.conclusion(times)
    only = about_members(told.losses, subjects) if told is not None else set()
    if json:
        print_json(_as_object(story, status, said, now) | (as_objects(told, only) if told is not None else {}))
        return
    _show(story, said, times)
    if told is not None:
        show_losses(told, at or "", only=only)


def _tell_of_partition(
    source: StorySource, partition: int, at: str | None, cluster: str, times: dict[int, str], now: int, *, json: bool
) -> None:
    replicas: Held | None = None
    version, count = None, 1
    if at is not None:
        table = ask_any(at, cluster, Inquirer.table).table
        if partition >= table.partition_count:
            fail(f"there is no partition {partition}: the {table.partition_count} are numbered from 0")
        replicas, version, count = table.slots(partition), table.versions[partition], table.partition_count
    story = PartitionStory(source, partition, replicas, version)
    if not story.decisions and not story.rows:
        fail(f"nothing is known of partition {partition}")
    said = story.conclusion(times)
    told = _ask_losses(at, cluster) if at is not None else None
    only = about_partition(told.losses, partition, count) if told is not None else set()
    if json:
        print_json(_partition_as_object(story, said, now) | (as_objects(told, only) if told is not None else {}))
        return
    _show(story, said[0].upper() + said[1:], times)
    if told is not None:
        show_losses(told, at or "", only=only)


def _ask_losses(at: str, cluster: str) -> LossesReply | None:
    """Return what is lost; None: the member asked is in no cluster, and only tells what it remembers."""
    try:
        return ask_any(at, cluster, Inquirer.losses)
    except UnavailableError:
        return None


def _named_by(told: LossesReply | None) -> list[MemberId]:
    if told is None:
        return []
    losses = [each.member for loss in told.losses.losses for each in loss.gone]
    return [*losses, *(each.member for each in told.losses.away)]


def _now() -> int:
    return time.time_ns() // 1_000_000


def ask_members(at: str, cluster: str, partition: int | None = None) -> StorySource:
    """Return what all members remember, found through the first that answers; `partition`: only about that one.

    Raises `ConnectError` if none answers.
    """
    of = -1 if partition is None else partition
    asked, first, at_ms = ask_any(at, cluster, lambda inquirer: (inquirer.member(), inquirer.history(of), _now()))
    others = [other for other in (first.view.members if first.view is not None else ()) if other != asked]
    told = ask_each(others, cluster, lambda inquirer: (inquirer.member(), inquirer.history(of), _now()))
    replies: dict[MemberId, tuple[HistoryReply, int] | None] = {asked: (first, at_ms)}
    for other, answer in told.items():
        # Another incarnation that has come to the address meanwhile knows nothing of what this one decided.
        replies[other] = answer[1:] if answer is not None and answer[0] == other else None
    source = StorySource(decisions=[])
    for member, reply in replies.items():
        if reply is None:
            source.notes.append(f"{address_of(member)} does not answer: what it decided is not told")
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


def read_logs(folder: Path, cluster: str, partition: int | None = None) -> StorySource:
    """Return what the event logs of a folder tell; `partition`: only about that one.

    Raises `UsageError` if it has none of that cluster.
    """
    parts = read_parts(folder)
    if not parts:
        raise UsageError(
            f"{folder} holds no event log (*.jsonl, *.jsonl.*.gz): give the folder that members had as --event-log"
        )
    source, bad, names = StorySource(decisions=[]), 0, set()
    for part in parts:
        for line in part.splitlines():
            try:
                fields = msgspec.json.decode(line, type=dict[str, Any])
                name = str(fields.pop("cluster"))
                decision = Decision(
                    at_ms=int(fields.pop("at")), by=MemberId(str(fields.pop("member"))),
                    event=str(fields.pop("event")), fields=fields,
                )  # fmt: skip
                if name == cluster and decision.event in LISTS:
                    source.views[decision.by] = (int(fields["view_version"]), tuple(fields["members"]))
            except (msgspec.DecodeError, KeyError, TypeError, ValueError):
                bad += 1
                continue
            fields.pop("address", None)
            names.add(name)
            if name == cluster and decision.event in ("Left", "Ejected"):
                source.views.pop(decision.by, None)
            if name == cluster and decision.rule and _is_wanted(decision, partition):
                source.decisions.append(decision)
    if cluster not in names:
        others = ", ".join(map(repr, sorted(names))) or "none"
        raise UsageError(f"{folder} holds nothing of cluster {cluster!r}; of these: {others}; see --cluster")
    if bad:
        source.notes.append(f"{counted(bad, 'line is', 'lines are')} no event, and left out")
    source.decisions.sort(key=lambda decision: decision.at_ms)
    return source


def _is_wanted(decision: Decision, partition: int | None) -> bool:
    """Return whether a decision is kept: of the many about partitions only those about the one asked for."""
    about = decision.fields.get("partition")
    return about == partition if about is not None or partition is None else decision.event in ABOUT_MANY


def _clock(at_ms: int) -> str:
    at = dt.datetime.fromtimestamp(at_ms / 1000).astimezone()
    return at.isoformat(sep=" ", timespec="milliseconds").rpartition("+")[0] or at.isoformat(sep=" ")


def _show(story: EventStory | PartitionStory, said: str, times: dict[int, str]) -> None:
    out = console()
    out.print(Text(said + "."), style="bold")
    out.print()
    rows = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    rows.add_column("when", justify="right", no_wrap=True)
    rows.add_column("who", no_wrap=True)
    rows.add_column("decided", overflow="fold")
    for each, first in together(story.decisions):
        line = Text(story.words(each))
        if because := story.why(each):
            line.append(f": {because}" if each.reason else f"; {because}", style="dim")
        rows.add_row(times[id(first)], story.name(each.by), line)
    out.print(rows)
    for note in story.source.notes:
        out.print(Text(note), style="yellow")


def _as_object(story: EventStory, status: str, said: str, now: int) -> dict[str, Any]:
    return {
        "member": story.subjects[-1],
        "incarnations": story.subjects,
        "status": status,
        "conclusion": said,
        "suspected_by": story.source.suspected_by.get(story.subjects[-1], []),
        "decisions": _decisions_as_objects(story, now),
        "notes": story.source.notes,
    }


def _partition_as_object(story: PartitionStory, said: str, now: int) -> dict[str, Any]:
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
