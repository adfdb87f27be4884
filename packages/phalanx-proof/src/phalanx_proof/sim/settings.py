"""The settings with which histories can be played instead of drawn ones: one value each, or a sweep.

A configuration is a profile and the settings that were named, as one writes them: `heartbeat_timeout_ms=3000`. All else stays
as the seed draws it, faults too: the same seed under two configurations meets the same story.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Sequence
from typing import Any, get_type_hints

import msgspec

from phalanx.common.config import NodeConfig
from phalanx.common.errors import UsageError
from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.profiles.timeouts import CONDITIONS, MOST_MEMBERS, Conditions, draw_timeouts

Value = int | float | str | bool | tuple[int, int]

ALIASES = {"suspicion_timeout": "heartbeat_timeout", "partition_count": "partitions", "backup_count": "backups"}
"""Other names under which people know a setting; with or without its unit."""
DRAWN_ONLY = frozenset({
    "seed", "profile", "members", "hosts", "start_at_ms", "mix", "faults", "clock_ppm", "wall_ms", "traits", "protection",
    "kept_calls", "member_settings", "merges_sides",
})  # fmt: skip
"""Options that cannot be set: they fit together only as a seed draws them."""
OF_ONE_MEMBER = frozenset({"cluster", "seeds", "zone", "capacity_weight", "lite", "maps"})
UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "": 1_000}
MOST_CONFIGURATIONS = 1_000

_OPTIONS = {name: kind for name, kind in get_type_hints(HistoryOptions).items() if name not in DRAWN_ONLY}
_MEMBERS = {
    name: kind
    for name, kind in get_type_hints(NodeConfig).items()
    if name not in OF_ONE_MEMBER | _OPTIONS.keys() | ALIASES.keys()
}
_CONDITIONS = get_type_hints(Conditions)


class Configuration(msgspec.Struct, frozen=True):
    """How the histories of one range of seeds are drawn."""

    profile: Profile
    settings: tuple[tuple[str, Value], ...] = ()
    """Name and value, in the order of the names."""

    @property
    def label(self) -> str:
        """The settings as one writes them; empty: as drawn."""
        return " ".join(f"{name}={_as_written(value)}" for name, value in self.settings)

    @property
    def arguments(self) -> str:
        """What `phalanx simulate` must be given besides the seed."""
        profile = f" --profile {self.profile}" if self.profile is not Profile.DEFAULT else ""
        return profile + "".join(f" --set {name}={_as_written(value)}" for name, value in self.settings)

    def draw(self, seed: int) -> HistoryOptions:
        """Draw the history of a seed. Raises `UsageError` where the settings do not fit what it draws."""
        named = dict(self.settings)
        if self.profile is Profile.TIMEOUTS:
            conditions = Conditions(**{n: v for n, v in named.items() if n in CONDITIONS})  # type: ignore[arg-type]
            options = draw_timeouts(seed, conditions)
            named = {name: value for name, value in named.items() if name not in CONDITIONS}
        else:
            options = draw_options(seed, self.profile)
        of_members = {name: value for name, value in named.items() if name in _MEMBERS}
        of_history: dict[str, Any] = {name: value for name, value in named.items() if name not in _MEMBERS}
        if named:
            options = msgspec.structs.replace(options, **of_history, member_settings=of_members)
            options.node_config(0)  # says what does not fit
        return options


def configurations(
    profiles: Sequence[Profile], fixed: Sequence[str] = (), swept: Sequence[str] = ()
) -> list[Configuration]:
    """Return every profile with every combination of the swept values, in the order in which they were given.

    `fixed`: `NAME=VALUE`; `swept`: `NAME=VALUE,VALUE,…`; `profile` can be swept like a setting. Raises `UsageError`.
    """
    axes: dict[str, list[Value]] = {}
    for text, is_swept in [*((text, False) for text in fixed), *((text, True) for text in swept)]:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        texts = [each.strip() for each in values.split(",")] if is_swept else [values.strip()]
        if not equals or not all(texts):
            raise UsageError(f"{text!r} is not a setting: expected NAME=VALUE{',VALUE,…' if is_swept else ''}")
        if name == "profile":
            profiles = [_profile(each) for each in texts]
            continue
        full, unit = _find(name, any(profile is Profile.TIMEOUTS for profile in profiles))
        if full in axes:
            raise UsageError(f"{full} is set twice")
        axes[full] = [_parse(full, each, unit) for each in texts]
    names = sorted(axes)
    found = [
        Configuration(profile, tuple(zip(names, values, strict=True)))
        for profile in profiles
        for values in itertools.product(*(axes[name] for name in names))
    ]
    if len(set(found)) < len(found):
        raise UsageError("a sweep names a value twice: leave one out")
    if len(found) > MOST_CONFIGURATIONS:
        raise UsageError(
            f"these are {len(found)} configurations, more than {MOST_CONFIGURATIONS}: sweep less at a time"
        )
    for each in found:
        if each.profile is not Profile.TIMEOUTS and CONDITIONS.intersection(names) - _OPTIONS.keys():
            raise UsageError(f"{sorted(CONDITIONS.intersection(names))[0]} is drawn, but in the profile timeouts")
    return found


def _profile(text: str) -> Profile:
    try:
        return Profile(text)
    except ValueError:
        raise UsageError(f"there is no profile {text!r}; there are {', '.join(Profile)}") from None


def _find(name: str, with_conditions: bool) -> tuple[str, int]:
    """Return the full name of a setting, and the unit of a bare number in milliseconds (0: the setting is not a time)."""
    known = _OPTIONS.keys() | _MEMBERS.keys() | (_CONDITIONS.keys() if with_conditions else set())
    plain = name.removesuffix("_ms")
    name = ALIASES.get(name) or (ALIASES[plain] + "_ms" if plain in ALIASES else name)
    if name in known:
        return name, 1 if name.endswith("_ms") else 0
    if f"{name}_ms" in known:
        return f"{name}_ms", UNITS[""]
    near = difflib.get_close_matches(name, [*known, *ALIASES], 3)
    raise UsageError(
        f"there is no setting {name!r}{', perhaps ' + ' or '.join(near) if near else ''}; docs/simulation.md lists them"
        if name not in DRAWN_ONLY | OF_ONE_MEMBER
        else f"{name} is drawn by each seed, and fits only the rest of what it draws: it cannot be set"
    )


def _parse(name: str, text: str, bare_unit: int) -> Value:
    kind = _CONDITIONS.get(name) or _OPTIONS.get(name) or _MEMBERS[name]
    try:
        if kind == tuple[int, int]:
            low, _, high = text.partition("-")
            pair = (_millis(low, bare_unit), _millis(high or low, bare_unit))
            if not 0 < pair[0] <= pair[1]:
                raise ValueError(text)
            return pair
        value: Value = _millis(text, bare_unit) if name.endswith("_ms") else msgspec.convert(text, kind, strict=False)
    except (ValueError, msgspec.ValidationError):
        expected = "a time such as 300ms or 2s" if name.endswith("_ms") else getattr(kind, "__name__", str(kind))
        expected = "two times such as 1-30" if kind == tuple[int, int] else expected
        raise UsageError(f"{name}: {text!r} is not a value of it: expected {expected}") from None
    _check(name, value)
    return value


def _millis(text: str, bare_unit: int) -> int:
    matched = re.fullmatch(r"(\d+(?:\.\d+)?) *([a-z]*)", text.strip())
    if matched is None or matched[2] not in UNITS:
        raise ValueError(text)
    return round(float(matched[1]) * (UNITS[matched[2]] if matched[2] else bare_unit))


def _check(name: str, value: Value) -> None:
    """Check the limits that members do not check themselves."""
    least: dict[str, float] = {"members": 2, "partitions": 1, "duration_ms": 1_000, "registers": 1, "counters": 1}
    most: dict[str, float] = {"members": MOST_MEMBERS, "longest_pause_ms": 59_999, "partitions": 10_000,
                              "lost_permille": 1_000, "doubled_permille": 1_000}  # fmt: skip
    if isinstance(value, int | float) and not least.get(name, 0) <= value <= most.get(name, float("inf")):
        high = f" and at most {most[name]:,.0f}" if name in most else ""
        raise UsageError(f"{name}: {_as_written(value)} is not possible: at least {least.get(name, 0):,.0f}{high}")


def _as_written(value: Value) -> str:
    return (
        "-".join(map(str, value))
        if isinstance(value, tuple)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )
