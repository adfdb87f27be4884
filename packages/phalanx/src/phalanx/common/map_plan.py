"""The settings of all maps together: a value that travels with the partition table, and that only the master changes.

Each aspect of a map (`map_settings`), but journals and schemas, is looked up separately, in this order:

1. the setting for the map's own name;
2. the setting for a name that ends with `*` and has the beginning of the map's name: of several, the longest;
3. the usual one, which is that of `*` alone.

A journal is of one map, and set for its own name only: it begins in every partition when it is set, whether or not the
map has entries. So is a schema, which writers store (`map_schema`).

So a change of one aspect of a map does not change its others, and aspects without a setting of their own follow the usual
ones. A map need not exist to have settings. A hidden map (`hidden_maps`) has those of the map that it is for.

The plan also says by which job the content of a map was replaced last, and which is about to (`partition.coordinator.map_replacement`).
"""

from __future__ import annotations

import msgspec

from phalanx.common.backups import BackupCount
from phalanx.common.errors import UsageError
from phalanx.common.hidden_maps import target_of
from phalanx.common.map_settings import (
    DictFormat,
    Durability,
    JournalSettings,
    MapChange,
    MapSettings,
    Protection,
    SchemaText,
    Text,
    check_change,
)

MAX_REPLACING_QUERIES = 8
"""The most queries of one map whose last batch is remembered."""
MAX_NAMED_SETTINGS = 1_000
"""The most names with settings, and the most maps whose content was replaced: every table has all of them."""
MAX_SCHEMAS_LENGTH = 1024 * 1024
"""The most characters of the schemas of all maps together: every table has all of them."""
REMEMBERED_NAMES = 10_000
"""The most maps whose settings a plan keeps looked up."""


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """One micro-batch of a streaming query. The numbers of a query's batches grow."""

    query: Text
    number: int


class Content(msgspec.Struct, frozen=True, array_like=True):
    """Which job replaced the whole content of a map last, and which job can replace it next."""

    map: str
    job: str = ""
    stamp: int = 0
    """The grid's clock when that job began; 0: the content was never replaced. What was written before is not of it."""
    pending: str = ""
    """The job that is preparing another content, or has; empty: none."""
    pending_stamp: int = 0
    """The grid's clock when the pending job began, as `stamp`."""
    is_decided: bool = False
    """Whether it is decided that the pending content replaces the present one: it does when every member knows that."""
    pending_batch: Batch | None = None
    """The batch of a query that the pending content is; None: of no query."""
    batches: tuple[Batch, ...] = ()
    """Of each of the last queries that replaced the map, the greatest batch, in the order of the replacements."""
    pending_schema: SchemaText | None = None
    """The map's schema once the pending content is in its place (empty: none); None: as it is."""

    @property
    def decided_stamp(self) -> int:
        """The grid's clock when the job began whose content has replaced the map's, or will: that is never taken back."""
        return self.pending_stamp if self.is_decided else self.stamp

    @property
    def as_given_up(self) -> Content:
        """This one without what is pending."""
        return msgspec.structs.replace(
            self, pending="", pending_stamp=0, is_decided=False, pending_batch=None, pending_schema=None
        )

    @property
    def as_placed(self) -> Content:
        """The pending content is in its place."""
        batches, placed = self.batches, self.pending_batch
        if placed is not None:
            batches = (*(each for each in batches if each.query != placed.query), placed)[-MAX_REPLACING_QUERIES:]
        return Content(self.map, self.pending, self.pending_stamp, batches=batches)

    def has_placed(self, batch: Batch) -> bool:
        """Return whether this batch of its query, or a later one, has become the content of the map."""
        return any(each.query == batch.query and each.number >= batch.number for each in self.batches)


class MapPlan(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """The settings of all maps. `version` grows with every change."""

    version: int = 0
    usual: MapSettings = MapSettings()
    """The settings of maps for which nothing else was set."""
    maps: tuple[tuple[str, MapChange], ...] = ()
    """Settings by name, or by a beginning of names that ends with `*`; sorted."""
    contents: tuple[Content, ...] = ()
    """The contents of maps that were ever replaced, or are to be; sorted."""

    @property
    def depth(self) -> int:
        """Return how many backups every partition has, as far as there are members for them."""
        return max(count.total for count in self.backup_counts)

    @property
    def backup_counts(self) -> list[BackupCount]:
        """Return the numbers of backups that some map can have."""
        return [self.usual.backups, *(change.backups for _, change in self.maps if change.backups is not None)]

    @property
    def protections(self) -> list[Protection]:
        """Return the protections that some map can have, without those that never refuse."""
        all_of_them = [self.usual.protection, *(c.protection for _, c in self.maps if c.protection is not None)]
        return [protection for protection in dict.fromkeys(all_of_them) if protection.is_on]

    @property
    def has_bounds(self) -> bool:
        """Whether some map can be bounded."""
        return self.usual.is_bounded or any(change.max_entries or change.max_bytes for _, change in self.maps)

    @property
    def has_idle(self) -> bool:
        """Whether entries of some map can have an idle time by its settings."""
        return self.usual.max_idle_ms > 0 or any(change.max_idle_ms for _, change in self.maps)

    @property
    def has_dict_formats(self) -> bool:
        """Whether some map has a format of dicts."""
        return self.usual.dicts != DictFormat.ANY or any(change.dicts is not None for _, change in self.maps)

    @property
    def has_always(self) -> bool:
        """Whether writes of some map wait for their sync."""
        return self.usual.durability == Durability.ALWAYS or any(
            c.durability == Durability.ALWAYS for _, c in self.maps
        )

    @property
    def journals(self) -> dict[str, JournalSettings]:
        """The maps that have a journal; kept beside the value, as it is asked for of every partition."""
        found: dict[str, JournalSettings] | None = self.__dict__.get("_journals")
        if found is None:
            had = {name: change.journal for name, change in self.maps if change.journal is not None}
            found = self.__dict__["_journals"] = {name: journal for name, journal in had.items() if journal.is_on}
        return found

    def of(self, name: str) -> MapSettings:
        """Return the settings of a map: the usual ones, changed by each pattern that fits its name, last by its own."""
        # What was looked up is kept beside the value: it is asked with every write.
        known: dict[str, MapSettings] | None = self.__dict__.get("_known")
        if known is None or len(known) > REMEMBERED_NAMES:
            known = self.__dict__["_known"] = {}
        found = known.get(name)
        if found is None:
            found = known[name] = self._look_up(target_of(name))
        return found

    def _look_up(self, name: str) -> MapSettings:
        by_name, lengths = self._index
        settings = self.usual
        for length in lengths:
            if (change := by_name.get(f"{name[: length - 1]}*")) is not None and length - 1 <= len(name):
                settings = settings.with_change(change)
        return settings.with_change(by_name[name]) if name in by_name else settings

    @property
    def _index(self) -> tuple[dict[str, MapChange], list[int]]:
        """What was set by name, and how long those are that end with `*`, the shortest first: the work of looking up one map
        of thousands does not grow with a thousand settings."""
        found: tuple[dict[str, MapChange], list[int]] | None = self.__dict__.get("_by_name")
        if found is None:
            by_name = dict(self.maps)
            lengths = sorted({len(name) for name in by_name if name.endswith("*")})
            found = self.__dict__["_by_name"] = by_name, lengths
        return found

    def with_change(self, name: str, change: MapChange) -> MapPlan:
        """Change some settings of the maps of a name or pattern. The name `*`, or an empty one, changes the usual settings.

        Raises `UsageError` for names and settings that no map can have.
        """
        check_change(name, change)
        if name in ("", "*"):
            return MapPlan(self.version + 1, self.usual.with_change(change), self.maps, self.contents)
        maps = dict(self.maps)
        named = maps.keys() | {content.map for content in self.contents if content.pending_schema}
        if name not in named and len(named) >= MAX_NAMED_SETTINGS:
            raise UsageError(
                f"settings are set for {len(named)} names, and {name!r} would be one more than {MAX_NAMED_SETTINGS}: they are in "
                f"every partition table; give maps with the same settings names with the same beginning, and set it for 'begin*'"
            )
        self._check_room(name, change.schema or "")
        return self._with(name, change)

    def _with(self, name: str, change: MapChange) -> MapPlan:
        maps = dict(self.maps)
        maps[name] = change.over(maps.get(name, MapChange()))
        if maps[name] == MapChange(schema=""):
            del maps[name]  # as it was before it had one
        return MapPlan(self.version + 1, self.usual, tuple(sorted(maps.items(), key=_by_name)), self.contents)

    def _check_room(self, name: str, schema: str) -> None:
        others = sum(len(change.schema or "") for other, change in self.maps if other != name)
        others += sum(len(content.pending_schema or "") for content in self.contents if content.map != name)
        if schema and others + len(schema) > MAX_SCHEMAS_LENGTH:
            raise UsageError(
                f"the schemas of other maps have {others:,} characters as JSON, and with the {len(schema):,} of {name!r} they would be more "
                f"than {MAX_SCHEMAS_LENGTH:,}: they are in every partition table; drop one that nobody needs (phalanx map schema NAME --clear)"
            )

    def with_placed(self, content: Content) -> MapPlan:
        """Return the plan with the pending content of a map in its place, and with the schema that came with it."""
        plan, schema = self.with_content(content.as_placed), content.pending_schema
        # Not refused any more: what is pending counts where other settings look for room.
        return (
            plan if schema in (None, plan.of(content.map).schema) else plan._with(content.map, MapChange(schema=schema))
        )

    def content_of(self, name: str) -> Content:
        """Return what is known of a map's content."""
        return next((content for content in self.contents if content.map == name), Content(name))

    def with_content(self, content: Content) -> MapPlan:
        """Return the plan with another content of a map.

        A map whose content was never replaced, and is not about to be, is not in the plan: otherwise each request of each
        program would stay in every table forever.
        """
        others = [each for each in self.contents if each.map != content.map]
        said = [content] if content != Content(content.map) else []
        if said and len(others) == len(self.contents) >= MAX_NAMED_SETTINGS:
            raise UsageError(
                f"the contents of {len(others)} maps were replaced, and {content.map!r} would be one more than "
                f"{MAX_NAMED_SETTINGS}: they are in every partition table; append to the map instead"
            )
        contents = tuple(sorted([*others, *said], key=lambda each: each.map))
        return MapPlan(self.version + 1, self.usual, self.maps, contents)

    def with_content_in(self, other: MapPlan, name: str) -> MapPlan:
        """Return the plan with what another one says of a map's content, and with the map's schema there: it belongs to the content."""
        others = [each for each in self.contents if each.map != name]
        contents = tuple(sorted([*others, other.content_of(name)], key=lambda each: each.map))
        plan, schema = MapPlan(self.version + 1, self.usual, self.maps, contents), other.of(name).schema
        return plan if schema == plan.of(name).schema else plan._with(name, MapChange(schema=schema))


def matches(pattern: str, name: str) -> bool:
    """Return whether settings of this pattern apply to the map of this name."""
    return pattern == name or (pattern.endswith("*") and name.startswith(pattern[:-1]))


def _by_name(item: tuple[str, MapChange]) -> str:
    return item[0]
