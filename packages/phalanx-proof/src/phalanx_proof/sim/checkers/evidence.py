"""What the judges of one history share: findings, counts, and what is known of founders, tables and losses."""

from __future__ import annotations

from collections import Counter

from phalanx.codec.hashing import partition_of
from phalanx.common.ids import MemberId, Millis
from phalanx_proof.sim.checkers.eviction_checker import EvictionChecker
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.majority_checker import MajorityChecker
from phalanx_proof.sim.checkers.merge_starts import MergeStarts
from phalanx_proof.sim.checkers.merged_data import Survival
from phalanx_proof.sim.checkers.table_checker import TableChecker
from phalanx_proof.sim.options import HistoryOptions


class Evidence:
    """The material of one history by which checkers and programs judge."""

    def __init__(self, options: HistoryOptions) -> None:
        self.options = options
        self.findings = Findings()
        self.counts: Counter[str] = Counter()
        """How often something was checked, excused or lost."""
        self.tables = TableChecker(
            self.findings, options.partitions, options.backups, has_sides=options.has_sides, restarts=options.restarts
        )
        self.merges = MergeStarts(self.tables)
        self.majorities = MajorityChecker(self.findings)
        self.evictions = EvictionChecker(self.findings)
        self.survival = Survival()
        self.failed_disks: dict[MemberId, Millis] = {}
        """Member to when its disk has failed."""
        self.tables.failed_disks = self.failed_disks
        self.lost_partitions: set[int] = set()
        """Partitions, by their numbers before any division, of which all replicas left at some time."""
        self.tables.begun_empty = self.lost_partitions

    def is_partition_lost(self, key: bytes) -> bool:
        """Tell whether all replicas of a key's partition left at some time."""
        return partition_of(key, self.options.partitions) in self.lost_partitions

    def may_be_lost(self, key: bytes, replier: MemberId, begin: Millis, end: Millis) -> bool:
        """Tell whether all replicas can be gone that had a write of a key, which `replier` acknowledged between two times."""
        return self.tables.may_be_lost(partition_of(key, len(self.tables.lines)), replier, begin, end)
