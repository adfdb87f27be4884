"""What a power cut of all may take from maps that wait for no sync, and what the checks find that it must not."""

from collections.abc import Mapping

from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_data
from phalanx_proof.chaos.checks import ChecksFound, check_ledger
from phalanx_proof.chaos.durable.losses import LossWindow, check_tokens, find_holes, find_lost, with_doubts
from phalanx_proof.chaos.ledger import (
    COUNTERS,
    REGISTERS,
    UNIQUE,
    Ledger,
    LedgerOutcome,
    LedgerToken,
    LedgerWrite,
    Value,
)

WINDOW = LossWindow(9.0, 10.5)
"""Of a cut at 10 s; half a second later the last process had ended."""
MAPS = tuple(Ledger().maps)


def note(ledger: Ledger, name: str, key: str, value: Value, ended_s: float) -> None:
    ledger.note(name, key, LedgerWrite(0, value, LedgerOutcome.ACKNOWLEDGED, ended_s - 0.1, ended_s))


def found(**maps: Mapping[str, Value]) -> dict[str, ChecksFound]:
    given = {name: maps.get(name, {}) for name in MAPS}
    return {name: ChecksFound(list(keys.items()), keys, len(keys)) for name, keys in given.items()}


def told(ledger: Ledger, **maps: Mapping[str, Value]) -> list[str]:
    return [violation.what for violation in check_ledger(with_doubts(ledger, WINDOW), found(**maps))]


def test_the_last_writes_can_be_lost_and_earlier_ones_cannot() -> None:
    ledger = Ledger()
    note(ledger, UNIQUE, "early", "e", 8.9)
    note(ledger, UNIQUE, "late", "l", 9.5)
    note(ledger, UNIQUE, "afterwards", "a", 12.0)
    whole = {"early": "e", "late": "l", "afterwards": "a"}
    assert told(ledger, unique=whole) == []
    assert told(ledger, unique={"early": "e", "afterwards": "a"}) == []
    assert told(ledger, unique={"late": "l", "afterwards": "a"}) == ["an acknowledged write is missing"]
    assert told(ledger, unique={"early": "e", "late": "l"}) == ["an acknowledged write is missing"]
    assert list(find_lost(ledger, {"early", "afterwards"}, WINDOW)) == ["late"]


def test_a_value_goes_back_only_to_what_it_was_before_the_last_writes() -> None:
    ledger = Ledger()
    for value, ended_s in ((1, 7.0), (2, 8.0), (3, 9.5), (None, 9.8)):
        note(ledger, REGISTERS, "r", value, ended_s)
    assert told(ledger, registers={"r": 2}) == told(ledger, registers={"r": 3}) == told(ledger, registers={}) == []
    assert told(ledger, registers={"r": 1}) == ["an acknowledged write was undone"]


def test_a_counter_loses_only_its_last_increments() -> None:
    ledger = Ledger()
    ledger.raised_before[COUNTERS] = {"c": 10}
    for number, ended_s in ((11, 8.0), (12, 9.5)):
        note(ledger, COUNTERS, "c", number, ended_s)
    assert told(ledger, counters={"c": 11}) == told(ledger, counters={"c": 12}) == []
    assert told(ledger, counters={"c": 10}) == ["acknowledged increments are missing"]
    assert told(ledger, counters={"c": 13}) == ["increments were done twice"]


def test_a_ledger_that_is_settled_begins_with_what_was_found() -> None:
    ledger = Ledger()
    note(ledger, UNIQUE, "kept", "k", 9.5)
    note(ledger, UNIQUE, "lost", "l", 9.6)
    note(ledger, REGISTERS, "removed", None, 9.5)
    note(ledger, COUNTERS, "c", 1, 8.0)
    there: dict[str, dict[str, Value]] = {name: {} for name in MAPS} | {UNIQUE: {"kept": "k"}, COUNTERS: {"c": 1}}
    ledger.settle(there, 11.0)
    assert ledger.certain == ["kept"]
    assert told(ledger, unique={"kept": "k"}, counters={"c": 1}) == []
    assert told(ledger, counters={"c": 1}) == ["an acknowledged write is missing"]
    assert told(ledger, unique={"kept": "k"}) == ["acknowledged increments are missing"]
    assert told(ledger, unique={"kept": "k", "lost": "l"}, counters={"c": 1}) == ["what was removed is there"]
    assert told(ledger, unique={"kept": "k"}, counters={"c": 1}, registers={"removed": 1}) == [
        "a value that nobody wrote"
    ]


def test_what_an_earlier_power_cut_took_is_not_lost_again() -> None:
    ledger = Ledger()
    note(ledger, UNIQUE, "lost", "l", 8.0)
    ledger.settle({name: {} for name in MAPS}, 9.2)
    note(ledger, UNIQUE, "late", "l", 9.5)
    assert find_lost(ledger, {"late"}, WINDOW) == {}


def test_a_hole_in_the_end_of_a_partition_is_found() -> None:
    ledger = Ledger()
    keys = [str(number) for number in range(40) if partition_of(to_data(str(number)), 3) == 0][:4]
    for index, key in enumerate(keys):
        note(ledger, UNIQUE, key, key, 9.2 + index / 5)
    (other,) = [str(number) for number in range(40) if partition_of(to_data(str(number)), 3) == 1][:1]
    note(ledger, UNIQUE, other, other, 9.9)

    def holes(*there: str) -> list[str]:
        lost = find_lost(ledger, there, WINDOW)
        return [violation.key for violation in find_holes(ledger, there, lost, 10.5, 3)]

    assert holes(*keys, other) == holes(*keys[:2], other) == holes(other) == []
    assert holes(keys[0], keys[2], other) == [keys[2]]
    assert holes(*keys[1:]) == keys[1:]


def test_tokens_grow_where_one_was_there_before_the_other_was_asked_for() -> None:
    def shown(*tokens: tuple[int, float, float]) -> list[str]:
        return [each.found for each in check_tokens({"lock": [LedgerToken(*token) for token in tokens]})]

    assert shown((1, 0.0, 1.0), (2, 1.5, 2.0), (7, 3.0, 4.0)) == []
    assert shown((2, 0.0, 2.0), (1, 1.5, 1.8)) == [], "asked for at the same time"
    assert shown((5, 0.0, 1.0), (5, 1.5, 2.0), (4, 3.0, 4.0), (6, 5.0, 6.0)) == ["5", "4"]
