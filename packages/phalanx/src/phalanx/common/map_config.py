"""Settings of maps in the configuration of a member, and in which way they are not those of its cluster."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.common.backups import BackupCount
from phalanx.common.errors import UsageError
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import JOURNAL_BYTES, MAP_SETTINGS, JournalSettings, MapChange, MapSettings, Protection


class MapConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a map in the configuration of a member; what is left out is as usual. docs/configuration.md says what each does;
    `Config` raises `UsageError` for a value that cannot be used."""

    backup_count: int | None = None
    """Synchronous backups of each entry; None: as many as `Config.backup_count`."""
    async_backup_count: int | None = None
    """Backups for which no write waits; None: as many as `Config.async_backup_count`."""
    minimum_members: int | None = None
    """The map is refused while fewer members hold data; 0 or None: never."""
    majority: bool | None = None
    """Whether the map is refused on a side without the majority of the last stable member list; None: no."""
    protects: str = "reads and writes"
    """What is refused then: `reads`, `writes` or `reads and writes`."""
    merge_policy: str | None = None
    """Which of two versions remains when two sides of a cut merge; None: `latest-update`."""
    journal_capacity: int | None = None
    """Events that the journal of each partition keeps; 0 or None: no journal."""
    journal_max_bytes: int = JOURNAL_BYTES
    """Bytes of keys and values that the journal of each partition keeps at most."""
    max_entries: int | None = None
    """Entries that the map can have; what is more is evicted. 0 or None: any number."""
    max_bytes: int | None = None
    """Bytes of keys and values that the map can have; what is more is evicted. 0 or None: any number."""
    eviction: str | None = None
    """Which entries are evicted first: `oldest`, `lru`, `lfu` or `soonest-to-expire`; None: `oldest`."""
    max_idle_ms: int | None = None
    """How long an entry lives while nobody reads or writes it, unless it is stored with an idle time of its own. 0 or
    None: without end."""
    dicts: str | None = None
    """How programs store dicts: `rows`; `json`, which programs in all languages read; or `any`, as each program says. None: `any`."""
    durability: str | None = None
    """What a write waits for, where members have a `data_dir`: `interval`, for no sync; `always`, for the syncs of all that must
    confirm it. None: `interval`."""

    def as_change(self, usual: BackupCount) -> MapChange:
        """Convert the configuration to a change of settings. `usual`: the backup counts where it names none.

        Raises `UsageError` if `protects` has an unknown value.
        """
        backups = protection = journal = None
        if self.backup_count is not None or self.async_backup_count is not None:
            synchronous = usual.synchronous if self.backup_count is None else self.backup_count
            asynchronous = usual.asynchronous if self.async_backup_count is None else self.async_backup_count
            backups = BackupCount(synchronous, asynchronous)
        if self.protects not in ("reads", "writes", "reads and writes"):
            raise UsageError(f"protects: {self.protects!r} is not 'reads', 'writes' or 'reads and writes'")
        if self.minimum_members is not None or self.majority is not None:
            reads, writes = "reads" in self.protects, "writes" in self.protects
            protection = Protection(self.minimum_members or 0, bool(self.majority), reads, writes)
        if self.journal_capacity is not None:
            journal = JournalSettings(self.journal_capacity, self.journal_max_bytes)
        simple = {name: getattr(self, name) for name, setting in MAP_SETTINGS.items() if setting.is_simple}
        return MapChange(backups, protection, journal=journal, **simple)


def plan_of(usual: BackupCount, maps: Mapping[str, MapConfig]) -> MapPlan:
    """Return the settings of a cluster whose first member was configured so. Raises `UsageError` for impossible ones."""
    plan = MapPlan(0, MapSettings(usual))
    for name, config in maps.items():
        try:
            plan = plan.with_change(name or "*", config.as_change(usual))
        except UsageError as error:
            raise UsageError(f"maps: {name!r}: {error}") from None
    return MapPlan(0, plan.usual, plan.maps)


def differences(configured: MapPlan, present: MapPlan) -> list[str]:
    """Return one sentence for each setting of a member's configuration that is not the cluster's."""
    usual, default = msgspec.structs.asdict(configured.usual), msgspec.structs.asdict(MapSettings())
    changed = {setting: value for setting, value in usual.items() if value != default[setting]}
    found = []
    for name, wished in (("*", changed), *((name, change.values) for name, change in configured.maps)):
        has = present.usual if name == "*" else present.of(name)
        for setting, value in wished.items():
            if value != (there := getattr(has, setting)):
                about = MAP_SETTINGS[setting]
                shown = setting if about.most else about.words  # numbers are told as a configuration has them
                found.append(f"{name}: {shown} {value}, and the cluster's is {there}")
    return found
