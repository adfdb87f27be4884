"""Checks of a step with staged rows in owned partitions: is it possible, is it still to be done, was it done?"""

from __future__ import annotations

from itertools import islice

from phalanx.common.clock import stamp_of
from phalanx.common.hidden_maps import HiddenKind, StagedStep, hidden_name, is_hidden
from phalanx.common.map_plan import Content
from phalanx.grid.replica.staged import JobStage
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.wire.messages import ChangeStaged

WHY_GONE = (
    "nobody had touched them for the members' staging_ms, or all replicas of the partition were lost, or they were on a "
    "side that gave up its cluster"
)
NOTHING_DONE = "nothing of it is in the map; "
_TAKES_ROWS = (StagedStep.APPLY, StagedStep.ASSEMBLE)
_STAGE_AFTER = {
    StagedStep.APPLY: JobStage.APPLIED,
    StagedStep.ASSEMBLE: JobStage.ASSEMBLED,
    StagedStep.SNAPSHOT: JobStage.SNAPSHOT_KEPT,
}
_DONE = {
    JobStage.APPLIED: "applied",
    JobStage.ASSEMBLED: "made ready to replace the map",
    JobStage.DROPPED: "dropped",
}


def is_due(content: Content, owned: OwnedPartition, request: ChangeStaged) -> bool:
    """Return whether a step is still to be done in a partition. `content`: which one the table says that the map has."""
    return not was_done(owned, request) or _is_stale(content, owned, request)


def why_impossible(content: Content, request: ChangeStaged, owned_ones: list[OwnedPartition]) -> str:
    """Say why a step can never be done; empty: it can be, or was done. `content`: as for `is_due`."""
    name, job, step = request.map, request.job, request.step
    if is_hidden(name) or step not in (
        StagedStep.APPLY,
        StagedStep.ASSEMBLE,
        StagedStep.SNAPSHOT,
        StagedStep.DROP,
        StagedStep.CHECK,
    ):
        return f"step {step} for {name!r} is none that anybody asks for"
    counts = list(map(len, request.pages))
    if counts != [len(request.partitions)] * len(request.attempts):
        return f"step {step.name.lower()} for the map {name!r} does not say how many pages each attempt has staged"
    step = StagedStep.APPLY if step is StagedStep.CHECK else step
    if step is StagedStep.ASSEMBLE and job not in (content.pending, content.job):
        return f"job {job} does not replace the map {name!r} any more: another one does, or it waited too long"
    for owned in owned_ones:
        staged = owned.replica.staged
        stage = staged.stage_of(name, job)
        if staged.has_ended(name, job) and step is not StagedStep.DROP and stage is not _STAGE_AFTER[step]:
            return f"job {job} for the map {name!r} is over: what it had staged was {_DONE[stage]}"
    return _what_is_gone(request, owned_ones) if step in _TAKES_ROWS else ""


def _what_is_gone(request: ChangeStaged, owned_ones: list[OwnedPartition]) -> str:
    """Say which staged rows are lost; empty: all are here."""
    places = {partition: place for place, partition in enumerate(request.partitions)}
    so_far = "" if request.step is StagedStep.APPLY else NOTHING_DONE
    for owned in owned_ones:
        staged, place = owned.replica.staged, places[owned.number]
        if was_done(owned, request) or staged.has_applied(request.map, request.query, request.number):
            continue
        for attempt, pages in zip(request.attempts, request.pages, strict=True):
            here = staged.pages.get(hidden_name(request.map, request.job, HiddenKind.ATTEMPT, attempt), 0)
            if here < pages[place]:
                return (
                    f"of what job {request.job} had staged for the map {request.map!r}, rows are gone (partition "
                    f"{owned.number}: {here} of {pages[place]} pages of attempt {attempt}): {WHY_GONE}; {so_far}run the job again"
                )
    return ""


def was_done(owned: OwnedPartition, request: ChangeStaged) -> bool:
    """Return whether this owner, or an earlier one, has done a step."""
    name, job, replica = request.map, request.job, owned.replica
    stage = replica.staged.stage_of(name, job)
    if request.step is StagedStep.CHECK:
        return stage is JobStage.APPLIED
    if request.step is StagedStep.DROP:
        return replica.staged.has_ended(name, job)
    if request.step is StagedStep.ASSEMBLE and (
        replica.staged.contents.get(name, (0, ""))[1] == job or hidden_name(name, job, HiddenKind.WHOLE) in replica.maps
    ):
        return True
    return stage is _STAGE_AFTER.get(request.step)


def _is_stale(content: Content, owned: OwnedPartition, request: ChangeStaged) -> bool:
    """Return whether an assembled content is older than the present beginning of its job, which began anew after another job
    had replaced the map. Its rows would count as removed at that beginning, so it must be assembled again."""
    whole = owned.replica.maps.get(hidden_name(request.map, request.job, HiddenKind.WHOLE))
    if request.step is not StagedStep.ASSEMBLE or content.pending != request.job or whole is None:
        return False
    return any(stamp_of(row) < content.pending_stamp for row in islice(whole.entries.values(), 1))
