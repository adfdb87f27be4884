"""A client that was given members of two clusters refuses; one that was given two sides of one cluster does not."""

import asyncio

import pytest

import phalanx
from phalanx.client.core.client_core import ClientCore
from phalanx.client.core.seeds import WAIT_MS
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Address, MemberId, Target, member_id
from phalanx.common.table import unassigned_table
from phalanx.common.view import MembersView
from phalanx.machine.effects import Effect, Send
from phalanx.machine.inputs import LinkRefused
from phalanx.wire import messages as m
from support.harness import address

A, B, C = (member_id(address(name), "1") for name in "ABC")


class Connecting:
    """A core that was given A, B and C, of which A has answered."""

    def __init__(self, *listed: MemberId, sought: str = "", alias: bool = False) -> None:
        self.core = ClientCore([address(name) for name in "ABC"], 1_000)
        self.sent: dict[Target, m.GetTable] = {}
        self._take(self.core.connect(0))
        if alias:
            self.core.known_as(address("A"), listed[0])
        self._view = MembersView(1, listed[0], listed)
        self.answer("A", self._view, sought)

    def _take(self, effects: list[Effect]) -> None:
        for each in effects:
            if isinstance(each, Send):
                assert isinstance(each.message, m.GetTable)
                self.sent[each.to] = each.message

    def answer(self, name: str, view: MembersView | None, sought: str = "") -> None:
        question = self.sent[address(name)]
        places = tuple(address(each) for each in sought)
        reply = m.TableReply(question.id, unassigned_table(3), view or self._view, places)
        sender = self.core._names.get(address(name), address(name))
        self._take(self.core.received(sender, reply, 5))

    def why_not(self) -> str:
        return str(self.core.why_not_connected({}, 10) or "")


def alone(member: MemberId) -> MembersView:
    return MembersView(1, member, (member,))


def test_seeds_that_the_list_contains_are_not_asked() -> None:
    connecting = Connecting(A, B, C)
    assert list(connecting.sent) == [address("A")]
    assert connecting.core.is_connected
    assert connecting.why_not() == ""


def test_members_of_two_clusters_are_named_and_refused() -> None:
    connecting = Connecting(A, B)
    assert list(connecting.sent) == [address("A"), address("C")]
    assert not connecting.core.is_connected
    connecting.answer("C", alone(C))
    assert connecting.core.is_connected
    told = connecting.why_not()
    for named in (address("A"), A, address("C"), C, "--seed", "two clusters"):
        assert named in told


@pytest.mark.parametrize(("here", "there"), [("C", ""), ("", "A"), ("C", "A")])
def test_two_sides_that_look_for_each_other_are_one_cluster(here: str, there: str) -> None:
    connecting = Connecting(A, B, sought=here)
    connecting.answer("C", alone(C), there)
    assert connecting.why_not() == ""


def test_one_who_is_still_in_a_list_of_the_other_is_of_its_cluster() -> None:
    connecting = Connecting(A, B)
    connecting.answer("C", MembersView(4, C, (C, B)))
    assert connecting.why_not() == ""


def test_a_member_that_is_reached_by_another_name_is_itself() -> None:
    """It was given as `localhost`, say: as a seed it is in no list."""
    connecting = Connecting(B, alias=True)
    assert list(connecting.sent) == [address("A"), address("C")]
    connecting.answer("C", alone(B))
    assert connecting.why_not() == ""


@pytest.mark.parametrize("how", ["refused", "not ready", "silent"])
def test_a_seed_that_says_nothing_is_not_waited_for(how: str) -> None:
    connecting = Connecting(A, B)
    core = connecting.core
    match how:
        case "refused":
            core.link_lost(LinkRefused(address("C"), "nobody there"), 10)
        case "not ready":
            core.received(C, m.ErrorReply(connecting.sent[address("C")].id, ErrorCode.NOT_READY, "joining"), 10)
        case "silent":
            assert core.next_deadline() == 5 + WAIT_MS
            core.time_passed(5 + WAIT_MS)
    assert core.is_connected
    assert connecting.why_not() == ""
    assert core.next_deadline() is None


def test_clients_refuse_members_that_were_started_without_each_other() -> None:
    async def run() -> None:
        one, two = [await phalanx.start_member(phalanx.Config(port=0)) for _ in range(2)]
        three = await phalanx.start_member(phalanx.Config(port=0, seeds=(Address(one.address),)))
        both = f"{one.address},{two.address}"
        with pytest.raises(phalanx.TwoClusters, match="two clusters") as told:
            await phalanx.connect(both)
        for named in (one.id, two.id, "--seed", "'phalanx'", f"founded by {one.id}"):
            assert named in str(told.value)
        with pytest.raises(phalanx.TwoClusters, match="two clusters"):
            await asyncio.to_thread(phalanx.Client, both)
        async with phalanx.connect(f"{one.address},{three.address}") as client:
            await client.map("m").put(1, 2)
        port = one.address.rpartition(":")[2]
        async with phalanx.connect(f"localhost:{port},{one.address}") as client:
            assert await client.map("m").get(1) == 2
        for member in (one, two, three):
            await member.stop(drain=False)

    asyncio.run(run())
