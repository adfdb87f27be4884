"""A map with its size and settings as a plain object."""

from __future__ import annotations

from typing import Any

from phalanx.common.map_settings import MapPlan


def as_object(name: str, size: int, plan: MapPlan) -> dict[str, Any]:
    """Return a map as it is listed. `plan`: the settings of all maps."""
    kept = plan.of(name)
    return {
        "map": name,
        "size": size,
        "backups": {"sync": kept.backups.synchronous, "async": kept.backups.asynchronous},
        "max_entries": kept.max_entries,
        "max_bytes": kept.max_bytes,
    }
