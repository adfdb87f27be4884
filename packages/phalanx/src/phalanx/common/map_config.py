"""Settings of maps in the configuration of a member, and in which way they are not those of its cluster."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.common.backups import BackupCount
from phalanx.common.errors import UsageError
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import JOURNAL_BYTES, JournalSettings, MapChange, MapSettings, Protection


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
    """Entries that the map may have; what is more is evicted. 0 or None: any number."""
    max_bytes: int | None = None
    """Bytes of keys and values that the map may have; what is more is evicted. 0 or None: any number."""
    eviction: str | None = None
    """Which entries are evicted first: `oldest`, `lru`, `lfu` or `soonest-to-expire`; None: `oldest`."""
    max_idle_ms: int | None = None
    """How long an entry lives while nobody reads or writes it, unless it is stored with an idle time of its own. 0 or
    None: for ever."""
    dicts: str | None = None
    """How programs store dicts: `rows`; `json`, which programs in all languages read; or `any`, as each program says. None: `any`."""

    def as_change(self, usual: BackupCount) -> MapChange:
        """Raises `UsageError` for what `protects` cannot be."""
        backups = protection = journal = None
        if self.backup_count is not None or self.async_backup_count is not None:
            synchronous = usual.synchronous if self.backup_count is None else self.backup_count
            asynchronous = usual.asynchronous if self.async_backup_count is None else self.async_backup_count
            backups = BackupCount(synchronous, asynchronous)
        if self.protects not in ("reads", "writes", "reads and writes"):
            raise UsageError(f"protects: {self.protects!r} is none of 'reads', 'writes' and 'reads and writes'")
        if self.minimum_members is not None or self.majority is not None:
            reads, writes = "reads" in self.protects, "writes" in self.protects
            protection = Protection(self.minimum_members or 0, bool(self.majority), reads, writes)
        if self.journal_capacity is not None:
            journal = JournalSettings(self.journal_capacity, self.journal_max_bytes)
        return MapChange(
            backups, protection, self.merge_policy, journal, self.max_entries, self.max_bytes, self.eviction,
            self.max_idle_ms, self.dicts,
        )  # fmt: skip


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
    found = []
    wanted, default = configured.usual, MapSettings()
    usual = MapChange(
        wanted.backups if wanted.backups != default.backups else None,
        wanted.protection if wanted.protection != default.protection else None,
        wanted.merge_policy if wanted.merge_policy != default.merge_policy else None,
        max_entries=wanted.max_entries if wanted.max_entries != default.max_entries else None,
        max_bytes=wanted.max_bytes if wanted.max_bytes != default.max_bytes else None,
        eviction=wanted.eviction if wanted.eviction != default.eviction else None,
        max_idle_ms=wanted.max_idle_ms if wanted.max_idle_ms != default.max_idle_ms else None,
        dicts=wanted.dicts if wanted.dicts != default.dicts else None,
    )
    for name, wish in (("*", usual), *configured.maps):
        has = present.usual if name == "*" else present.of(name)
        for what, wish_for, there in (
            ("backups", wish.backups, has.backups),
            ("protection", wish.protection, has.protection),
            ("merge policy", wish.merge_policy, has.merge_policy),
            ("journal", wish.journal, has.journal),
            ("max_entries", wish.max_entries, has.max_entries),
            ("max_bytes", wish.max_bytes, has.max_bytes),
            ("eviction", wish.eviction, has.eviction),
            ("max_idle_ms", wish.max_idle_ms, has.max_idle_ms),
            ("dicts", wish.dicts, has.dicts),
        ):
            if wish_for is not None and wish_for != there:
                found.append(f"{name}: {what} {wish_for}, and the cluster's is {there}")
    return found
