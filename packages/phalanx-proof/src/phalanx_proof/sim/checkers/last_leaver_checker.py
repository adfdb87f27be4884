"""Checks that nobody takes the last data along who need not: the end of a cluster, or of its side of a cut.

Who leaves while no other member stays that holds data ends what it holds. It can do so if nobody is missing: each member that
it has had in its lists, and that held data, was told to leave, or another one has come to its address. And it can do so if all
that held data in one of its lists, two or more, were told to leave: then the whole cluster was stopped.
"""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.ids import Address, MemberId, Millis, address_of
from phalanx.wire.join_events import LiteChanged
from phalanx.wire.view_events import ViewInstalled
from phalanx_proof.sim.checkers.checker import Checker, ObservedEvent
from phalanx_proof.sim.checkers.findings import Findings


class LastLeaverChecker(Checker):
    """Watches which members each one has had in its lists, and who leaves."""

    def __init__(self, findings: Findings, lite: Collection[Address], *, has_folders: bool = False) -> None:
        """`lite`: addresses whose members hold no data. `has_folders`: members leave what they hold in folders, and take nothing along."""
        self._findings = findings
        self._has_folders = has_folders
        self._lite_at = lite
        self._lite: set[MemberId] = set()
        """Members that have become lite."""
        self._leaving: set[MemberId] = set()
        """Members that were told to leave."""
        self._at: dict[MemberId, dict[Address, MemberId]] = {}
        """Member to the last member at each address in its lists."""
        self._present: dict[MemberId, tuple[MemberId, ...]] = {}
        """Member to the members of its last list."""
        self._stopped: set[MemberId] = set()
        """Members in whose list all that held data, two or more, were told to leave, and nobody has joined since."""
        self._with_entries: set[MemberId] = set()
        """Members that held an entry before their last input."""

    def on_event(self, recorded: ObservedEvent) -> None:
        """Note who has been in a member's lists."""
        member, event = recorded.member, recorded.event
        if isinstance(event, ViewInstalled):
            self._present[member] = event.members
            self._at.setdefault(member, {}).update({address_of(each): each for each in event.members})
            if self._staying(member):
                self._stopped.discard(member)
            self._note_stop(member)
        elif isinstance(event, LiteChanged):
            # Who is only to become lite goes on holding data where no other member does.
            (self._lite.add if event.lite else self._lite.discard)(event.subject)

    def on_last_input(self, member: MemberId, leaving: Collection[MemberId], *, has_entries: bool) -> None:
        """Note the input of a member that was told to leave. `leaving`: all that were told and still run."""
        self._leaving.update(leaving)
        (self._with_entries.add if has_entries else self._with_entries.discard)(member)
        self._note_stop(member)

    def on_process_ended(self, member: MemberId, how: str, now: Millis) -> None:
        is_judged = how == "left" and member in self._with_entries and not self._has_folders
        if not is_judged or not self._holds(member) or self._staying(member):
            return
        present = self._present.get(member, ())
        missing = [
            each
            for each in self._at.get(member, {}).values()
            if each not in present and each not in self._leaving and self._holds(each)
        ]
        if missing and member not in self._stopped:
            story = f"{member} left as the last one that holds data, although {missing} went without having left"
            self._findings.add(now, "nobody takes the last data along", story)

    def _holds(self, member: MemberId) -> bool:
        return member not in self._lite and address_of(member) not in self._lite_at

    def _staying(self, member: MemberId) -> list[MemberId]:
        """Return who holds data in the last list of a member, and was not told to leave."""
        present = self._present.get(member, ())
        return [each for each in present if each != member and each not in self._leaving and self._holds(each)]

    def _note_stop(self, member: MemberId) -> None:
        holders = [each for each in self._present.get(member, ()) if self._holds(each)]
        if len(holders) > 1 and self._leaving.issuperset(holders):
            self._stopped.add(member)
