"""What can be set for a map: its backups, its protection against a cluster that has become too small, the policy by which its
entries are merged after a split, its bounds (entries and bytes) with the policy of its evictions, the idle time of its
entries, how programs store dicts in it, its journal, the schema of its rows, and what its writes wait for on disk.

Which settings hold for which map: `map_plan`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from phalanx.common.backups import BackupCount, check_backups
from phalanx.common.errors import UsageError
from phalanx.common.hidden_maps import is_hidden
from phalanx.common.ids import MAX_TTL_MS, Millis
from phalanx.common.map_schema import MAX_SCHEMA_LENGTH, read_schema
from phalanx.common.words import check_text, counted

MAX_MAP_NAME_LENGTH = 200
"""The most characters in the name of a map: it goes along with every request and every write to a backup."""
MAX_TEXT_LENGTH = 4_096
"""The most characters in any text of a request: longer ones are refused while the frame is decoded."""
MAX_MINIMUM = 10_000
"""The largest minimum of members; no cluster has more."""
MERGE_POLICIES = (
    "latest-update", "put-if-absent", "latest-access", "higher-hits", "expiration-time", "discard", "pass-through",
)  # fmt: skip
DEFAULT_MERGE_POLICY = "latest-update"
MAX_JOURNAL_EVENTS = 10_000_000
"""The largest capacity of a journal in one partition, in events."""
JOURNAL_BYTES = 16 * 1024 * 1024
"""The bytes of events in one partition, unless another number is set."""
MAX_BOUND = 1_000_000_000_000
"""The largest bound of a map, in entries; no cluster has more."""
MAX_BOUND_BYTES = 2**60
"""The largest bound of a map, in bytes; no cluster has more."""
Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_LENGTH)]
SchemaText = Annotated[str, msgspec.Meta(max_length=MAX_SCHEMA_LENGTH)]


class EvictionPolicy(enum.StrEnum):
    """Which entries of a bounded map are evicted first."""

    OLDEST = "oldest"
    """Those that were written longest ago."""
    LRU = "lru"
    """Those that were neither read nor written for the longest time."""
    LFU = "lfu"
    """Those that were read least often."""
    SOONEST = "soonest-to-expire"
    """Those that expire next; then, by `oldest`, those that never expire."""


EVICTION_POLICIES = tuple(policy.value for policy in EvictionPolicy)


class DictFormat(enum.StrEnum):
    """How programs store dicts in a map."""

    ANY = "any"
    """As each program says; as rows if it says nothing."""
    ROWS = "rows"
    """As rows, which only programs of Phalanx and Spark read."""
    JSON = "json"
    """As JSON, which programs in all languages read."""


DICT_FORMATS = tuple(each.value for each in DictFormat)


class Durability(enum.StrEnum):
    """What a write waits for, where members have folders."""

    INTERVAL = "interval"
    """For no sync: one begins a fifth of a second later at most."""
    ALWAYS = "always"
    """For the syncs of the owner and of each synchronous backup."""


DURABILITIES = tuple(each.value for each in Durability)


class Share(NamedTuple):
    """What one partition can hold of a bounded map; 0: any number. One entry can always stay."""

    entries: int
    bytes: int

    @property
    def is_on(self) -> bool:
        return self.entries > 0 or self.bytes > 0

    def is_reached(self, entries: int, size: int) -> bool:
        """Return whether one more entry of average size would exceed the limit of this partition. `size`: bytes of all entries."""
        return 0 < self.entries <= entries or 0 < self.bytes < size + size // max(entries, 1)

    def excess(self, entries: int, size: int) -> tuple[int, int]:
        """Return by how many entries, and by how many bytes, a partition that holds so much exceeds its share; neither is negative."""
        return (
            max(entries - self.entries, 0) if self.entries else 0,
            max(size - self.bytes, 0) if self.bytes and entries > 1 else 0,
        )


class Protection(msgspec.Struct, frozen=True, array_like=True):
    """When a map refuses to be used because its side of the cluster is too small; as it is here: never."""

    minimum: int = 0
    """The map refuses calls while fewer members hold data. 0: never; 1 is met by every owner."""
    majority: bool = False
    """The map refuses calls on a side without the majority of the last stable view."""
    reads: bool = True
    writes: bool = True
    """Whether it refuses reads, and whether it refuses writes."""

    @property
    def is_on(self) -> bool:
        """Whether it can ever refuse anything."""
        return (self.minimum > 0 or self.majority) and (self.reads or self.writes)

    def __str__(self) -> str:
        if not self.is_on:
            return "off"
        wanted = [f"at least {counted(self.minimum, 'member')}"] if self.minimum else []
        wanted += ["the majority of the last stable view"] if self.majority else []
        return f"{' and '.join(wanted)} for {self.of_what}"

    @property
    def of_what(self) -> str:
        return " and ".join(what for what, is_it in (("reads", self.reads), ("writes", self.writes)) if is_it)


class JournalSettings(msgspec.Struct, frozen=True, array_like=True):
    """How many events of a map each partition keeps in its journal. By default a map has no journal."""

    capacity: int = 0
    """Events in one partition; 0: no journal."""
    max_bytes: int = JOURNAL_BYTES
    """The most bytes of events in one partition, with keys and values. The latest event is always kept."""

    @property
    def is_on(self) -> bool:
        return self.capacity > 0

    def __str__(self) -> str:
        return f"{self.capacity} events or {self.max_bytes} bytes in a partition" if self.is_on else "off"


NO_JOURNAL = JournalSettings()


class MapSettings(msgspec.Struct, frozen=True, array_like=True):
    """What holds for one map."""

    backups: BackupCount = BackupCount(1)
    protection: Protection = Protection()
    merge_policy: str = DEFAULT_MERGE_POLICY
    journal: JournalSettings = NO_JOURNAL
    max_entries: int = 0
    """The most entries in all partitions together; 0: any number."""
    max_bytes: int = 0
    """The most bytes of keys and values in all partitions together; 0: any number."""
    eviction: str = EvictionPolicy.OLDEST.value
    """Which entries are evicted first (`EvictionPolicy`)."""
    max_idle_ms: Millis = 0
    """Entries expire when nobody uses them for so long, unless they have an idle time of their own; 0: they do not."""
    dicts: str = DictFormat.ANY.value
    """How programs store dicts (`DictFormat`)."""
    schema: str = ""
    """The schema of the map's rows as JSON (`map_schema`); empty: none."""
    durability: str = Durability.INTERVAL.value
    """What a write waits for, where members have folders (`Durability`)."""

    @property
    def is_bounded(self) -> bool:
        return self.max_entries > 0 or self.max_bytes > 0

    def share(self, partition_count: int) -> Share:
        """Return what one partition can hold, at least one entry: together no more than the map can."""
        entries = max(self.max_entries // partition_count, 1) if self.max_entries else 0
        return Share(entries, max(self.max_bytes // partition_count, 1) if self.max_bytes else 0)

    def with_change(self, change: MapChange) -> MapSettings:
        """Return these settings where the change says nothing else."""
        return msgspec.structs.replace(self, **change.values)


class MapChange(msgspec.Struct, frozen=True, array_like=True):
    """Aspects that were set for a name; None: not this one."""

    backups: BackupCount | None = None
    protection: Protection | None = None
    merge_policy: Text | None = None
    journal: JournalSettings | None = None
    max_entries: int | None = None
    max_bytes: int | None = None
    eviction: Text | None = None
    max_idle_ms: Millis | None = None
    dicts: Text | None = None
    schema: SchemaText | None = None
    durability: Text | None = None

    @property
    def values(self) -> dict[str, Any]:
        """Return the aspects that were set, by name."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}

    def over(self, other: MapChange) -> MapChange:
        """Return these aspects, and the other's if there is none."""
        return msgspec.structs.replace(other, **self.values)


class MapSetting(NamedTuple):
    """What people are told of one aspect of a map, and which values it can have if it is one number or one word of several."""

    words: str
    """What it is called in sentences and lists."""
    most: int = 0
    """The largest number; 0: it is not a number."""
    choices: tuple[str, ...] = ()
    """The words that it can be; empty: it is not one of several words."""
    zero: str = ""
    """What 0, or an empty text, is called."""
    shown: Callable[[Any], str] = str
    """Return any other value in words."""

    @property
    def is_simple(self) -> bool:
        """Whether it is one number, or one word, under the same name wherever it is given or told."""
        return self.most > 0 or bool(self.choices)

    def in_words(self, value: Any) -> str:
        """Return a value as people read it."""
        return self.zero if self.zero and not value else self.shown(value)


MAP_SETTINGS: Final = {
    "backups": MapSetting("backups"),
    "protection": MapSetting("protection"),
    "merge_policy": MapSetting("merge policy", choices=MERGE_POLICIES),
    "max_entries": MapSetting("max entries", most=MAX_BOUND, zero="any number"),
    "max_bytes": MapSetting("max bytes", most=MAX_BOUND_BYTES, zero="any number"),
    "eviction": MapSetting("eviction", choices=EVICTION_POLICIES),
    "max_idle_ms": MapSetting(
        "max idle", most=MAX_TTL_MS, zero="for ever", shown=lambda idle_ms: f"{idle_ms / 1000:g} seconds"
    ),
    "dicts": MapSetting("dicts", choices=DICT_FORMATS),
    "durability": MapSetting("durability", choices=DURABILITIES),
    "schema": MapSetting("schema", zero="none", shown=lambda text: str(read_schema(text))),
    "journal": MapSetting("journal"),
}
"""All aspects of a map, by their fields in `MapSettings` and `MapChange`, in the order in which they are shown. From this table follow
what is refused, what commands show and set, what JSON has, and which differences members tell; a simple one is a field of the same
name in `MapConfig`, too."""


def check_name(name: str) -> None:
    """Raise `UsageError` for what cannot name a map: it would be in every table from then on."""
    if not 0 < len(name) <= MAX_MAP_NAME_LENGTH:
        raise UsageError(f"a text of {len(name)} characters cannot name a map: give 1 to {MAX_MAP_NAME_LENGTH}")
    check_text(name, "map name")
    if is_hidden(name):
        raise UsageError("this is the name of a hidden map: give the name of the map to which it belongs")


def check_change(name: str, change: MapChange) -> None:
    """Raise `UsageError` for a name or settings that no map can have."""
    if len(name) > MAX_MAP_NAME_LENGTH:
        raise UsageError(f"a text of {len(name)} characters cannot name a map: give at most {MAX_MAP_NAME_LENGTH}")
    check_text(name, "map name")
    if not change.values:
        raise UsageError(f"nothing to change: give one of {', '.join(each.words for each in MAP_SETTINGS.values())}")
    for setting, value in change.values.items():
        _check_value(setting, MAP_SETTINGS[setting], value)
    if change.backups is not None:
        check_backups(change.backups.synchronous, change.backups.asynchronous)
    protection = change.protection
    if protection is not None and not 0 <= protection.minimum <= MAX_MINIMUM:
        raise UsageError(f"minimum_members: {protection.minimum} is not between 0 (none) and {MAX_MINIMUM}")
    if protection is not None and not (protection.reads or protection.writes):
        raise UsageError("a protection of neither reads nor writes protects nothing: give reads, writes or both")
    if change.journal is not None:
        _check_journal(name, change.journal)
    if change.schema:
        if not name or name.endswith("*"):
            raise UsageError(f"a schema is of one map: give the map's own name instead of {name or '*'!r}")
        read_schema(change.schema)


def _check_value(name: str, setting: MapSetting, value: Any) -> None:
    if setting.choices and value not in setting.choices:
        raise UsageError(f"{name}: {value!r} is not one of {', '.join(setting.choices)}")
    if setting.most and not 0 <= value <= setting.most:
        raise UsageError(f"{name}: {value} is not between 0 ({setting.zero}) and {setting.most}")


def _check_journal(name: str, journal: JournalSettings) -> None:
    if journal.is_on and (not name or name.endswith("*")):
        raise UsageError(f"a journal is of one map: give the map's own name instead of {name or '*'!r}")
    if not 0 <= journal.capacity <= MAX_JOURNAL_EVENTS:
        raise UsageError(f"journal capacity: {journal.capacity} is not between 0 (off) and {MAX_JOURNAL_EVENTS} events")
    if journal.max_bytes <= 0:
        raise UsageError(f"journal max_bytes: {journal.max_bytes} has no room for an event: give more than 0")
