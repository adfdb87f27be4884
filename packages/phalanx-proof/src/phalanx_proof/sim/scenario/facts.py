"""What happened in a scenario, with the names of its hosts instead of identities."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from phalanx.common.ids import Address, MemberId, Millis, address_of
from phalanx.common.view import MembersView
from phalanx_proof.sim.scenario.entries import decode

ROW = re.compile(r"\b(?:CS|EL|PD|PN|DL)-\d+\b|\bA\.6-\d+\b")
"""Ids in the rule that an event names."""
CITED = re.compile(rf"{ROW.pattern}|\bPX-\d+\b")
"""Ids of rules that a scenario can hold."""


class ScenarioFact(msgspec.Struct, frozen=True):
    """Something that a member did or that happened to it."""

    at: Millis
    who: str
    kind: str
    """The event's type."""
    fields: dict[str, str]
    """As a scenario writes them."""


class Names:
    """Hosts are named by the scenario; the incarnations on host A are A, A2, A3."""

    def __init__(self, hosts: Sequence[str], addresses: Sequence[Address]) -> None:
        self.hosts = list(hosts)
        self._names: dict[str, str] = dict(zip(addresses, hosts, strict=True))

    def add(self, member: MemberId, incarnation: int) -> None:
        host = self._names[address_of(member)]
        self._names[member] = host if incarnation == 1 else f"{host}{incarnation}"

    def __getitem__(self, target: str) -> str:
        return self._names.get(target, target)

    def listed(self, members: Sequence[str]) -> str:
        return f"[{','.join(self[member] for member in members)}]"

    def view(self, view: MembersView) -> str:
        return f"v{view.version} by {self[view.maker]}: {self.listed(view.members)}"

    def shown(self, value: object) -> str:
        """Return a field of an event or a message as scenarios write it."""
        if isinstance(value, MembersView):
            return self.view(value)
        if isinstance(value, bytes):
            return decode(value)
        if isinstance(value, tuple | list):
            return f"[{','.join(self.shown(each) for each in value)}]"
        if isinstance(value, bool):
            return "yes" if value else "no"
        text = str(value)
        if text not in self._names and "/" in text:
            for member, name in self._names.items():
                text = text.replace(member, name) if "/" in member else text
        return self[text]


def rows_in(rule: str) -> str:
    """Return the ids that a rule names, as they stand behind a fact."""
    rows = ROW.findall(rule)
    return f"  [{' '.join(rows)}]" if rows else ""
