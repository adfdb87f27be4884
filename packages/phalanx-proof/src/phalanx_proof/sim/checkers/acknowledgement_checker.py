"""Checks that two owners of one partition never acknowledge at the same time, by what leaves each member.

A member owns a partition for a term; it can own it again later, in another term. 1. An owner acknowledges. 2. Another one does.
3. The first one acknowledges again in its old term, while the term of the other one goes on. Then both were asked and both
answered: who asks the one does not see a value that the other confirmed. How long that went on is the window; with leases
there is none.

The term of an owner that is gone goes on as long as any member's table names it: before that, nobody else shows what it
confirmed. Then another member of its side owns the partition, or that side has joined another one. It ends before if the next
incarnation of its process has merged what it held: who is left alone on its side can name it for long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from phalanx.common.ids import MemberId, Millis
from phalanx.machine.effects import Answer, Effect, Send
from phalanx.machine.inputs import Input, Received, ReceivedTogether
from phalanx.node.node import Node
from phalanx.wire.messages import DoneReply, FlagReply, Reply, ValueReply, ValuesReply
from phalanx_proof.sim.checkers.checker import Checker
from phalanx_proof.sim.checkers.findings import Findings

ACKNOWLEDGEMENTS = (DoneReply, FlagReply, ValueReply, ValuesReply)


class _Term:
    """The time for which one member owned one partition, as far as it acknowledged anything."""

    def __init__(self, node: Node, owned: object, now: Millis) -> None:
        self.node = node
        self.owned = owned
        self.first = self.last = now
        """When it acknowledged."""

    def goes_on(self, partition: int, running: Collection[Node]) -> bool:
        if self.node not in running:
            this = self.node.this
            return any(this == _owner(node, partition) for node in running) and not any(
                _has_merged(node, this) for node in running
            )
        owned = self.node.grid.ownership.owned
        return partition < len(owned) and owned[partition] is self.owned


def _has_merged(node: Node, former: MemberId) -> bool:
    """Return whether a member has merged all that a former incarnation of its process held."""
    side = node.data_merging.orphaned.sides.get(former)
    return side is not None and not side.replicas


def _owner(node: Node, partition: int) -> MemberId | None:
    """Return who owns a partition by the table of a member."""
    table = node.installed_table.table
    return table.owner(partition) if partition < table.partition_count else None


class AcknowledgementChecker(Checker):
    """Watches the answers that members give as owners."""

    def __init__(
        self,
        findings: Findings,
        partitions_of: Callable[[int], Sequence[int]],
        founder_of: Callable[[MemberId], MemberId | None],
        true_time: Callable[[], Millis],
        running: Callable[[], Collection[Node]],
        *,
        is_promised: bool,
    ) -> None:
        """`partitions_of`: the number of a call to the partitions of its keys. `founder_of`: a member to who founded its
        cluster: one that was founded apart knows nothing of this one. `running`: members that have not crashed.
        `is_promised`: whether two owners are a finding.
        """
        self._conflicts = 0
        self._longest_ms: Millis = 0
        self._checked = 0
        self._findings = findings
        self._partitions_of = partitions_of
        self._founder_of = founder_of
        self._true_time = true_time
        self._running = running
        self._is_promised = is_promised
        self._terms: dict[int, list[_Term]] = {}

    def watch(self, node: Node) -> None:
        """Look at each input of a new member."""
        original = node.handle

        def handle(event: Input, now: Millis) -> list[Effect]:
            before = list(node.grid.ownership.owned)
            effects = original(event, now)
            for reply in _given(node.this, event, effects):
                for partition in self._partitions_of(reply.id):
                    owned = node.grid.ownership.owned
                    present = owned[partition] if partition < len(owned) else None
                    self._judge(
                        node, partition, present or (before[partition] if partition < len(before) else None), reply
                    )
            return effects

        node.handle = handle  # type: ignore[method-assign]  # as bugs are planted

    def counts(self) -> dict[str, int]:
        return {
            "acknowledgements looked at": self._checked,
            "conflicting acknowledgements": self._conflicts,
            "longest window ms": self._longest_ms,
        }

    def _judge(self, node: Node, partition: int, owned: object, reply: Reply) -> None:
        if owned is None:
            return  # It has passed on to its program what another one gave it.
        now = self._true_time()
        self._checked += 1
        terms = self._terms.setdefault(partition, [])
        term = next((each for each in terms if each.node is node and each.owned is owned), None)
        if term is None:
            terms.append(_Term(node, owned, now))
            return
        for other in terms:
            since = other.first if other.first > term.last else other.last
            are_one = self._founder_of(other.node.this) == self._founder_of(node.this)
            if other.node is not node and are_one and since > term.last and other.goes_on(partition, self._running()):
                self._found(term, other, partition, reply, now)
        term.last = now

    def _found(self, term: _Term, other: _Term, partition: int, reply: Reply, now: Millis) -> None:
        self._conflicts += 1
        self._longest_ms = max(self._longest_ms, now - other.first)
        if self._is_promised:
            text = f"{term.node.this} gives {reply} for partition {partition}, which {other.node.this} owns and answers for"
            self._findings.add(now, "no two owners acknowledge at the same time", f"{text} since {other.first} ms")


def _given(this: MemberId, event: Input, effects: list[Effect]) -> Iterator[Reply]:
    """Yield the acknowledgements that the member gave as an owner, without those of others that it passes on to its program."""
    passed_on: set[int] = set()
    messages = event.messages if isinstance(event, ReceivedTogether) else []
    for message in [event.message] if isinstance(event, Received) else messages:
        if isinstance(message, ACKNOWLEDGEMENTS):
            passed_on.add(message.id)
    for effect in effects:
        reply = effect.message if isinstance(effect, Send) else effect.reply if isinstance(effect, Answer) else None
        if isinstance(reply, ACKNOWLEDGEMENTS) and not (isinstance(effect, Answer) and reply.id in passed_on):
            yield reply
