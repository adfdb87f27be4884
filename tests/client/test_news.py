"""How a client keeps knowing whom to ask: the machine alone, no sockets."""

from __future__ import annotations

from phalanx.client.core.client_core import NEWS_AFTER_MS, ClientCore
from phalanx.common.ids import Address, MemberId, Target
from phalanx.common.table import PartitionTable, build_table
from phalanx.common.view import MembersView
from phalanx.machine.effects import Effect, Send
from phalanx.machine.inputs import Call, LinkLost, LinkRefused
from phalanx.wire.messages import Get, GetTable, TableReply, ValueReply

A, B = MemberId("10.0.0.1:5701/a"), MemberId("10.0.0.2:5701/b")
SEED = Address("10.0.0.1:5701")
KEY = b"\0\0\0\0k"


def table_of(*owners: MemberId) -> PartitionTable:
    return build_table([(owner,) for owner in owners], [1] * len(owners))


def connected(view: MembersView, table: PartitionTable) -> ClientCore:
    """A client that asked its seed A and has its answer."""
    core = ClientCore([SEED], 30_000)
    [asked] = core.time_passed(0)
    assert isinstance(asked, Send)
    assert asked.to == SEED
    core.known_as(SEED, A)
    assert isinstance(asked.message, GetTable)
    assert core.received(A, TableReply(asked.message.id, table, view), 1) == []
    return core


def asked_for_table(effects: list[Effect]) -> list[Target]:
    return [effect.to for effect in effects if isinstance(effect, Send) and isinstance(effect.message, GetTable)]


def test_a_member_that_joined_later_is_known_when_the_first_one_dies() -> None:
    core = connected(MembersView(1, A, (A,)), table_of(A, A))
    later = NEWS_AFTER_MS + 1
    effects = core.call(Call(0, Get(1, "m", KEY)), later)
    assert asked_for_table(effects) == [A], "on the side, over the connection that is there"
    question = next(e.message for e in effects if isinstance(e, Send) and isinstance(e.message, GetTable))
    core.received(A, ValueReply(1, None), later)
    core.received(A, TableReply(question.id, table_of(A, A), MembersView(2, A, (A, B))), later)

    now = later + 100
    core.call(Call(0, Get(2, "m", KEY)), now)
    asked = asked_for_table(core.link_lost(LinkLost(A), now))
    for _ in range(3):
        now += 50
        asked += asked_for_table(core.link_lost(LinkRefused(asked[-1], "Connection refused"), now))
    assert "10.0.0.2:5701" in asked


def test_a_restarted_member_is_asked_under_its_address() -> None:
    core = connected(MembersView(1, A, (A,)), table_of(A, A))
    core.call(Call(0, Get(1, "m", KEY)), 10)
    effects = core.link_lost(LinkLost(A), 20)
    assert asked_for_table(effects) == [SEED], "not the incarnation that is gone"


def test_a_client_at_rest_asks_nobody() -> None:
    core = connected(MembersView(1, A, (A,)), table_of(A, A))
    assert core.next_deadline() is None
    assert core.time_passed(10 * NEWS_AFTER_MS) == []


def test_calls_in_a_row_ask_once() -> None:
    core = connected(MembersView(1, A, (A,)), table_of(A, A))
    now = NEWS_AFTER_MS + 1
    asked = [to for n in range(5) for to in asked_for_table(core.call(Call(0, Get(n, "m", KEY)), now + n))]
    assert asked == [A]
