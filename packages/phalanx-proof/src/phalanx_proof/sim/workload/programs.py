"""The kinds of programs that there are beside the workload, and the histories that have them."""

from __future__ import annotations

from collections.abc import Callable

from phalanx_proof.sim.checkers.evidence import Evidence
from phalanx_proof.sim.options import Options
from phalanx_proof.sim.workload.calls import Workload
from phalanx_proof.sim.workload.hazelcast_users import HazelcastUsers
from phalanx_proof.sim.workload.idle_users import IdleUsers
from phalanx_proof.sim.workload.journal_readers import JournalReaders
from phalanx_proof.sim.workload.lock_users import LockUsers
from phalanx_proof.sim.workload.program import Program
from phalanx_proof.sim.workload.redis_users import RedisUsers
from phalanx_proof.sim.workload.staged_jobs import StagedJobs

PROGRAMS: tuple[tuple[Callable[[Options], object], type[Program]], ...] = (
    (lambda options: options.journal, JournalReaders),
    (lambda options: options.staging, StagedJobs),
    (lambda options: options.locks, LockUsers),
    (lambda options: options.idle, IdleUsers),
    (lambda options: options.redis and not options.hazelcast, RedisUsers),
    (lambda options: options.redis and options.hazelcast, HazelcastUsers),
)
"""Whether a history has a kind, and the kind; in the order in which they begin."""


def programs_of(options: Options, workload: Workload, evidence: Evidence) -> list[Program]:
    """Return the programs of a history."""
    return [kind(options, workload, evidence) for is_wanted, kind in PROGRAMS if is_wanted(options)]
