"""What one replica remembers of jobs that stage writes. It moves with every copy and split of the replica.

For each attempt with rows here: the number of the last page of rows. The pages of an attempt are numbered in each
partition, and a page is accepted only after the one before it. So a member that knows how many pages were sent can tell
whether all are here, whatever became of the replicas meanwhile.

Also: what became of each job, the last batch of each query that was applied, and the job whose content replaced a map.
So a step that is requested again (`staged_steps`), perhaps from another owner, is done once. The last `MAX_JOBS` jobs
are remembered: nobody repeats a request after so many others.
"""

from __future__ import annotations

import enum
from typing import TypeVar

from phalanx.common.hidden_maps import StagedStep, job_of, target_of
from phalanx.common.transitions import TransitionTable
from phalanx.wire.replication_messages import (
    AppliedBatch,
    PlacedContent,
    ReplicateStaged,
    StagedJob,
    StagedPages,
    StagedPast,
)

MAX_JOBS = 256
"""Finished jobs that one partition remembers."""
MAX_SNAPSHOTS = 64
"""Jobs with a snapshot that one partition remembers."""
MAX_QUERIES = 1_000
"""Queries whose last batch one partition remembers."""


class JobStage(enum.StrEnum):
    """What became of a job that stages writes for a map, in one partition."""

    STAGING = "nothing yet: it stages rows"
    SNAPSHOT_KEPT = "the map is kept for it as it was at one moment"
    APPLIED = "its rows are in the map"
    ASSEMBLED = "its rows are to take the place of the map, or have"
    DROPPED = "what it had staged is dropped"


STAGED_CHANGES = TransitionTable[JobStage, StagedStep](
    "a job that stages writes",
    {
        (JobStage.STAGING, StagedStep.APPLY): JobStage.APPLIED,
        (JobStage.STAGING, StagedStep.ASSEMBLE): JobStage.ASSEMBLED,
        (JobStage.STAGING, StagedStep.SNAPSHOT): JobStage.SNAPSHOT_KEPT,
        (JobStage.STAGING, StagedStep.DROP): JobStage.DROPPED,
        (JobStage.STAGING, StagedStep.DISCARD): JobStage.DROPPED,
        (JobStage.SNAPSHOT_KEPT, StagedStep.APPLY): JobStage.APPLIED,
        (JobStage.SNAPSHOT_KEPT, StagedStep.ASSEMBLE): JobStage.ASSEMBLED,
        (JobStage.SNAPSHOT_KEPT, StagedStep.DROP): JobStage.DROPPED,
        (JobStage.SNAPSHOT_KEPT, StagedStep.DISCARD): JobStage.DROPPED,
        (JobStage.APPLIED, StagedStep.DROP): JobStage.DROPPED,
        (JobStage.APPLIED, StagedStep.DISCARD): JobStage.DROPPED,
        (JobStage.ASSEMBLED, StagedStep.ASSEMBLE): JobStage.ASSEMBLED,
        (JobStage.ASSEMBLED, StagedStep.DROP): JobStage.ASSEMBLED,
        (JobStage.ASSEMBLED, StagedStep.DISCARD): JobStage.DROPPED,
        (JobStage.DROPPED, StagedStep.DROP): JobStage.DROPPED,
        (JobStage.DROPPED, StagedStep.DISCARD): JobStage.DROPPED,
    },
)
"""A job that is forgotten counts as STAGING again. `REPLACE` and `CHECK` do not change the stage."""
_STEP_TO: dict[JobStage, StagedStep] = {
    JobStage.SNAPSHOT_KEPT: StagedStep.SNAPSHOT,
    JobStage.APPLIED: StagedStep.APPLY,
    JobStage.ASSEMBLED: StagedStep.ASSEMBLE,
    JobStage.DROPPED: StagedStep.DROP,
}
"""Stage to the step that leads there, by which a copy names the stage."""
_STAGE_AFTER = {step: stage for stage, step in _STEP_TO.items()}

K = TypeVar("K")
V = TypeVar("V")


class Staged:
    """What one replica remembers of jobs."""

    __slots__ = ("batches", "contents", "jobs", "pages", "rest")

    def __init__(self, past: StagedPast | None = None) -> None:
        past = past if past is not None else StagedPast()
        self.jobs: dict[tuple[str, str], JobStage] = {
            (each.map, each.job): _STAGE_AFTER[each.step] for each in past.jobs
        }
        """Map and job to the stage of the job; only `note_step` changes it."""
        self.batches: dict[tuple[str, str], int] = {(each.map, each.query): each.number for each in past.batches}
        """Map and query to the greatest batch number that was applied."""
        self.contents: dict[str, tuple[int, str]] = {each.map: (each.stamp, each.job) for each in past.contents}
        """Map to the stamp and the job of the content that replaced it last."""
        self.pages: dict[str, int] = {each.map: each.last for each in past.pages}
        """Hidden map of an attempt to the number of its last page; after a split also where no row of it is here."""
        self.rest: ReplicateStaged | None = past.rest
        """The rest of a step that is done in part: the partition answers no request before it is done. None: none."""

    def __repr__(self) -> str:
        return f"Staged({self.export()})"

    def export(self) -> StagedPast:
        """Return everything, for a copy."""
        return StagedPast(
            tuple(StagedJob(*names, _STEP_TO[stage]) for names, stage in self.jobs.items()),
            tuple(AppliedBatch(*names, number) for names, number in self.batches.items()),
            tuple(PlacedContent(name, job, stamp) for name, (stamp, job) in self.contents.items()),
            tuple(StagedPages(name, last) for name, last in self.pages.items()),
            self.rest,
        )

    def has_ended(self, name: str, job: str) -> bool:
        """Return whether the job is over here, so that it can stage nothing more for the map."""
        return self.stage_of(name, job) not in (JobStage.STAGING, JobStage.SNAPSHOT_KEPT)

    def stage_of(self, name: str, job: str) -> JobStage:
        return self.jobs.get((name, job), JobStage.STAGING)

    def has_applied(self, name: str, query: str, number: int) -> bool:
        """Return whether this batch of a query, or a later one, was applied here."""
        return bool(query) and number <= self.batches.get((name, query), number - 1)

    def note_step(self, name: str, job: str, step: StagedStep) -> None:
        """Record a step that was done for a job: `STAGED_CHANGES` says the new stage. Forget the oldest jobs beyond the
        limit.

        Finished jobs never push out a job with a snapshot, which can be in use for hours.
        """
        before = self.stage_of(name, job)
        stage = STAGED_CHANGES.next(before, step, map=name, job=job)
        if stage is before:
            return
        _put_last(self.jobs, (name, job), stage, MAX_JOBS + MAX_SNAPSHOTS)
        is_snapshot = stage is JobStage.SNAPSHOT_KEPT
        most = MAX_SNAPSHOTS if is_snapshot else MAX_JOBS
        if len(self.jobs) > most:
            alike = [names for names, last in self.jobs.items() if (last is JobStage.SNAPSHOT_KEPT) == is_snapshot]
            for names in alike[:-most]:
                del self.jobs[names]

    def forget_pages(self, name: str, job: str) -> None:
        """Forget the page numbers of a job for a map, whose pages are removed."""
        for hidden in [each for each in self.pages if job_of(each) == job and target_of(each) == name]:
            del self.pages[hidden]

    def note_batch(self, name: str, query: str, number: int) -> None:
        _put_last(self.batches, (name, query), number, MAX_QUERIES)


def _put_last(known: dict[K, V], key: K, value: V, most: int) -> None:
    known.pop(key, None)
    known[key] = value
    if len(known) > most:
        del known[next(iter(known))]
