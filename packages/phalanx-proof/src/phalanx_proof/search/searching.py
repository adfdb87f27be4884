"""A search: which histories are still to be played, in which pieces, and a closer look at those that failed.

Pieces are cut by what the histories of their configuration have cost so far, and become small towards the end: large
enough that handing them out costs little, small enough that all cores end together and somebody who watches sees it go on.
Configurations take turns, so that a search that was ended early has compared all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import msgspec

from phalanx.common.errors import UsageError
from phalanx_proof.search.store import Store
from phalanx_proof.search.work import Case, Chunk, Examined, SearchRow, examine, play_chunk, rows_of
from phalanx_proof.search.worker_processes import Crew
from phalanx_proof.sim.code_digest import code_digest
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.settings import Configuration

CHUNK_S = 6.0
"""Processor time of a piece."""
LEAST_S = 1.0
"""Of the last pieces: all cores end within about so much of each other, and Spark's part of a piece stays small."""
FIRST_HISTORIES = 4
MOST_HISTORIES = 2_000
SHARES_LEFT = 3
"""Towards the end a piece is no more than this part of what is left for a core."""
CHECKED_SEEDS = 500
"""So many are drawn beforehand, to say at once what does not fit."""


class SearchPlan(msgspec.Struct, frozen=True):
    """What to search through."""

    configurations: tuple[Configuration, ...]
    seeds: range
    canary: str = ""
    traces: int = 20
    """Of so many failing histories all events are kept: of the shortest of each violation first."""
    shrinks: int = 5
    """So many violations, one history of each, are shrunk."""

    @property
    def histories(self) -> int:
        return len(self.configurations) * len(self.seeds)


class SearchStep(msgspec.Struct, frozen=True):
    """What has just been done, for those who watch."""

    configuration: Configuration
    rows: Sequence[SearchRow]
    error: str = ""


class Looked(msgspec.Struct, frozen=True):
    """What was found out about a failing history."""

    configuration: Configuration
    seed: int
    violated: str
    events: int = 0
    """That were kept; 0: they were there already, or none were asked for."""
    schedule: Path | None = None
    """Where its smallest form is."""
    faults: int | None = None
    """Of its smallest form."""
    hosts: int | None = None
    error: str = ""


class Failing(msgspec.Struct, frozen=True):
    """A history that violated something, as its row tells."""

    configuration: Configuration
    seed: int
    digest: str
    violated: str
    inputs: int


def check_plan(plan: SearchPlan) -> None:
    """Check that the settings fit what the first seeds draw. Raises `UsageError` where they do not."""
    for configuration in plan.configurations:
        for seed in plan.seeds[:CHECKED_SEEDS]:
            try:
                configuration.draw(seed)
            except UsageError as error:
                raise UsageError(f"seed {seed}, {configuration.label}: {error}") from error


class HistorySearch:
    """One search, over a crew and a store."""

    def __init__(self, plan: SearchPlan, crew: Crew, store: Store) -> None:
        self.plan = plan
        self._crew = crew
        self._store = store
        present = store.present()
        self._left: dict[Configuration, Sequence[int]] = {
            each: [s for s in plan.seeds if s not in there] if (there := present.get(_key(each))) else plan.seeds
            for each in plan.configurations
        }
        self.were_there = plan.histories - sum(map(len, self._left.values()))
        """Histories that need not be played again."""
        self.errors: list[str] = []
        """What was not played, and why."""

    @property
    def left(self) -> int:
        return sum(map(len, self._left.values()))

    # --- playing ----------------------------------------------------------------------------------------------------

    def play(self) -> Generator[SearchStep, None, None]:
        """Play what is left. What has become done is kept, also if nobody asks any further."""
        chunks = Chunks(self.plan, self._left, self._crew.cores)
        work = self._crew.each(play_chunk, chunks)
        try:
            for done in work:
                error = done.error or (done.made.refused if done.made is not None else "")
                rows = done.made.rows if done.made is not None else []
                if error:
                    seeds = done.work.seeds
                    self.errors.append(f"seeds {seeds[0]} to {seeds[-1]} ({len(seeds)}) were not played: {error}")
                chunks.learn(done.work.configuration, rows)
                self._store.add(done.work.configuration, rows)
                yield SearchStep(done.work.configuration, rows, error)
                if error and not done.error:
                    return  # Another version: it would not play the next piece either.
        finally:
            work.close()
            self._store.flush()

    # --- a closer look ----------------------------------------------------------------------------------------------

    def examine(self, failing: Sequence[Failing], tell: Callable[[Looked], None]) -> list[Looked]:
        """Keep the events of failing histories, and shrink one of each violation."""
        chosen = self._choose(failing)
        looked: list[Looked] = []
        to_do: list[Case] = []
        for each, is_shrunk in chosen:
            path = self._store.find_schedule(each.configuration, each.seed)
            if self._store.has_trace(each.configuration, each.seed) and (path is not None or not is_shrunk):
                looked.append(Looked(each.configuration, each.seed, each.violated, schedule=path))
            else:
                case = Case(
                    each.configuration,
                    self.plan.canary,
                    code_digest(self.plan.canary),
                    each.seed,
                    each.digest,
                    is_shrunk,
                )
                to_do.append(case)
        violated = {(each.configuration, each.seed): each.violated for each, _ in chosen}
        for done in self._crew.each(examine, to_do) if to_do else ():
            made = done.made or Examined(done.work, refused=done.error)
            looked.append(self._keep(made, violated[made.case.configuration, made.case.seed]))
            tell(looked[-1])
        return sorted(looked, key=lambda each: (each.configuration.profile, each.configuration.label, each.seed))

    def _choose(self, failing: Sequence[Failing]) -> list[tuple[Failing, bool]]:
        """Choose the failing histories to examine, and whether each is shrunk: the shortest of each violation is; of
        the shortest others the events are kept.
        """
        ordered = sorted(failing, key=lambda each: (each.inputs, each.configuration.label, each.seed))
        first: dict[str, Failing] = {}
        for each in ordered:
            if each.digest:  # One that broke the simulator itself cannot be played to its end.
                first.setdefault(each.violated, each)
        shrunk = list(first.values())[: self.plan.shrinks]
        others = [each for each in ordered if each.digest and each not in shrunk]
        kept = others[: max(self.plan.traces - len(shrunk), 0)]
        return [*((each, True) for each in shrunk), *((each, False) for each in kept)]

    def _keep(self, made: Examined, violated: str) -> Looked:
        case, schedule = made.case, made.schedule
        if made.refused:
            return Looked(case.configuration, case.seed, violated, error=made.refused)
        rows = rows_of(made.trace)
        self._store.add_trace(case.configuration, case.seed, rows)
        path = self._store.add_schedule(case.configuration, case.seed, schedule) if schedule is not None else None
        return Looked(
            case.configuration,
            case.seed,
            violated,
            len(rows),
            path,
            len(schedule.options.faults) if schedule is not None else None,
            schedule.options.hosts if schedule is not None else None,
        )


def _key(configuration: Configuration) -> tuple[Profile, str]:
    return configuration.profile, configuration.label


class Chunks:
    """Cuts what is left into pieces, each when it is asked for."""

    def __init__(self, plan: SearchPlan, left: dict[Configuration, Sequence[int]], cores: int) -> None:
        self._plan = plan
        self._left = left
        self._cores = cores
        self._next = dict.fromkeys(left, 0)
        """Configuration to how many of its seeds were handed out."""
        self._cost: dict[Configuration, tuple[float, int]] = {}
        """Configuration to the processor time of its histories so far, and their number."""

    def learn(self, configuration: Configuration, rows: Sequence[SearchRow]) -> None:
        cpu_s, count = self._cost.get(configuration, (0.0, 0))
        self._cost[configuration] = cpu_s + sum(row.cpu_s for row in rows), count + len(rows)

    def __iter__(self) -> Iterator[Chunk]:
        code = code_digest(self._plan.canary)
        while any(self._next[each] < len(seeds) for each, seeds in self._left.items()):
            for configuration, seeds in self._left.items():
                begin = self._next[configuration]
                if begin < len(seeds):
                    size = self._size(configuration)
                    self._next[configuration] = begin + size
                    yield Chunk(configuration, self._plan.canary, code, tuple(seeds[begin : begin + size]))

    def _size(self, configuration: Configuration) -> int:
        """Return how many histories the next piece has."""
        cpu_s, count = self._cost.get(configuration, (0.0, 0))
        wanted = int(CHUNK_S * count / cpu_s) if cpu_s > 0 else FIRST_HISTORIES
        least = int(LEAST_S * count / cpu_s) if cpu_s > 0 else 1
        left = sum(max(len(seeds) - self._next[each], 0) for each, seeds in self._left.items())
        return max(1, min(max(least, left // (self._cores * SHARES_LEFT)), wanted, MOST_HISTORIES))
