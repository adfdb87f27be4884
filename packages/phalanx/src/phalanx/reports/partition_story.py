"""What happened to one partition, out of what many members decided: who held it when, and why that changed.

What each row of the table was is worked out forwards: from the assignment, from what the master said with each commit,
and from the departures in between. Where nobody remembers the beginning, the first migration that is remembered tells
who held the partition before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.common.ids import MemberId, address_of, incarnation_of
from phalanx.common.words import counted
from phalanx.reports.event_words import show_value
from phalanx.reports.story import Decision, StorySource

Held = tuple[str | None, ...]
"""The holders of a partition by replica index; None: nobody holds that index."""

ABOUT_MANY = ("PartitionsAssigned", "PartitionsRepaired", "PartitionsDivided", "TableSearchEnded")
"""Decisions about the whole table, among which are some about the partition."""

_RANKS = {
    "MigrationStarted": 0, "MigrationCopied": 1, "PartitionSealed": 2,
    "MigrationCommitted": 3, "MigrationRolledBack": 3, "MigrationFinalized": 4,
}  # fmt: skip
"""The causal order of the decisions about one migration, whatever the members' clocks say: for example, the destination is
told to commit before the master commits."""

KINDS = {
    "move": "DL-44", "copy": "DL-46", "shift-up": "DL-50", "shift-down": "DL-47", "shift-up-down": "DL-37",
    "clear": "DL-62",
}  # fmt: skip


class Row(msgspec.Struct, frozen=True):
    """The holders of a partition, and since when they hold it."""

    since_ms: int | None
    """None: for longer than anybody remembers."""
    replicas: Held


class PartitionStory:
    """The decisions about one partition, and the rows that they made."""

    def __init__(
        self, source: StorySource, partition: int, now: Held | None = None, version: int | None = None
    ) -> None:
        """`now`, `version`: of the partition by the table of a member that was asked, if one was."""
        self.source = source
        self.partition = partition
        self.version = version
        self.decisions: list[Decision] = []
        self.rows: list[Row] = []
        self._held_after: dict[int, Held] = {}
        """Decision to the row that it made, where it is known."""
        self._names = _short_names(source)
        row: Held | None = None
        for decision in in_causal_order(source.decisions):
            if not self._concerns(decision, row):
                continue
            self.decisions.append(decision)
            before, row = row, self._row_after(decision, row)
            if row is not None and row != before:
                self._held_after[id(decision)] = row
                if before is None and not self.rows and decision.event == "MigrationCommitted":
                    self.rows.append(Row(None, _before(row, decision.fields)))
                self.rows.append(Row(decision.at_ms, row))
        if now is not None and now != row:
            self.rows.append(Row(None, now))

    # --- what is about it ------------------------------------------------------------------------------------------

    def _concerns(self, decision: Decision, row: Held | None) -> bool:
        fields, partition = decision.fields, self.partition
        match decision.event:
            case "PartitionsAssigned" | "PartitionsDivided":
                return True
            case "PartitionsRepaired":
                gone = fields.get("gone", ())
                is_held_by_gone = row is not None and any(member in gone for member in row)
                return is_held_by_gone or partition in (*fields.get("promoted", ()), *fields.get("lost", ()))
            case "TableSearchEnded":
                return partition in (*fields.get("rolled_back", ()), *fields.get("adopted", ()))
            case _:
                return bool(fields.get("partition") == partition)

    def _row_after(self, decision: Decision, row: Held | None) -> Held | None:
        fields = decision.fields
        match decision.event:
            case "PartitionsAssigned":
                rows, members = fields.get("rows") or (), fields.get("members") or ()
                return tuple(members[index] for index in rows[self.partition]) if self.partition < len(rows) else None
            case "PartitionsDivided" if self.partition >= int(fields.get("before", 0)):
                return None  # what happened to the one that it comes from is told of that one's number
            case "MigrationCommitted":
                return tuple(fields["replicas"]) if fields.get("replicas") else None
            case "PartitionLost":
                return tuple(fields["replicas_now"]) if fields.get("replicas_now") else None
            case "PartitionsRepaired" if self.partition in fields.get("lost", ()):
                return row if row is not None and not any(member in fields["gone"] for member in row) else None
            case "PartitionsRepaired" if row is not None:
                return _without(row, fields.get("gone", ()))
            case "TableSearchEnded" if self.partition in fields.get("adopted", ()):
                return None
            case _:
                return row

    # --- in words --------------------------------------------------------------------------------------------------

    def name(self, member: object) -> str:
        """Name a member as lines show it, with its incarnation if its address has had several."""
        return self._names.get(str(member), address_of(MemberId(str(member))))

    def held(self, row: Held) -> str:
        """List the members of a row, the owner first; a missing replica shows as such."""
        if not any(row):
            return "nobody"
        return ", ".join(self.name(member) if member is not None else "(missing)" for member in row)

    def words(self, decision: Decision) -> str:
        """Return the decision in words."""
        fields = {name: show_value(value, self.name) for name, value in decision.fields.items()}
        try:
            said = self._said(decision, fields)
        except KeyError:  # another version's event: in its own words
            rest = ", ".join(f"{name}={value}" for name, value in fields.items() if name not in ("rule", "reason"))
            said = f"{decision.event} {rest}"
        after = self._held_after.get(id(decision))
        return f"{said}; held by {self.held(after)}" if after is not None else said

    def _said(self, decision: Decision, fields: Mapping[str, str]) -> str:
        match decision.event:
            case "MigrationStarted":
                sends = f"{fields['owner']} sends" if fields["destination"] != "None" else "nothing is sent"
                return f"orders a {_ends(fields)}; {sends} (partition version {fields['partition_version']})"
            case "MigrationCopied":
                entries = int(decision.fields["entries"])
                return f"{fields['destination']} has all data: {counted(entries, 'entry', 'entries')} in {fields['took_ms']} ms"
            case "PartitionSealed":
                return f"does not serve it until it knows whether {fields['destination']} is the owner now"
            case "MigrationCommitted":
                return f"commits the {_ends(fields)}, after {fields['took_ms']} ms (table version {fields['table_version']})"
            case "MigrationRolledBack":
                return f"rolls back the {_ends(fields)} (table version {fields['table_version']})"
            case "MigrationFinalized":
                outcome = "committed" if decision.fields["committed"] else "rolled back"
                before, after = (_index(fields[f"{when}_replica_index"]) for when in ("current", "new"))
                return f"learns as the {fields['endpoint']} ({before} to {after}) that it was {outcome}"
            case "PartitionLost":
                return f"all members that held it have left ({fields['replicas']}): it begins empty"
            case "PartitionsAssigned":
                return f"assigns all {fields['partitions']} partitions (table version {fields['table_version']})"
            case "PartitionsDivided":
                from_which = self.partition % int(decision.fields["before"])
                return (
                    f"divides the {fields['before']} partitions into {fields['after']}: until then this one was a part of "
                    f"{from_which} (table version {fields['table_version']})"
                )
            case "PartitionsRepaired":
                promoted = self.partition in decision.fields["promoted"]
                done = "makes the hottest backup the owner" if promoted else "takes a member out of it"
                return f"{done}, because {fields['gone']} left (table version {fields['table_version']})"
            case "TableSearchEnded":
                what = (
                    "rolls back the migration that was under way"
                    if self.partition in decision.fields["rolled_back"]
                    else "finds replicas that follow a newer owner than that of any table, and takes that owner"
                )
                return f"as the new master {what} (table version {fields['table_version']}, of {fields['found_at']})"
            case _:
                raise KeyError(decision.event)

    def rules(self, decision: Decision) -> list[str]:
        """Return the ids of the rules of the decision; of a migration also that of its kind."""
        kind = KINDS.get(str(decision.fields.get("kind")), "") if decision.event == "MigrationStarted" else ""
        return [rule for rule in (kind, decision.rule) if rule]

    # --- the end ---------------------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """Return how often each kind of thing happened, as far as it is remembered."""
        events = Counter(decision.event for decision in self.decisions)
        repairs = [each.fields for each in self.decisions if each.event == "PartitionsRepaired"]
        return {
            "committed": events["MigrationCommitted"],
            "rolled_back": events["MigrationRolledBack"]
            + sum(self.partition in s.fields.get("rolled_back", ()) for s in self._searches()),
            "promotions": sum(self.partition in fields.get("promoted", ()) for fields in repairs),
            "losses": events["PartitionLost"],
        }

    def _searches(self) -> list[Decision]:
        return [each for each in self.decisions if each.event == "TableSearchEnded"]

    def under_way(self) -> Decision | None:
        """Return the start of a migration whose end no event shows; None: no migration runs."""
        ended = ("MigrationCommitted", "MigrationRolledBack", "TableSearchEnded", "PartitionLost")
        for decision in reversed(self.decisions):
            if decision.event in ended:
                return None
            if decision.event == "MigrationStarted":
                return decision
        return None

    def conclusion(self, when: Mapping[int, str]) -> str:
        """Return the present state in one sentence. `when`: each decision's time in words."""
        if not self.rows:
            said = f"no member reports who holds partition {self.partition}"
        elif not any(self.rows[-1].replicas) and not self.version:
            said = (
                f"partition {self.partition} is not assigned yet: the master assigns it when a caller first uses data"
            )
        else:
            row = self.rows[-1]
            since = next(
                (when[id(d)] for d in reversed(self.decisions) if self._held_after.get(id(d)) == row.replicas), ""
            )
            version = f" (version {self.version})" if self.version is not None else ""
            said = f"partition {self.partition}{version} is held by {self.held(row.replicas)}{f', since {since}' if since else ''}"
        open_one = self.under_way()
        if open_one is not None:
            said += f"; a {open_one.fields.get('kind')} is under way, since {when[id(open_one)]}"
        counts = self.counts()
        happened = [f"{count} {_counted(name, count)}" for name, count in counts.items() if count]
        return f"{said}. Migrations and losses remembered: {', '.join(happened) or 'none'}"


def _counted(name: str, count: int) -> str:
    """Return the name of a counter, in the singular for one."""
    words = name.replace("_", " ")
    return words.removesuffix("es" if words == "losses" else "s") if count == 1 else words


def in_causal_order(decisions: list[Decision]) -> list[Decision]:
    """Sort decisions by time, but those about one migration by cause and effect."""
    groups: dict[tuple[Any, Any], list[Decision]] = {}
    for decision in decisions:
        if decision.event in _RANKS:
            key = decision.fields.get("partition"), decision.fields.get("partition_version")
            groups.setdefault(key, []).append(decision)
    moved_us: dict[int, int] = {}
    for group in groups.values():
        at_us = 0
        for decision in sorted(group, key=lambda each: (_rank(each), each.at_ms)):
            # In one millisecond, behind its cause; but the next migration's order stays behind this one's commit.
            at_us = max(at_us + 1, decision.at_ms * 1000)
            moved_us[id(decision)] = at_us
    return sorted(decisions, key=lambda decision: moved_us.get(id(decision), decision.at_ms * 1000))


def _rank(decision: Decision) -> int:
    is_destination = decision.event == "MigrationFinalized" and decision.fields.get("endpoint") == "destination"
    return _RANKS["MigrationCommitted"] if is_destination else _RANKS[decision.event]


def _short_names(source: StorySource) -> dict[str, str]:
    known = source.known()
    addresses = Counter(map(address_of, known))
    return {
        member: f"{address_of(member)}/{incarnation_of(member)[:8]}" if addresses[address_of(member)] > 1 else address_of(member)
        for member in known
    }  # fmt: skip


def _index(text: str) -> str:
    return "none" if text == "-1" else text


def _ends(fields: Mapping[str, str]) -> str:
    """Describe the kind of a migration, and the indexes of both ends before and after."""
    ends = [
        f"{fields[end]} from {_index(fields[f'{end}_current_index'])} to {_index(fields[f'{end}_new_index'])}"
        for end in ("source", "destination")
        if fields[end] != "None"
    ]
    return f"{fields['kind']}: {', '.join(ends)}"


def _without(row: Held, gone: Any) -> Held:
    """Return the row without these members. The hottest replica that is left becomes the owner."""
    slots = [None if member in gone else member for member in row]
    hottest = next((index for index, member in enumerate(slots) if member is not None), 0)
    if slots and hottest:
        slots[0], slots[hottest] = slots[hottest], None
    return _trimmed(slots)


def _before(row: Held, fields: Mapping[str, Any]) -> Held:
    """Return the row as it was before a committed migration."""
    ends = [(fields[end], fields[f"{end}_current_index"]) for end in ("source", "destination")]
    slots: list[str | None] = [None if member in [end for end, _ in ends] else member for member in row]
    for member, index in ends:
        if member is not None and index >= 0:
            slots += [None] * (index + 1 - len(slots))
            slots[index] = member
    return _trimmed(slots)


def _trimmed(slots: list[str | None]) -> Held:
    while slots and slots[-1] is None:
        slots.pop()
    return tuple(slots)
