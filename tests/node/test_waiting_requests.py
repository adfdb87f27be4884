"""Requests that waited for their partition: served in their order, and no more of them in one turn than a turn may take."""

from collections.abc import Iterator
from typing import Any

import pytest

from phalanx.common.ids import ClientId
from phalanx.machine.effects import Send
from phalanx.machine.inputs import Received, ReceivedTogether, TimePassed
from phalanx.node.node import SERVED_IN_A_TURN
from phalanx.wire import messages as m
from support.harness import MAP, TEXT, Cluster, local_at

CALLER = ClientId("client/1")
MANY = 5 * SERVED_IN_A_TURN


class Waiting:
    """An owner of one partition with requests that have waited for it, which it may serve from now on."""

    def __init__(self, *requests: Any) -> None:
        self.cluster = c = Cluster("A", backup_count=0)
        c.assign()
        self.node = c.nodes["A"]
        for request in requests:
            self.node.grid.parked.queue(CALLER, request)
        self.node.alarms.follow()

    def turn(self, event: Any = None) -> list[int]:
        """Give the node an input; the ids of the requests that it answered in this turn, in order."""
        effects = self.node.handle(event or TimePassed(), self.cluster.now)
        sent = [each.message for each in effects if isinstance(each, Send) and each.to == CALLER]
        replies = [message for message in sent if isinstance(message, m.Reply)]
        assert replies == sent
        return [reply.id for reply in replies]

    def turns(self) -> Iterator[list[int]]:
        """Turn by turn, as long as the node says that it is due."""
        while self.node.grid.parked.released:
            deadline = self.node.next_deadline()
            assert deadline is not None
            assert deadline <= self.cluster.now
            yield self.turn()


def put(number: int, value: bytes = b"v") -> m.Put:
    return m.Put(number, MAP, TEXT + b"k%d" % (number % 7), TEXT + value, 0)


def test_many_requests_are_served_in_several_turns_in_their_order() -> None:
    served = list(Waiting(*map(put, range(1, MANY + 1))).turns())
    assert [number for turn in served for number in turn] == list(range(1, MANY + 1))
    assert max(map(len, served)) == SERVED_IN_A_TURN


@pytest.mark.parametrize("make", [lambda n: m.GetAll(n, MAP, [TEXT]), lambda n: m.ClearPartitions(n, MAP, [0], 1)])
def test_one_that_may_be_dear_has_a_turn_of_its_own(make: Any) -> None:
    served = list(Waiting(*map(make, range(1, 6))).turns())
    assert served == [[1], [2], [3], [4], [5]]


def test_what_comes_meanwhile_is_served_behind() -> None:
    """Of one caller, whose order must stay: the value that it wrote last is the one that remains."""
    waiting = Waiting(*map(put, range(1, MANY + 1)))
    last = m.Put(MANY + 7, MAP, put(7).key, TEXT + b"last", 0)
    served = waiting.turn(Received(CALLER, last))
    assert served == list(range(1, SERVED_IN_A_TURN + 1))
    get = m.Get(MANY + 8, MAP, put(7).key)
    served += waiting.turn(ReceivedTogether(CALLER, [get, m.Get(MANY + 9, MAP, put(7).key)]))
    assert len(served) == 2 * SERVED_IN_A_TURN, "several messages in one turn have one turn's room"
    for turn in waiting.turns():
        served += turn
    assert served == [*range(1, MANY + 1), MANY + 7, MANY + 8, MANY + 9]
    assert waiting.cluster.get("A", put(7).key) == TEXT + b"last"


def test_the_program_of_the_member_itself_overtakes_nobody() -> None:
    waiting = Waiting(*map(put, range(1_001, 1_001 + MANY)))
    local = local_at(waiting.cluster)
    assert local.put(MAP, put(7).key, TEXT + b"last") == 0
    asked = waiting.cluster.call("A", m.Put, MAP, put(7).key, TEXT + b"last", 0)
    waiting.cluster.advance(100)
    assert waiting.cluster.is_done(asked)
    assert waiting.cluster.get("A", put(7).key) == TEXT + b"last"
    assert local.put(MAP, put(7).key, TEXT + b"again") is None


def test_who_ends_refuses_all_that_wait() -> None:
    waiting = Waiting(*map(put, range(1, MANY + 1)))
    c = waiting.cluster
    waiting.node.membership.incarnation.end("others went on without it", rejoin=())
    effects = waiting.node.handle(TimePassed(), c.now)
    refused = [each.message.id for each in effects if isinstance(each, Send) and isinstance(each.message, m.ErrorReply)]
    assert refused == list(range(1, MANY + 1))
