"""Maps with their sizes and settings as plain objects."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from phalanx.common.map_plan import MapPlan
from phalanx.common.map_schema import read_schema, type_in_sql
from phalanx.common.map_settings import MAP_SETTINGS, MapSettings

OTHERS: Final = "(all other maps)"


def as_object(name: str, size: int, plan: MapPlan) -> dict[str, Any]:
    """Return a map as it is listed. `plan`: the settings of all maps."""
    kept = plan.of(name)
    return {
        "map": name,
        "size": size,
        "backups": {"sync": kept.backups.synchronous, "async": kept.backups.asynchronous},
        "max_entries": kept.max_entries,
        "max_bytes": kept.max_bytes,
        "dicts": kept.dicts,
    }


def settings_of(plan: MapPlan, name: str | None) -> dict[str, MapSettings]:
    """Return the settings of this map (`*`: of all maps without their own), or of each for which something was set."""
    if name is None:
        return {each: plan.of(each) for each, _ in plan.maps} | {OTHERS: plan.usual}
    return {OTHERS: plan.usual} if name == "*" else {name: plan.of(name)}


def settings_as_object(found: MapSettings) -> dict[str, Any]:
    """Return the settings of a map."""
    backups, protection = found.backups, found.protection
    return {name: getattr(found, name) for name in MAP_SETTINGS} | {
        "backups": {"sync": backups.synchronous, "async": backups.asynchronous},
        "protection": {"on": protection.is_on, **msgspec.structs.asdict(protection)},
        "schema": schema_as_object(found.schema),
        "journal": msgspec.structs.asdict(found.journal),
    }


@lru_cache(512)  # consoles show all of them every second
def schema_as_object(text: str) -> dict[str, Any] | None:
    """Return the schema that a map has by its settings: its columns, as SQL writes their types, and those that are the key. None: it has none."""
    if not text:
        return None
    schema = read_schema(text)
    return {
        "key": list(schema.key),
        "columns": [{"name": column.name, "type": type_in_sql(column)} for column in schema.fields],
    }
