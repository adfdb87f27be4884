"""What came of a history, and digests of several."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from phalanx.common.ids import Millis
from phalanx_proof.sim.checkers.findings import Violation
from phalanx_proof.sim.options import Profile


class Result(msgspec.Struct, kw_only=True):
    """What came of one history."""

    seed: int
    profile: Profile
    canary: str
    """The name of the planted bug; empty: there was none."""
    digest: str
    violations: list[Violation]
    simulated_ms: Millis
    healed_after_ms: Millis
    """From the end of the faults until nothing was left to wait for."""
    detected_after_ms: list[Millis]
    mass_join_versions: int
    operations: int
    messages: int
    inputs: int
    cpu_s: float
    outcomes: dict[str, int]
    faults: dict[str, int]
    events: dict[str, int]
    rules: dict[str, int]
    """Rules that events named, and how often."""
    counts: dict[str, int]
    story: list[str]


def digest_of_all(results: Iterable[Result]) -> str:
    """Return one digest for several histories."""
    return digest_of((result.seed, result.digest) for result in results)


def digest_of(seeds: Iterable[tuple[int, str]]) -> str:
    """Return one digest from seeds and the digests of their histories."""
    digest = hashlib.blake2b(digest_size=16)
    for seed, of_history in seeds:
        digest.update(f"{seed} {of_history}\n".encode())
    return digest.hexdigest()


def repeat_command(result: Result, arguments: str | None = None) -> str:
    """Return the command that plays the history again and tells it. `arguments`: of its configuration, with the profile."""
    usual = f" --profile {result.profile}" if result.profile is not Profile.DEFAULT else ""
    profile = usual if arguments is None else arguments
    canary = f" --canary {result.canary}" if result.canary else ""
    return f"phalanx simulate --seed {result.seed}{profile}{canary} --story"
