"""`phalanx why`: what happened to a member or a partition, who decided it, and by which rule."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from phalanx.cli.losses import show_losses
from phalanx.cli.options import At, ClusterName, Json, SecretFile, is_at_given
from phalanx.cli.output import EscapedText, console, print_json
from phalanx.client.ask import Inquirer, ask_any, ask_each
from phalanx.common.errors import UnavailableError, UsageError
from phalanx.common.ids import MemberId
from phalanx.common.seeds import DEFAULT_MEMBERS
from phalanx.common.words import counted
from phalanx.reports.losses import about_members, about_partition, ago, as_objects
from phalanx.reports.partition_story import ABOUT_MANY, PartitionStory
from phalanx.reports.story import LISTS, Decision, EventStory, StorySource, together
from phalanx.reports.why import (
    PARTITION,
    as_object,
    partition_as_object,
    put_together,
    story_of_member,
    story_of_partition,
)
from phalanx.rules import cite
from phalanx.runtime.logs.rotating_log import read_logs as read_parts
from phalanx.wire.messages import HistoryReply, LossesReply


def why(
    context: typer.Context,
    subject: Annotated[
        str,
        typer.Argument(
            help="A member: host:port, its identity, or the beginning of its incarnation. Or the number of a partition."
        ),
    ],
    at: At = DEFAULT_MEMBERS,
    event_log: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Read the event logs in this folder instead of asking members.")
    ] = None,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    with_rules: Annotated[
        bool, typer.Option("--rules", help="Also name the rule of the protocol for each decision (docs/protocol).")
    ] = False,
    json: Json = False,
) -> None:
    """Tell what happened to a member or a partition, and why: the cause, then which member decided what, when."""
    if event_log is not None and is_at_given(context):
        raise UsageError("give either --at HOST:PORT, to ask living members, or --event-log DIR, to read their logs")
    partition = int(subject) if PARTITION.fullmatch(subject) else None
    asked = at if event_log is None else None
    source = ask_members(at, cluster, partition) if event_log is None else read_logs(event_log, cluster, partition)
    now = _now()
    times = {id(each): ago(now - each.at_ms) if asked is not None else _clock(each.at_ms) for each in source.decisions}
    if partition is not None:
        _tell_of_partition(source, partition, asked, cluster, times, now, json=json, with_rules=with_rules)
        return
    reply = _ask_losses(asked, cluster) if asked is not None else None
    story = story_of_member(source, subject, reply)
    status, said = story.conclusion(times)
    only = about_members(reply.losses, story.subjects) if reply is not None else set()
    if json:
        print_json(as_object(story, status, said, now) | (as_objects(reply, only) if reply is not None else {}))
        return
    _show(story, said, times, with_rules=with_rules)
    if reply is not None:
        show_losses(reply, at, only=only)


def _tell_of_partition(
    source: StorySource,
    partition: int,
    at: str | None,
    cluster: str,
    times: dict[int, str],
    now: int,
    *,
    json: bool,
    with_rules: bool,
) -> None:
    table = ask_any(at, cluster, Inquirer.table).table if at is not None else None
    story = story_of_partition(source, partition, table)
    count = table.partition_count if table is not None else 1
    said = story.conclusion(times)
    reply = _ask_losses(at, cluster) if at is not None else None
    only = about_partition(reply.losses, partition, count) if reply is not None else set()
    if json:
        print_json(partition_as_object(story, said, now) | (as_objects(reply, only) if reply is not None else {}))
        return
    _show(story, said[0].upper() + said[1:], times, with_rules=with_rules)
    if reply is not None:
        show_losses(reply, at or "", only=only)


def _ask_losses(at: str, cluster: str) -> LossesReply | None:
    """Return what is lost; None: the member asked is in no cluster, and only tells what it remembers."""
    try:
        return ask_any(at, cluster, Inquirer.losses)
    except UnavailableError:
        return None


def _now() -> int:
    return time.time_ns() // 1_000_000


def ask_members(at: str, cluster: str, partition: int | None = None) -> StorySource:
    """Return what all members remember, found through the first that answers; `partition`: only about that one.

    Raises `ConnectError` if none answers.
    """
    of = -1 if partition is None else partition
    asked, first, at_ms = ask_any(at, cluster, lambda inquirer: (inquirer.member(), inquirer.history(of), _now()))
    others = [other for other in (first.view.members if first.view is not None else ()) if other != asked]
    answers = ask_each(others, cluster, lambda inquirer: (inquirer.member(), inquirer.history(of), _now()))
    replies: dict[MemberId, tuple[HistoryReply, int] | None] = {asked: (first, at_ms)}
    for other, answer in answers.items():
        # Another incarnation that has come to the address meanwhile knows nothing of what this one decided.
        replies[other] = answer[1:] if answer is not None and answer[0] == other else None
    return put_together(replies)


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
            except (msgspec.DecodeError, RecursionError, KeyError, TypeError, ValueError):
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
        raise UsageError(f"{folder} has no events of cluster {cluster!r}; it has events of: {others}; see --cluster")
    if bad:
        source.notes.append(f"{counted(bad, 'line is not an event and is', 'lines are not events and are')} left out")
    source.decisions.sort(key=lambda decision: decision.at_ms)
    return source


def _is_wanted(decision: Decision, partition: int | None) -> bool:
    """Return whether a decision is kept: of the many about partitions only those about the one asked for."""
    about = decision.fields.get("partition")
    return about == partition if about is not None or partition is None else decision.event in ABOUT_MANY


def _clock(at_ms: int) -> str:
    at = dt.datetime.fromtimestamp(at_ms / 1000).astimezone()
    return at.isoformat(sep=" ", timespec="milliseconds").rpartition("+")[0] or at.isoformat(sep=" ")


def _show(story: EventStory | PartitionStory, said: str, times: dict[int, str], *, with_rules: bool) -> None:
    out = console()
    out.print(EscapedText(said + "."), style="bold")
    rows = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    rows.add_column("when", justify="right", no_wrap=True)
    rows.add_column("who", no_wrap=True)
    rows.add_column("decided", overflow="fold")
    for each, first in together(story.decisions):
        line = EscapedText(story.words(each))
        if each.reason:
            line.append(f": {each.reason}", style="dim")
        if with_rules and (rules := story.rules(each)):
            line.append(f"; rule: {'; '.join(map(cite, rules))}", style="dim")
        rows.add_row(times[id(first)], story.name(each.by), line)
    if rows.row_count:
        out.print()
        out.print(rows)
    for note in story.source.notes:
        out.print(EscapedText(note), style="yellow")
