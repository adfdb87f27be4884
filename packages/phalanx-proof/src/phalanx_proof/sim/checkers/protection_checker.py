"""Checks that no member serves a protected map while its view is too small, by what leaves each member.

An answer counts by the view that was installed when it left. So this follows the order of the effects of one input.
"""

from __future__ import annotations

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Millis
from phalanx.common.map_settings import Protection
from phalanx.common.view import MembersView
from phalanx.machine.effects import Answer, Effect, Record, Send
from phalanx.machine.inputs import Call, Input
from phalanx.node.node import Node
from phalanx.wire.messages import DoneReply, ErrorReply, FlagReply, ValueReply, ValuesReply
from phalanx.wire.view_events import ViewInstalled
from phalanx_proof.sim.checkers.checker import Checker
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.history.request_ids import ADMIN_FROM, JOBS_FROM

WRITTEN = (DoneReply, FlagReply)
"""Answers to writes only. (A removal is answered as a read is.)"""
SERVED = (*WRITTEN, ValueReply, ValuesReply)


class ProtectionChecker(Checker):
    """Watches the answers of members while a map asks for a number of members."""

    def __init__(self, findings: Findings, protection: Protection) -> None:
        self._refused = 0
        """Requests that members refused."""
        self._findings = findings
        self._minimum = protection.minimum
        self._kinds = SERVED if protection.reads else WRITTEN

    def counts(self) -> dict[str, int]:
        return {"refused for want of members": self._refused}

    def watch(self, node: Node) -> None:
        """Check what each input of a new member brings about."""
        original = node.handle

        def handle(event: Input, now: Millis) -> list[Effect]:
            before = node.membership.view
            effects = original(event, now)
            self._judge(node, before, event, effects, now)
            return effects

        node.handle = handle  # type: ignore[method-assign]  # as bugs are planted

    def _judge(self, node: Node, before: MembersView | None, event: Input, effects: list[Effect], now: Millis) -> None:
        view = before
        # Two lists that came as one input are installed one after the other, with answers between them.
        for effect in effects:
            if isinstance(effect, Record):
                if isinstance(effect.event, ViewInstalled):
                    view = self._as_installed(effect.event, before, node.membership.view)
            elif isinstance(effect, Send):
                self._judge_answer(node, view, effect.message, now)
            elif isinstance(effect, Answer) and isinstance(event, Call):
                # The member's own, given at once. Of others it cannot be told here who gave them.
                self._judge_answer(node, view, effect.reply, now)

    @staticmethod
    def _as_installed(event: ViewInstalled, before: MembersView | None, after: MembersView | None) -> MembersView:
        """Return the view that the event tells of, with the traits that are known of its members."""
        traits = {m: t for view in (before, after) if view is not None for m, t in view.traits}
        known = tuple((member, traits[member]) for member in event.members if member in traits)
        return MembersView(event.view_version, event.maker, event.members, known)

    def _judge_answer(self, node: Node, view: MembersView | None, reply: object, now: Millis) -> None:
        if isinstance(reply, ErrorReply):
            self._refused += reply.code is ErrorCode.NOT_ENOUGH_MEMBERS
        elif isinstance(reply, FlagReply) and not reply.flag and reply.id > JOBS_FROM:
            return  # A job gave up to replace a map: that writes nothing.
        elif isinstance(reply, self._kinds) and reply.id < ADMIN_FROM and view is not None:
            present = len(view.data_members)
            if present < self._minimum:
                text = f"{node.this} answers {reply} with {present} of {self._minimum} members"
                self._findings.add(now, "a side that is too small serves no protected map", text)
