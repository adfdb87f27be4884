"""Searches without other processes: a crew that works in this one, and counts what it is given."""

from collections.abc import Callable, Generator, Iterable
from pathlib import Path

from phalanx_proof.search.findings import SearchFindings, find
from phalanx_proof.search.searching import HistorySearch, SearchPlan
from phalanx_proof.search.store import Store
from phalanx_proof.search.work import Chunk
from phalanx_proof.search.worker_processes import Done, Made, Work
from phalanx_proof.sim.code_digest import code_digest
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.settings import configurations


class HereAndNow:
    """Works when it is asked."""

    cores = 2

    def __init__(self) -> None:
        self.played: list[tuple[str, int]] = []
        """Settings and seed of every history."""

    def each(self, function: Callable[[Work], Made], pieces: Iterable[Work]) -> Generator[Done[Work, Made], None, None]:
        for piece in pieces:
            if isinstance(piece, Chunk):
                self.played += [(piece.configuration.label, seed) for seed in piece.seeds]
            yield Done(piece, function(piece))

    def close(self) -> None:
        """There is nothing to end."""


class Searcher:
    """Searches with the same folder, one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warnings: list[str] = []
        self.of_other_code = 0

    def plan(
        self, seeds: range, *sweeps: str, profile: Profile = Profile.MEMBERSHIP, canary: str = "", shrinks: int = 5
    ) -> SearchPlan:
        return SearchPlan(tuple(configurations([profile], (), sweeps)), seeds, canary, shrinks=shrinks)

    def search(
        self, plan: SearchPlan, *, steps: int | None = None, code: str = ""
    ) -> tuple[SearchFindings, list[tuple[str, int]]]:
        """What was found, and what was played for it; after so many steps it is interrupted."""
        crew, store = HereAndNow(), Store(self.folder, code or code_digest(plan.canary), plan.canary)
        try:
            search = HistorySearch(plan, crew, store)
            playing = search.play()
            for number, _ in enumerate(playing, 1):
                if number == steps:
                    playing.close()
            self.warnings, self.of_other_code = store.warnings, store.of_other_code
            return find(plan, store), crew.played
        finally:
            store.close()
