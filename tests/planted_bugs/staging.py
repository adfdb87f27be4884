"""Bugs of staged writes to plant: each takes one of their rules out of every member of a history."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import structs

from phalanx.common.hidden_maps import HiddenKind, StagedStep, hidden_name
from phalanx.common.ids import MemberId, Millis
from phalanx.grid.replica.staged import Staged
from phalanx.grid.replication.copying import CopySender
from phalanx.grid.serving.turns import Work
from phalanx.machine.routes import route
from phalanx.node.node import Node
from phalanx.wire import messages as m

from .replacing import replace


class _Forgetful(Staged):
    """A memory that knows of no batch."""

    __slots__ = ()

    def has_applied(self, name: str, query: str, number: int) -> bool:
        return False


def forget_batches(node: Node) -> None:
    """Nobody looks at which batches a partition has applied."""
    original = node.grid.follower.on_replicate

    def on_replicate(sender: MemberId, message: m.Mutation, now: Millis) -> None:
        _remember_as(node, _Forgetful)
        original(sender, message, now)

    def on_change(request: m.ChangeStaged) -> m.ChangeStaged:
        _remember_as(node, _Forgetful)
        return request

    node._handlers.update([route(m.ReplicateStaged, on_replicate)])
    _before_each_step(node, on_change)


def take_all_attempts(node: Node) -> None:
    """What an attempt has staged that was not named counts, too."""

    def on_change(request: m.ChangeStaged) -> m.ChangeStaged:
        none = (0,) * len(request.partitions)
        attempts, pages = [*request.attempts, "zombie"], (*request.pages, none)
        return structs.replace(request, attempts=attempts, pages=pages)

    _before_each_step(node, on_change)


class _Complete(CopySender):
    """A copy that takes itself for further than it is."""

    __slots__ = ()

    def lacks(self, names: Iterable[str]) -> bool:
        return False


def apply_while_copying(node: Node) -> None:
    """A copy goes on that has yet to send rows which a step takes up."""

    def on_change(request: m.ChangeStaged) -> m.ChangeStaged:
        for owned in node.grid.ownership.all_owned():
            for stream in owned.streams.values():
                if stream.copy is not None:
                    stream.copy.__class__ = _Complete
        return request

    _before_each_step(node, on_change)


class _Careless(Staged):
    """A memory that keeps nothing of what was dropped."""

    __slots__ = ()

    def note_step(self, name: str, job: str, step: StagedStep) -> None:
        if step not in (StagedStep.DROP, StagedStep.DISCARD):
            super().note_step(name, job, step)


def forget_what_is_gone(node: Node) -> None:
    """Nobody remembers a job whose rows were dropped, nor asks how many pages of rows there were."""
    put, replicate = node._handlers[m.PutPacked], node.grid.follower.on_replicate

    def on_put(caller: Any, request: m.PutPacked, now: Millis) -> None:
        _remember_as(node, _Careless)
        numbers = {part.partition: part.page for part in request.parts}
        for owned in node.grid.ownership.all_owned():
            pages = owned.replica.staged.pages
            if numbers.get(owned.number, 0) > pages.get(request.map, 0) + 1:
                pages[request.map] = numbers[owned.number] - 1
        put(caller, request, now)

    def on_replicate(sender: MemberId, message: m.Mutation, now: Millis) -> None:
        _remember_as(node, _Careless)
        replicate(sender, message, now)

    def on_change(request: m.ChangeStaged) -> m.ChangeStaged:
        _remember_as(node, _Careless)
        return structs.replace(request, pages=((0,) * len(request.partitions),) * len(request.attempts))

    node._handlers.update([route(m.PutPacked, on_put)])
    node._handlers.update([route(m.ReplicateStaged, on_replicate)])
    _before_each_step(node, on_change)


def _remember_as(node: Node, kind: type[Staged]) -> None:
    """Give all replicas that a member holds such a memory."""
    followed = node.grid.follower
    copies = [copy.replica for copy in followed.copies.values()]
    for replica in [*node.grid.held.complete(), *followed.undivided.replicas(), *copies]:
        replica.staged.__class__ = kind


def end_steps_early(node: Node) -> None:
    """A step that takes several turns is over after the first, wherever it is still to be done."""
    turns, original = node.grid.turns, node.grid.turns.go_on_later

    def go_on_later(work: Work[Any], now: Millis) -> None:
        if isinstance(work.request, m.ChangeStaged):
            work.left.clear()
        original(work, now)

    replace(turns, "go_on_later", go_on_later)


def keep_what_was_taken(node: Node) -> None:
    """A backup keeps the pages of which a part of a step has written the rows."""
    original = node._handlers[m.ReplicateStaged]

    def on_part(sender: MemberId, message: m.ReplicateStaged, now: Millis) -> None:
        replica = node.grid.follower.replicas.get(message.partition)
        names = [hidden_name(message.map, message.job, HiddenKind.ATTEMPT, attempt) for attempt in message.attempts]
        kept = {name: dict(replica.maps[name].entries) for name in names if name in replica.maps} if replica else {}
        original(sender, message, now)
        if message.pages and replica is not None:
            for name, pages in kept.items():
                for key, page in pages.items():  # Counted like all that is stored: nothing but the rule is missing.
                    replica.map(name).put(key, page, 0, now)

    node._handlers.update([route(m.ReplicateStaged, on_part)])


def _before_each_step(node: Node, change: Callable[[m.ChangeStaged], m.ChangeStaged]) -> None:
    handler = node._handlers[m.ChangeStaged]

    def on_step(caller: Any, request: m.ChangeStaged, now: Millis) -> None:
        handler(caller, change(request), now)

    node._handlers.update([route(m.ChangeStaged, on_step)])


STAGING_CANARIES: dict[str, Callable[[Node], None]] = {
    "forget-batches": forget_batches,
    "take-all-attempts": take_all_attempts,
    "apply-while-copying": apply_while_copying,
    "forget-what-is-gone": forget_what_is_gone,
    "end-steps-early": end_steps_early,
    "keep-what-was-taken": keep_what_was_taken,
}
