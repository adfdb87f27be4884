"""How a program stores dicts in a map: as the map's setting `dicts` says, or the program's argument `dicts`.

The setting comes with the partition table, and can change while the map is used: each read or write of a dict looks at the
newest table that it knows. If map and program both set a format, it must be the same. A program with another format would
store dicts that the programs for which the setting was made cannot read; so it gets an error instead.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.common.errors import UnavailableError, UsageError
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import DictFormat
from phalanx.common.words import quoted

NO_SETTINGS = "no member has sent the settings of the map yet: nothing was changed"
ARGUMENTS = (DictFormat.ROWS.value, DictFormat.JSON.value)


class DictChoice:
    """Tells how one map object stores dicts."""

    __slots__ = ("_argument", "_judged", "_map", "_plan")

    def __init__(self, map_name: str, argument: str | None, plan: Callable[[], MapPlan]) -> None:
        """`argument`: what the program says; None: nothing. `plan`: returns the settings of all maps. Raises `UsageError`."""
        if argument is not None and argument not in ARGUMENTS:
            raise UsageError(
                f"map {quoted(map_name)}: dicts={quoted(argument)}: give {' or '.join(map(repr, ARGUMENTS))}"
            )
        self._map, self._argument, self._plan = map_name, argument, plan
        self._judged: tuple[MapPlan | None, bool] = (None, False)
        """The settings judged last, and what came out: one value, because threads share this."""

    def check_format(self) -> bool:
        """Check the format of dicts, and return whether it is JSON.

        Raises `UsageError` if program and setting differ, and what `plan` raises.
        """
        plan = self._plan()
        judged, check_format = self._judged
        if plan is not judged:
            check_format = dicts_are_json(self._map, self._argument, plan)
            self._judged = plan, check_format
        return check_format

    def knows_setting(self) -> bool:
        """Return whether the settings of maps are known here."""
        try:
            self._plan()
        except UnavailableError:
            return False
        return True


def dicts_are_json(map_name: str, argument: str | None, plan: MapPlan) -> bool:
    """Return whether a program that gives this argument (None: none) stores dicts as JSON. Raises `UsageError` if the map's
    setting says something else."""
    setting = plan.of(map_name).dicts
    if argument is not None and setting not in (DictFormat.ANY, argument):
        raise UsageError(
            f"map {quoted(map_name)}: dicts={argument!r} contradicts the map's setting, which is {setting!r} for all programs; leave "
            f"the argument out, or let each program say it: phalanx map dicts {quoted(map_name)} any"
        )
    return (argument or setting) == DictFormat.JSON
