"""Finds a planted bug (a canary): histories are played until one of them tells of it.

A history ends where it tells, and only one that is sound without the bug tells of it. A search can take hundreds of them, so `planted_seeds.json`
keeps for each bug a seed that told of it soon, and that one is played first; `test_planted_seeds` plays those without the bugs. Only where it does not
tell any more are the others played: then the test still passes, later, and warns.
`./run python -m pytest tests/sim -k "planted or found or wrong" --record-seeds` keeps the seeds anew.
"""

import fcntl
import json
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from phalanx_proof.sim.checkers.findings import Violation
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.result import Result
from phalanx_proof.sim.run import run
from planted_bugs import CANARIES

from .roots import TESTS

FILE = TESTS / "planted_seeds.json"


CANDIDATES = 4
"""Of so many histories that tell of a bug, the seed of the shortest is kept."""


class Seeds:
    """The seeds by which planted bugs are found, by profile and bug."""

    def __init__(self, path: Path = FILE) -> None:
        self._path = path
        self._known: dict[str, int] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        self.is_recording = False

    def all_known(self) -> list[tuple[Profile, int]]:
        """The profile and the number of each, once."""
        return sorted({(Profile(name.partition(": ")[0]), seed) for name, seed in self._known.items()})

    def is_known(self, profile: Profile, canary: str, seed: int) -> bool:
        """Whether this is the one that is kept for the bug."""
        return not self.is_recording and self._known.get(f"{profile}: {canary}") == seed

    def in_order(self, profile: Profile, canary: str, seeds: Iterable[int]) -> Iterable[int]:
        """The seeds, beginning with the one that is known."""
        known = self._known.get(f"{profile}: {canary}")
        if known is not None and not self.is_recording:
            yield known
        yield from (seed for seed in seeds if seed != known or self.is_recording)

    def note(self, profile: Profile, canary: str, seed: int) -> None:
        """Remember by which seed it was found; the file is written only when seeds are recorded."""
        name = f"{profile}: {canary}"
        if self._known.get(name) == seed:
            return
        if self.is_recording:
            # Tests run in processes beside each other, of which each notes what it finds.
            with self._path.open("a+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                self._known = {**json.loads(file.read() or "{}"), name: seed}
                file.truncate(0)
                file.write(json.dumps(self._known, indent=1, sort_keys=True) + "\n")
        else:
            what = f"{canary} is found by seed {seed} of {profile}, and no more by the seed that is recorded"
            warnings.warn(f"{what}: keep the new ones with --record-seeds (tests/support/planted.py)", stacklevel=2)


SEEDS = Seeds()


def find(
    canary: str,
    profiles: Iterable[Profile],
    seeds: Iterable[int],
    tells: Callable[[Result], bool] = lambda result: bool(result.violations),
    ends_at: Callable[[Violation], bool] = lambda violation: True,
) -> Result:
    """The first history that tells of the bug. Raises `AssertionError` if none does. `ends_at`: whether a violation is enough to tell."""
    seeds, tried, found = list(seeds), 0, list[Result]()
    for profile in profiles:
        for seed in SEEDS.in_order(profile, canary, seeds):
            tried += 1
            result = run(draw_options(seed, profile), CANARIES[canary], ends_at=ends_at)
            if tells(result) and (SEEDS.is_known(profile, canary, seed) or is_sound(seed, profile)):
                found.append(result)
                if not SEEDS.is_recording or len(found) == CANDIDATES:
                    break
        if found:
            shortest = min(found, key=lambda result: result.inputs)
            SEEDS.note(profile, canary, shortest.seed)
            return shortest
    raise AssertionError(f"{canary} was planted and not found in {tried} histories")


def assert_found(canary: str, profile: Profile, seeds: Iterable[int], by: set[str]) -> Result:
    """Some of these histories, with the bug planted, violates one of these: the first that does."""
    return find(
        canary,
        [profile],
        seeds,
        lambda result: bool(by & {violation.what for violation in result.violations}),
        lambda violation: violation.what in by,
    )


@cache
def is_sound(seed: int, profile: Profile) -> bool:
    """Whether nothing is violated in a history without any bug; many bugs are found by the same one."""
    return not run(draw_options(seed, profile)).violations
