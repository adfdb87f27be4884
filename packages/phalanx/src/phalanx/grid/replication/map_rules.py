"""What the settings of all maps, by the installed table, and the configuration say to what runs with each request: worked out once."""

from __future__ import annotations

import msgspec

from phalanx.common.config import NodeConfig
from phalanx.common.ids import Millis
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import DictFormat, Durability
from phalanx.grid.replica.access_statistics import counts_reads


class MapRules(msgspec.Struct, frozen=True):
    """The rules for maps, from one table to the next."""

    plan: MapPlan
    max_key: int
    max_value: int
    max_maps: int
    counts_reads: bool
    """Whether reads of any map are recorded."""
    any_idle: bool
    """Whether entries of any map get an idle time by the map's settings."""
    any_dict_format: bool
    """Whether any map has a format of dicts."""
    any_always: bool
    """Whether writes of any map wait for their sync."""
    are_writes_plain: bool
    """Whether a put without time limits, of whichever map, neither gets an idle time nor can exceed a bound."""

    def max_idle_of(self, name: str) -> Millis:
        """Return the idle time of an entry that is stored without one of its own; 0: it has none."""
        return self.plan.of(name).max_idle_ms if self.any_idle else 0

    def is_always(self, name: str) -> bool:
        """Return whether writes of the map wait for their sync, where members have folders."""
        return self.any_always and self.plan.of(name).durability == Durability.ALWAYS

    def has_json_dicts(self, name: str) -> bool:
        """Return whether the map's dicts are stored as JSON."""
        return self.any_dict_format and self.plan.of(name).dicts == DictFormat.JSON


def rules_of(plan: MapPlan, config: NodeConfig) -> MapRules:
    """Return the rules that follow from the settings of maps and the configuration."""
    return MapRules(
        plan, config.max_key_bytes, config.max_value_bytes, config.max_maps, counts_reads(plan), plan.has_idle,
        plan.has_dict_formats, plan.has_always, not (plan.has_idle or plan.has_bounds),
    )  # fmt: skip
