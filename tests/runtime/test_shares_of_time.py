"""Requests that cost much, many in one packet: who else asks is answered in between, and each connection keeps its order."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import phalanx
from phalanx.codec.values import keys_to_data
from phalanx.common.hidden_maps import StagedStep
from phalanx.common.ids import ClientId, MemberId
from phalanx.common.map_settings import MapChange
from phalanx.machine.inputs import Received, ReceivedTogether
from phalanx.node.local_access import LocalAccess
from phalanx.runtime.connections.inbound import FEW_KEYS, MAX_LOT, TURN_S, Inbound
from phalanx.runtime.endpoints.endpoint_grid import MemberGrid
from phalanx.runtime.member import Member
from phalanx.wire import messages as m
from support.raw_peers import RawPeer

(KEY,) = keys_to_data(["k"])
KEYS = keys_to_data(list(range(FEW_KEYS + 1)))
DEAR_S = 0.03
"""What a dear request costs here: more than the share of a connection, also of a member's."""
MANY = 12


class Turns:
    """What one member is given to do, turn by turn; what `costs` names takes long, and what is sent meanwhile is there when
    it is over."""

    def __init__(self, member: Member, *costs: type, cost_s: float = DEAR_S) -> None:
        self.lots: list[list[int]] = []
        """The ids of the requests that were handed over together."""
        self.handed: list[list[Any]] = []
        """All messages, as they were handed over."""
        self.meanwhile: Callable[[], None] = lambda: None
        """Done once, while the first of them is worked at."""
        handle = member.node.handle

        def slowly(event: Any, now: int) -> Any:
            messages = (
                event.messages
                if type(event) is ReceivedTogether
                else [event.message]
                if type(event) is Received
                else []
            )
            self.handed.append(messages)
            if asked := [message.id for message in messages if isinstance(message, m.Request)]:
                self.lots.append(asked)
            for message in messages:
                if isinstance(message, costs):
                    time.sleep(cost_s)
                    meanwhile, self.meanwhile = self.meanwhile, lambda: None
                    meanwhile()
            return handle(event, now)

        member.node.handle = slowly  # type: ignore[method-assign]

    @property
    def ids(self) -> list[int]:
        return [number for lot in self.lots for number in lot]


def played(play: Callable[[Member], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        member = await phalanx.start_member(phalanx.Config(port=0, cluster="test", **settings))
        try:
            await member.map("m").put("k", 1)  # partitions are assigned
            await play(member)
        finally:
            await member.stop()

    asyncio.run(asyncio.wait_for(main(), 60))


async def greeted(member: Member, sender: str = "") -> RawPeer:
    return await asyncio.to_thread(RawPeer(member.address, sender=sender).greeted)


PEER = MemberId("127.0.0.1:9/1")
ACKS: list[Any] = [m.ReplicateAck(0, 1, number) for number in range(400)]
DEAR: dict[str, Callable[[int], Any]] = {
    "GetAll": lambda number: m.GetAll(number, "m", KEYS),
    "PutAll": lambda number: m.PutAll(number, "m", KEYS, KEYS, 0),
    "SizeOf": lambda number: m.SizeOf(number, "m", [0], 271),
    "ClearPartitions": lambda number: m.ClearPartitions(number, "m", [0], 271),
    "ScanPartition": lambda number: m.ScanPartition(number, "m", 0, 271, b"", 1000),
    "ChangeStaged": lambda number: m.ChangeStaged(number, "m", [0], 271, StagedStep.DROP, "j", []),
    "UpdateValue": lambda number: m.UpdateValue(number, "m", KEY, "merge", [KEY], None),
    "GetReplicas": m.GetReplicas,
    "ChangeMap": lambda number: m.ChangeMap(number, "m", MapChange(max_entries=5)),
}


@pytest.mark.parametrize("kind", DEAR)
def test_others_are_answered_between_dear_requests_of_one_packet(kind: str) -> None:
    async def play(member: Member) -> None:
        with await greeted(member) as greedy, await greeted(member) as other:
            turns = Turns(member, type(DEAR[kind](1)))
            turns.meanwhile = lambda: other.send(m.Get(1000, "m", KEY))
            greedy.send(*(DEAR[kind](number) for number in range(1, MANY + 1)))
            replies = await asyncio.to_thread(greedy.replies, MANY)
            assert [reply.id for reply in replies] == list(range(1, MANY + 1))
            assert turns.ids.index(1000) <= 2
            assert max(map(len, turns.lots)) == 1

    played(play)


def test_others_are_answered_while_many_cheap_requests_of_one_packet_are() -> None:
    """A share is a time: hundreds of single gets are a long turn, too."""

    async def play(member: Member) -> None:
        with await greeted(member) as greedy, await greeted(member) as other:
            turns = Turns(member, m.Get, cost_s=0.001)
            turns.meanwhile = lambda: other.send(m.Contains(1000, "m", KEY))
            greedy.send(*(m.Get(number, "m", KEY) for number in range(1, 401)))
            replies = await asyncio.to_thread(greedy.replies, 400)
            assert [reply.id for reply in replies] == list(range(1, 401))
            assert turns.ids.index(1000) < 50
            assert max(map(len, turns.lots)) == MAX_LOT

    played(play)


def test_others_are_answered_between_frames_that_come_one_after_another() -> None:
    """A frame that fills what is read at once is followed by the next read, before anybody else is heard."""

    async def play(member: Member) -> None:
        with await greeted(member) as greedy, await greeted(member) as other:
            turns = Turns(member, m.PutAll)
            turns.meanwhile = lambda: other.send(m.Get(1000, "m", KEY))
            values = [bytes(25_000)] * len(KEYS)
            asked = [m.PutAll(number, "m", KEYS, values, 0) for number in range(1, 21)]
            sending = asyncio.create_task(asyncio.to_thread(greedy.send, *asked))
            replies = await asyncio.to_thread(greedy.replies, 20)
            await sending
            assert [reply.id for reply in replies] == list(range(1, 21))
            assert turns.ids.index(1000) <= 2

    played(play)


def test_messages_of_a_member_take_turns_too_and_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it replicates and its heartbeats stay between the requests where they were; together, where they may be."""
    monkeypatch.setattr(Inbound, "is_of_member", property(lambda self: self.sender == PEER))

    async def play(member: Member) -> None:
        with await greeted(member, PEER), await greeted(member) as other:
            turns = Turns(member, m.SizeOf)
            turns.meanwhile = lambda: other.send(m.Get(1000, "m", KEY))
            inbound = member.accepted.seekers[PEER]
            inbound.on_messages([*map(DEAR["SizeOf"], range(1, 11)), *ACKS, DEAR["SizeOf"](11)])
            assert inbound.is_paused  # so nothing overtakes what is held
            inbound.on_messages(list(map(DEAR["SizeOf"], range(12, MANY + 1))))
            await _until(lambda: len(turns.ids) == MANY + 1 and not inbound.is_paused)
            assert [number for number in turns.ids if number != 1000] == list(range(1, MANY + 1))
            assert turns.ids.index(1000) <= 2
            before = turns.handed.index([DEAR["SizeOf"](10)])
            acks = turns.handed[before + 1 : turns.handed.index([DEAR["SizeOf"](11)])]
            assert [ack for lot in acks for ack in lot if type(ack) is m.ReplicateAck] == ACKS
            assert len(acks) < len(ACKS) // 8

    played(play)


def test_the_share_of_a_connection_is_whole_again_when_others_had_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that cost a little less than a share each, one at a time: none of them is held for those before."""

    async def play(member: Member) -> None:
        with await greeted(member) as peer:
            pauses: list[int] = []
            (inbound,) = [each for each in member.accepted.clients.values() if each.sender == ClientId(peer.sender)]
            pause = inbound.pause

            def noted(why: int) -> None:
                pauses.append(why)
                pause(why)

            monkeypatch.setattr(inbound, "pause", noted)
            for number in range(1, MANY + 1):
                inbound._used_s = TURN_S * 0.6
                inbound._renew_later(TURN_S)
                peer.send(m.Get(number, "m", KEY))
                await asyncio.to_thread(peer.replies, 1)
                assert inbound._used_s == 0
            assert pauses == []

    played(play)


@pytest.mark.parametrize("count", [1, 3])
def test_a_connection_that_is_given_up_in_its_own_turn_harms_nobody(count: int) -> None:
    async def play(member: Member) -> None:
        with await greeted(member) as peer, await greeted(member) as other:
            turns = Turns(member, m.SizeOf)
            (inbound,) = [each for each in member.accepted.clients.values() if each.sender == ClientId(peer.sender)]
            turns.meanwhile = inbound.abort
            peer.send(*map(DEAR["SizeOf"], range(1, count + 1)))
            await _until(lambda: inbound.transport is None)
            other.send(m.Get(1000, "m", KEY))
            (reply,) = await asyncio.to_thread(other.replies, 1)
            assert (reply.id, turns.ids) == (1000, [1, 1000])

    played(play)


async def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def test_functions_that_can_take_long_are_called_in_several_turns_for_an_endpoint() -> None:
    """However many a machine wants at once; what is short does not wait."""
    asked: list[int] = []

    class Slow:
        call_timeout_s = 1.0
        local = LocalAccess(lambda: 0, lambda: 1)

        def lend(self, local: LocalAccess) -> LocalAccess:
            return local

        def next_id(self) -> int:
            return 1

        def ask(self, call: Any, reply: Any) -> None:
            asked.append(call.request.id)
            now_s[0] += DEAR_S

    async def main() -> None:
        slow: Any = Slow()
        grid = MemberGrid(slow, 1_000, 1_000)
        grid.clock_s = lambda: now_s[0]
        for number in range(1, 5):
            grid.ask(0, m.UpdateValue(number, "m", KEY, "merge", [KEY], None), lambda reply: None)
        grid.ask(0, m.UpdateValue(9, "m", KEY, "increment", [KEY], None), lambda reply: None)
        assert asked == [1, 9]
        for number in range(2, 5):
            await asyncio.sleep(0)
            assert asked == [1, 9, *range(2, number + 1)]

    now_s = [0.0]
    asyncio.run(main())
