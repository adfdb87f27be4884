"""What a power cut of all machines can take from maps that wait for no sync: the last writes of each partition, and no others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_data
from phalanx_proof.chaos.checks import ChaosViolation
from phalanx_proof.chaos.ledger import UNIQUE, Ledger, LedgerOutcome, LedgerToken, LedgerWrite


class LossWindow(msgspec.Struct, frozen=True):
    """When writes were acknowledged that a power cut can have taken. Seconds since the beginning of the run."""

    since_s: float
    until_s: float

    def covers(self, write: LedgerWrite) -> bool:
        """Return whether this write can have been lost although it was acknowledged."""
        return write.outcome is LedgerOutcome.ACKNOWLEDGED and self.since_s < write.ended_s <= self.until_s


def with_doubts(ledger: Ledger, window: LossWindow) -> Ledger:
    """Return a ledger in which the writes that can have been lost are in doubt."""

    def doubted(write: LedgerWrite) -> LedgerWrite:
        return msgspec.structs.replace(write, outcome=LedgerOutcome.INDETERMINATE) if window.covers(write) else write

    maps = {
        name: {key: [doubted(write) for write in writes] for key, writes in keys.items()}
        for name, keys in ledger.maps.items()
    }
    return Ledger(maps, raised_before=ledger.raised_before)


def find_lost(ledger: Ledger, found: Collection[str], window: LossWindow) -> dict[str, LedgerWrite]:
    """Return the keys that were written once, acknowledged, and taken by a power cut, with their writes.

    What an earlier cut took is not among them: the ledger was settled without it.
    """
    return {
        key: writes[-1]
        for key, writes in ledger.maps[UNIQUE].items()
        if key not in found and writes and writes[-1].value is not None and window.covers(writes[-1])
    }


def find_holes(
    ledger: Ledger, found: Collection[str], lost: Mapping[str, LedgerWrite], until_s: float, partitions: int
) -> list[ChaosViolation]:
    """Check that what is lost is the end of each partition: no write of it is there that began when a lost one was acknowledged already."""
    first_lost: dict[int, tuple[float, str]] = {}
    for key, write in lost.items():
        place = partition_of(to_data(key), partitions)
        first_lost[place] = min(first_lost.get(place, (write.ended_s, key)), (write.ended_s, key))
    violations = []
    for key, writes in ledger.maps[UNIQUE].items():
        place = partition_of(to_data(key), partitions)
        ended_s, before = first_lost.get(place, (until_s, ""))
        if key in found and writes and ended_s < writes[-1].began_s and writes[-1].ended_s < until_s:
            what = f"a power cut took {before}, and left a later write of partition {place}"
            between = (ended_s, writes[-1].ended_s)
            violations.append(ChaosViolation(what, UNIQUE, key, "nothing", "a value", between))
    return violations


def check_tokens(tokens: Mapping[str, Sequence[LedgerToken]]) -> list[ChaosViolation]:
    """Check that the tokens of each lock grow, over restarts and power cuts."""
    violations = []
    for key, received in sorted(tokens.items()):
        greatest: LedgerToken | None = None
        by_end = sorted(received, key=lambda each: each.ended_s)
        ended = iter(by_end)
        following = next(ended, None)
        for token in sorted(received, key=lambda each: each.began_s):
            while following is not None and following.ended_s < token.began_s:
                greatest = following if greatest is None or following.token > greatest.token else greatest
                following = next(ended, None)
            if greatest is not None and token.token <= greatest.token:
                violations.append(
                    ChaosViolation(
                        "the token of a lock is not greater than one before", "locks", key, f"more than {greatest.token}",
                        str(token.token), (greatest.ended_s, token.ended_s),
                    )
                )  # fmt: skip
    return violations
