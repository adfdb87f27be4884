"""What a search found, summed up over its histories: from the rows in its store, whenever they were played."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from phalanx.common.errors import UsageError
from phalanx.rules import ids_of
from phalanx_proof.search.searching import Failing, SearchPlan
from phalanx_proof.search.store import Store, decoded_counts
from phalanx_proof.sim.code_digest import rules_in_code
from phalanx_proof.sim.durations import HANGS, PAUSES, REMOVED_RUNNING, distribution
from phalanx_proof.sim.result import digest_of
from phalanx_proof.sim.settings import Configuration

SUMMED = ("simulated_ms", "operations", "messages", "inputs", "cpu_s")
COUNTED = ("rules", "events", "faults", "outcomes", "counts")
_ROWS = ("seed", "digest", "violations", "violated", "healed_after_ms", "detected_after_ms", *SUMMED)


class ViolationGroup(msgspec.Struct):
    """The histories of one configuration."""

    configuration: Configuration
    histories: int = 0
    failing: int = 0
    totals: dict[str, float] = {}
    counted: dict[str, Counter[str]] = {}
    """Kind of count to what was counted."""
    healed_after_ms: list[int] = []
    detected_after_ms: list[int] = []

    @property
    def hangs(self) -> int:
        return self.counted["counts"][HANGS]

    @property
    def pauses(self) -> int:
        return self.counted["counts"][PAUSES]

    @property
    def removed_running(self) -> int:
        return self.counted["counts"][REMOVED_RUNNING]


class BrokenRule(msgspec.Struct, frozen=True):
    """How often one rule was exercised: an id, or the text that stands for one of our own."""

    rule: str
    times: int
    histories: int
    """In which it was, at least once."""


class SearchFindings(msgspec.Struct):
    """All of it."""

    groups: list[ViolationGroup]
    failing: list[Failing]
    violations: int
    digest: str
    """Of all histories, in the order of configurations and seeds: the same however they were played."""
    rules: list[BrokenRule]
    """All that histories exercised or the code names, the least exercised first."""

    @property
    def histories(self) -> int:
        return sum(group.histories for group in self.groups)

    @property
    def never(self) -> list[str]:
        """Rules that no history exercised."""
        return [each.rule for each in self.rules if not each.times]

    def total(self, name: str) -> float:
        return sum(group.totals[name] for group in self.groups)

    def counted(self, kind: str) -> dict[str, int]:
        total: Counter[str] = Counter()
        for group in self.groups:
            total.update(group.counted[kind])
        return dict(sorted(total.items()))

    def distribution(self, name: str) -> dict[str, int]:
        """Return the distribution of `healed_after_ms` or `detected_after_ms`."""
        return distribution([each for group in self.groups for each in getattr(group, name)])


def find(plan: SearchPlan, store: Store) -> SearchFindings:
    """Sum up what the store has of a plan. Raises `UsageError` when it holds a history twice."""
    groups = {(str(each.profile), each.label): _group(each) for each in plan.configurations}
    rules = _Rules()
    digests: dict[tuple[str, str], list[tuple[int, str]]] = {key: [] for key in groups}
    failing: list[Failing] = []
    violations = 0
    for table in store.rows([*_ROWS, *COUNTED]):
        of_seeds = table.filter((pc.field("seed") >= plan.seeds.start) & (pc.field("seed") < plan.seeds.stop))
        for key, group in groups.items():
            own = of_seeds.filter((pc.field("profile") == key[0]) & (pc.field("configuration") == key[1]))
            if own.num_rows:
                _add(group, own)
                rules.add(own["rules"])
                digests[key] += zip(own["seed"].to_pylist(), own["digest"].to_pylist(), strict=True)
                failing += _failing_of(group.configuration, own)
                violations += pc.sum(own["violations"]).as_py()
    ordered = [each for key, found in digests.items() for each in _in_order(key, found)]
    failing.sort(key=lambda each: (plan.configurations.index(each.configuration), each.seed))
    return SearchFindings(list(groups.values()), failing, violations, digest_of(ordered), rules.all())


def _group(configuration: Configuration) -> ViolationGroup:
    return ViolationGroup(
        configuration, totals=dict.fromkeys(SUMMED, 0), counted={kind: Counter() for kind in COUNTED},
        healed_after_ms=[], detected_after_ms=[],
    )  # fmt: skip


def _add(group: ViolationGroup, table: pa.Table) -> None:
    group.histories += table.num_rows
    for name in SUMMED:
        group.totals[name] += pc.sum(table[name]).as_py()
    for kind in COUNTED:
        summed = decoded_counts(table[kind]).group_by("key").aggregate([("value", "sum")]).to_pydict()
        group.counted[kind].update(dict(zip(summed["key"], summed["value_sum"], strict=True)))
    group.failing += pc.sum(pc.greater(table["violations"], 0).cast(pa.int64())).as_py()
    group.healed_after_ms += table["healed_after_ms"].to_pylist()
    group.detected_after_ms += pc.list_flatten(table["detected_after_ms"]).to_pylist()


def _failing_of(configuration: Configuration, table: pa.Table) -> list[Failing]:
    rows: list[dict[str, Any]] = table.filter(pc.field("violations") > 0).to_pylist()
    return [Failing(configuration, row["seed"], row["digest"], row["violated"], row["inputs"]) for row in rows]


def _in_order(key: tuple[str, str], found: list[tuple[int, str]]) -> list[tuple[int, str]]:
    found.sort()
    for one, other in pairwise(found):
        if one[0] == other[0]:
            raise UsageError(
                f"--out: the history of seed {one[0]} ({' '.join(key).strip()}) is there twice: a file of results was "
                f"copied; remove it"
            )
    return found


class _Rules:
    """Adds up what events named: a text can name several rules, and several texts one rule."""

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()
        self._histories: Counter[str] = Counter()

    def add(self, column: pa.ChunkedArray) -> None:
        entries = decoded_counts(column)
        named = [(text, rule) for text in pc.unique(entries["key"]).to_pylist() for rule in rules_of(text)]
        names = pa.table(
            {
                "key": pa.array([text for text, _ in named], pa.string()),
                "rule": pa.array([r for _, r in named], pa.string()),
            }
        )
        once = entries.join(names, "key").group_by(["row", "rule"]).aggregate([("value", "sum")])
        summed = once.group_by("rule").aggregate([("value_sum", "sum"), ("value_sum", "count")]).to_pydict()
        self._times.update(dict(zip(summed["rule"], summed["value_sum_sum"], strict=True)))
        self._histories.update(dict(zip(summed["rule"], summed["value_sum_count"], strict=True)))

    def all(self) -> list[BrokenRule]:
        known = {rule for text in rules_in_code() for rule in rules_of(text)}
        ordered = sorted(known | self._times.keys(), key=lambda rule: (self._times[rule], rule))
        return [BrokenRule(rule, self._times[rule], self._histories[rule]) for rule in ordered]


def rules_of(text: str) -> list[str]:
    """Return the rules that an event's text names: ids, or the text itself where it names none."""
    return sorted(set(ids_of(text))) or [text]
