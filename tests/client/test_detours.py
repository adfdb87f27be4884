"""PX-51: when a client asks a member through another one: the rule, with time and messages in hand."""

from typing import Any

import pytest

from phalanx.client.core.client_core import ClientCore
from phalanx.client.core.cluster_affinity import Contact
from phalanx.client.core.detours import FRESH_MS, LOOK_BACK_MS, QUIET_MS, Detours
from phalanx.common.ids import MemberId, member_id
from phalanx.common.table import build_table
from phalanx.common.view import MembersView
from phalanx.machine.effects import Answer, Effect, Send
from phalanx.machine.inputs import Call, LinkLost, LinkRefused
from phalanx.wire import messages as m
from support.harness import address

A, B, C = (member_id(address(name), "1") for name in "ABC")
TIMEOUT_MS = 30_000


class Client:
    """A core that knows A, B and C; each partition has one of them as its owner. It is connected to all, unless told otherwise."""

    def __init__(self, *, connected: tuple[MemberId, ...] = (A, B, C), contact: Contact | None = None) -> None:
        self.now = 100_000
        self.sent: list[Send] = []
        self.answers: list[m.Reply] = []
        self.mute: set[MemberId] = set()
        """Members from which nothing comes."""
        self.core = ClientCore([address(name) for name in "ABC"], TIMEOUT_MS, "names", contact)
        for member in connected:
            self.core.known_as(member, member)
        self.take(self.core.time_passed(self.now))
        self.wanted: list[tuple[MemberId, MemberId | None]] = []

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                self.answers.append(effect.reply)
            elif isinstance(effect, Send):
                self.sent.append(effect)
                if isinstance(effect.message, m.GetTable):
                    self.tell(effect)

    def tell(self, question: Send) -> None:
        """Whoever is asked for its table, and is not mute, answers at once."""
        member = next(each for each in (A, B, C) if str(each).startswith(str(question.to).partition("/")[0]))
        if member not in self.mute:
            table = build_table([(A,), (B,), (C,)], [1, 1, 1])
            reply = m.TableReply(question.message.id, table, MembersView(1, A, (A, B, C)))  # type: ignore[union-attr]  # a question
            self.take(self.core.received(member if question.to == member else question.to, reply, self.now))

    def call(self, partition: int, number: int = 1) -> None:
        self.take(self.core.call(Call(partition, m.Put(number, "m", b"key", b"\0\0\0\0v", 0)), self.now))

    def advance(self, ms: int) -> list[tuple[MemberId, MemberId | None]]:
        """Time passes. Return the connections that are wanted meanwhile."""
        end = self.now + ms
        while (deadline := self.core.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now + 1, deadline)
            self.take(self.core.time_passed(self.now))
        self.now = end
        wanted, self.core.detours.wanted = self.core.detours.wanted, []
        return wanted

    def asked(self, member: MemberId) -> list[Any]:
        return [each.message for each in self.sent if each.to == member]


@pytest.mark.rows("PX-51")
def test_a_call_whose_member_is_silent_is_asked_through_one_that_answers() -> None:
    client = Client()
    client.mute = {C}
    client.call(2)
    assert client.advance(QUIET_MS - 1) == []
    wanted = client.advance(QUIET_MS + 1_000)
    assert wanted
    assert {member for member, _ in wanted} == {C}
    assert {through for _, through in wanted} <= {A, B}


@pytest.mark.rows("PX-51")
def test_a_member_that_answers_another_question_is_only_slow() -> None:
    """Its answer to the call takes long; asked whether it is there, it answers."""
    client = Client()
    client.call(2)
    assert client.advance(TIMEOUT_MS - 1) == []
    assert any(isinstance(each, m.GetTable) for each in client.asked(C))


@pytest.mark.rows("PX-51")
def test_a_member_of_many_is_asked_whether_it_is_there_before_it_is_given_up() -> None:
    """Questions for the table go round: in a large cluster it may be long before it is its turn."""
    detours, view = Detours({}), MembersView(1, A, (A, B, C))
    for member in (A, C):
        detours.opened(member, None)
    detours.note_table(A, 900)
    assert detours.begin_probe(C, 0, view, QUIET_MS), "it is asked now"
    assert not detours.begin_probe(C, 0, view, QUIET_MS + 1)
    detours.heard[C] = 2 * QUIET_MS - 1
    assert not detours.begin_probe(C, 0, view, 2 * QUIET_MS)
    assert detours.wanted == []
    assert detours.begin_probe(C, 0, view, 3 * QUIET_MS), "asked anew"
    detours.note_table(A, 4 * QUIET_MS)
    assert not detours.begin_probe(C, 0, view, 4 * QUIET_MS)
    assert detours.wanted == [(C, A)]


def test_one_that_answered_long_ago_passes_nothing_on() -> None:
    client = Client()
    client.advance(FRESH_MS + 1)
    client.mute = {A, B, C}
    client.call(2)
    assert client.advance(10_000) == []


def test_where_no_connection_is_open_one_second_is_enough() -> None:
    client = Client(connected=(A, B))
    client.mute = {C}
    client.call(2)
    client.take(client.core.link_lost(LinkRefused(C, "no answer"), client.now))
    wanted = client.advance(QUIET_MS + 300)
    assert [member for member, _ in wanted] == [C]


@pytest.mark.rows("PX-51")
def test_what_was_asked_directly_is_repeated_on_the_detour_as_the_same_operation() -> None:
    client = Client()
    client.mute = {C}
    client.call(2)
    ((_, through), *_) = client.advance(3 * QUIET_MS)
    assert through is not None
    client.take(client.core.link_lost(LinkLost(C), client.now))
    client.core.known_as(C, C, through)
    assert client.core.detours.way_to(C) == through
    client.advance(100)
    first, again = (each for each in client.asked(C) if isinstance(each, m.Put))
    assert (first.id, again.op) == (1, 1)
    assert "asking it through" in client.core.take_remarks()[0]


def test_the_direct_way_is_tried_now_and_then_and_taken_when_it_is_back() -> None:
    client = Client()
    client.core.known_as(C, C, A)
    client.call(0)
    assert client.core.detours.wanted == [(C, None)]
    client.core.detours.wanted.clear()
    client.call(1, 2)
    assert client.core.detours.wanted == []
    client.advance(LOOK_BACK_MS)
    client.call(1, 3)
    assert client.core.detours.wanted == [(C, None)]
    client.take(client.core.link_lost(LinkLost(C), client.now))
    client.core.known_as(C, C)
    assert client.core.detours.way_to(C) is None
    assert "again" in client.core.take_remarks()[-1]


def test_other_parts_of_a_client_take_the_detour_at_once() -> None:
    contact = Contact()
    one, other = Client(contact=contact), Client(connected=(A, B), contact=contact)
    one.core.known_as(C, C, A)
    assert other.core.detours.way_to(C) == A
    other.take(other.core.link_lost(LinkRefused(C, "cannot connect"), other.now))
    assert other.core.detours.way_to(C) is None, "that way is closed"
