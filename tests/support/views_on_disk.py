"""Judges the views that real members installed, from their event logs alone: M1 to M3 of docs/protocol/membership.md.

Independent of the simulator's checker and of all of `phalanx`: it reads JSON lines. M2 is judged as members can hold it:
every view is whole, so who missed one and installed a later one has got what it said; who crashed is excused.
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple


class View(NamedTuple):
    """A view is identified by its version and its maker."""

    version: int
    maker: str


class ViewsOnDisk:
    """What all members that ever wrote into a folder have installed."""

    def __init__(self, folder: Path) -> None:
        self.installed: dict[str, list[View]] = {}
        """Incarnation to its views, in order."""
        self.members_of: dict[View, list[str]] = {}
        self.problems: list[str] = []
        for path in sorted(folder.glob("*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
                # A member that was killed while it wrote leaves half a line, which is no line.
                if line.endswith("\n"):
                    self._read(json.loads(line))

    def _read(self, event: dict[str, Any]) -> None:
        if event["event"] != "ViewInstalled":
            return
        view, this = View(event["view_version"], event["maker"]), event["member"]
        if this not in event["members"]:
            self.problems.append(f"M3: {this} installed {view} without itself")
        if self.members_of.setdefault(view, event["members"]) != event["members"]:
            self.problems.append(f"{view} has two meanings: {self.members_of[view]} and {event['members']}")
        before = self.installed.setdefault(this, [])
        if before and view.version <= before[-1].version:
            self.problems.append(f"{this} went back from {before[-1]} to {view}")
        before.append(view)

    def judge(self, running: Collection[str]) -> list[str]:
        """What does not hold, in words. `running`: the incarnations that are members in the end."""
        return self.problems + self._opposite_orders() + self._missed(running)

    def _opposite_orders(self) -> list[str]:
        """M1: no two members installed two views in opposite orders."""
        first_by: dict[tuple[View, View], str] = {}
        for this, views in self.installed.items():
            for place, earlier in enumerate(views):
                for later in views[place + 1 :]:
                    first_by.setdefault((earlier, later), this)
        return [
            f"M1: {this} installed {earlier}, then {later}; {first_by[later, earlier]} the other way round"
            for (earlier, later), this in first_by.items()
            if (later, earlier) in first_by and earlier < later
        ]

    def _missed(self, running: Collection[str]) -> list[str]:
        """M2: who runs in the end has installed each view that another running member installed with it, or a later."""
        found = []
        for this in sorted(running):
            for view in self.installed.get(this, []):
                for other in self.members_of[view]:
                    newest = max((each.version for each in self.installed.get(other, [])), default=0)
                    if other in running and newest < view.version:
                        found.append(f"M2: {this} installed {view}; {other} never did")
        return found
