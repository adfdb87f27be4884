"""The client as a machine: whom it asks for the table, which table it believes, and what becomes of its calls."""

from typing import Any

import pytest

from phalanx.calls.call_router import RETRY_PAUSE_MS
from phalanx.client.core.client_core import ASK_PAUSE_MAX_MS, ASK_TIMEOUT_MS, DOUBT_AFTER_MS, NEWS_AFTER_MS, ClientCore
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import MemberId, Target, member_id
from phalanx.common.table import PartitionTable, build_table
from phalanx.common.view import MembersView
from phalanx.machine.effects import Answer, Effect, Send
from phalanx.machine.inputs import Call, LinkLost, LinkRefused
from phalanx.wire import messages as m
from support.harness import KEY, MAP, address


def member(name: str, incarnation: str = "1") -> MemberId:
    return member_id(address(name), incarnation)


A, B, C, D, X = (member(name) for name in "ABCDX")


def table_of(*owners: MemberId, version: int = 1) -> PartitionTable:
    """A table of one replica a partition."""
    return build_table([(owner,) for owner in owners], [version] * len(owners))


def view_of(*members: MemberId, version: int = 1) -> MembersView:
    return MembersView(version, members[0], members)


class Client:
    """The machine, and what it has sent and answered."""

    def __init__(self, seeds: str = "AB", timeout_ms: int = 30_000) -> None:
        self.now = 1_000
        self.core = ClientCore([address(name) for name in seeds], timeout_ms)
        self.sent: list[tuple[Target, m.Message]] = []
        self.answers: dict[int, m.Reply] = {}
        self.dead: set[Target] = set()
        """Whom no connection reaches."""
        self._last_id = 0

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                if effect.to not in self.dead:
                    self.core._router.on_link_up(effect.to)
                self.sent.append((effect.to, effect.message))
            elif isinstance(effect, Answer):
                assert effect.reply.id not in self.answers
                self.answers[effect.reply.id] = effect.reply

    def call(self, request_of: type, *fields: object, partition: int = 0, to: Target | None = None) -> int:
        self._last_id += 1
        request = request_of(self._last_id, *fields)
        self.take(self.core.call(Call(partition, request, to), self.now))
        return self._last_id

    def get(self) -> int:
        return self.call(m.Get, MAP, KEY)

    def reply(self, sender: Target, reply: m.Reply) -> None:
        self.take(self.core.received(sender, reply, self.now))

    def lose(self, *peers: MemberId) -> None:
        """These incarnations are gone."""
        self.dead.update(peers)
        for peer in peers:
            self.take(self.core.link_lost(LinkLost(peer), self.now))

    def _refuse_dead(self) -> None:
        for to in dict.fromkeys(to for to, _ in self.sent if to in self.dead):
            self.sent = [(other, message) for other, message in self.sent if other != to]
            self.take(self.core.link_lost(LinkRefused(to, "connection refused"), self.now))

    def advance(self, ms: int) -> None:
        end = self.now + ms
        for _ in range(10_000):
            self._refuse_dead()
            deadline = self.core.next_deadline()
            if deadline is None or deadline > end:
                break
            self.now = max(deadline, self.now + 1)
            self.take(self.core.time_passed(self.now))
        else:
            raise AssertionError("time does not get on")
        self.now = end

    def asked_for_table(self) -> tuple[Target, m.GetTable]:
        """The latest question for the table."""
        to, message = next((to, msg) for to, msg in reversed(self.sent) if isinstance(msg, m.GetTable))
        return to, message

    def asked(self, to: Target) -> m.Request:
        """The latest message, which must be a request to this one."""
        receiver, message = self.sent[-1]
        assert receiver == to
        assert isinstance(message, m.Request)
        return message

    def questions(self) -> list[Target]:
        """Who was asked for its table, in order."""
        return [to for to, message in self.sent if isinstance(message, m.GetTable)]

    def tell_table(self, table: PartitionTable, view: MembersView, sender: Target | None = None) -> None:
        """Answer the latest question for the table."""
        to, question = self.asked_for_table()
        self.reply(sender or to, m.TableReply(question.id, table, view))

    def code(self, request_id: int) -> ErrorCode | None:
        reply = self.answers.get(request_id)
        return reply.code if isinstance(reply, m.ErrorReply) else None


def connected(table: PartitionTable, view: MembersView, **settings: Any) -> Client:
    client = Client(**settings)
    client.take(client.core.time_passed(client.now))
    client.tell_table(table, view)
    client.sent.clear()
    client.advance(100)
    return client


def test_connecting_asks_the_seeds_in_turn_and_makes_nobody_assign() -> None:
    client = Client("AB")
    client.take(client.core.time_passed(client.now))
    to, question = client.asked_for_table()
    assert (to, question.assign) == (address("A"), False)
    client.take(client.core.link_lost(LinkRefused(address("A"), "nobody there"), client.now))
    client.advance(50)
    assert client.asked_for_table()[0] == address("B")
    client.advance(ASK_TIMEOUT_MS + 50)
    assert client.asked_for_table()[0] == address("A"), "one that does not answer is passed over"
    assert client.core.problems == {address("A"): "nobody there", address("B"): f"no answer within {ASK_TIMEOUT_MS} ms"}


def test_a_call_without_a_table_makes_the_cluster_assign_and_goes_out_when_it_is_known() -> None:
    client = connected(build_table([()] * 2, [0, 0]), view_of(A, B))
    request = client.get()
    client.advance(50)
    assert client.asked_for_table()[1].assign is True
    client.tell_table(table_of(A, B), view_of(A, B))
    assert client.sent[-1] == (A, m.Get(request, MAP, KEY))


def test_a_client_at_rest_sends_nothing() -> None:
    client = connected(table_of(A, B), view_of(A, B))
    assert client.core.next_deadline() is None
    request = client.get()
    client.reply(A, m.ValueReply(request, None))
    client.advance(100_000)
    assert client.sent == [(A, m.Get(request, MAP, KEY))]


def test_an_answer_of_one_that_was_not_asked_is_none() -> None:
    client = connected(table_of(A, B), view_of(A, B))
    request = client.get()
    client.reply(B, m.ValueReply(request, b"wrong"))
    assert client.answers == {}
    client.reply(A, m.ValueReply(request, b"right"))
    client.reply(A, m.ValueReply(request, b"again"))
    assert client.answers == {request: m.ValueReply(request, b"right")}


def test_an_answer_about_the_table_counts_once_and_only_from_the_one_that_is_asked() -> None:
    client = connected(table_of(A, B), view_of(A, B))
    client.take(client.core.refresh(client.now))
    _, question = client.asked_for_table()
    newer = table_of(B, B, version=2)
    client.reply(C, m.TableReply(question.id, newer, view_of(B)))
    client.reply(A, m.TableReply(question.id - 1, newer, view_of(B)))
    assert client.core.table == table_of(A, B)


def test_an_older_table_is_not_taken_while_the_known_one_may_be_right() -> None:
    client = connected(table_of(A, B, version=3), view_of(A, B))
    client.take(client.core.refresh(client.now))
    client.tell_table(table_of(B, B, version=2), view_of(A, B))
    assert client.core.table == table_of(A, B, version=3)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_client_finds_a_cluster_that_was_restarted_whatever_its_tables_version(version: int) -> None:
    """The same addresses, new incarnations, and a table as young as, or just as old as, the one that is known."""
    client = connected(table_of(A, B, version=2), view_of(A, B))
    request = client.get()
    client.lose(A, B)
    new_a, new_b = member("A", "2"), member("B", "2")
    client.advance(400)
    assert client.asked_for_table()[0] in (address("A"), address("B"))
    client.tell_table(table_of(new_a, new_b, version=version), view_of(new_a, new_b))
    client.advance(100)
    [(asked, again)] = [(to, message) for to, message in client.sent if isinstance(message, m.Get)]
    assert asked == new_a
    client.reply(new_a, m.ValueReply(again.id, b"value"))
    assert client.answers == {request: m.ValueReply(request, b"value")}


def test_a_cluster_that_was_restarted_with_other_partitions_is_found_too() -> None:
    """The key is located anew: another partition than the call was begun for."""
    client = connected(table_of(A, B, C), view_of(A, B, C))
    request = client.call(m.Get, MAP, KEY, partition=2)
    client.lose(A, B, C)
    client.dead.update([address("B"), address("C")])
    new = member("A", "2")
    for _ in range(10):
        client.advance(50)
        if client.asked_for_table()[0] == address("A"):
            client.tell_table(table_of(new), view_of(new))
    assert client.core.partition_count == 1
    client.advance(100)
    again = next(message for to, message in client.sent if isinstance(message, m.Get) and to == new)
    client.reply(new, m.ValueReply(again.id, b"value"))
    assert client.answers == {request: m.ValueReply(request, b"value")}


def test_a_table_with_the_same_owners_is_not_new_although_one_of_them_has_left() -> None:
    """The master has not repaired it yet: to take it again and again would ask without a pause."""
    client = connected(table_of(A, B), view_of(A, B))
    client.get()
    client.lose(A)
    for _ in range(20):
        client.advance(20)
        to, question = client.asked_for_table()
        client.reply(to, m.TableReply(question.id, table_of(A, B), view_of(B, version=2)))
    assert len([message for _, message in client.sent if isinstance(message, m.GetTable)]) <= 20


def test_every_call_ends_in_time() -> None:
    client = connected(table_of(A, B), view_of(A, B), timeout_ms=1_000)
    read, write = client.get(), client.call(m.Put, MAP, KEY, b"\0\0\0\0v", 0)
    client.advance(999)
    assert client.answers == {}
    client.advance(1)
    assert client.code(read) is ErrorCode.UNAVAILABLE
    assert client.code(write) is ErrorCode.INDETERMINATE
    client.reply(A, m.DoneReply(write))
    client.advance(ASK_TIMEOUT_MS)  # until the question of the calls that waited for long is over, too
    assert client.core.next_deadline() is None


def test_a_call_that_waits_for_long_finds_out_that_its_owner_was_replaced_while_it_hangs() -> None:
    """No connection breaks, and no other call is made that would ask for news."""
    client = connected(table_of(A), view_of(A, B, C))
    waiting = client.get()
    client.advance(DOUBT_AFTER_MS - 1)
    assert [to for to, _ in client.sent] == [A]
    client.advance(1)
    assert client.asked_for_table()[0] in (address("B"), address("C"))
    client.tell_table(table_of(B, version=2), view_of(B, C, version=2))
    client.reply(B, m.ValueReply(client.asked(B).id, b"found"))
    assert client.answers[waiting] == m.ValueReply(waiting, b"found")


def test_a_call_that_waits_for_long_does_not_wait_for_news_of_the_one_who_hangs() -> None:
    """It was asked for news on the side, by the call that waits."""
    client = connected(table_of(A), view_of(A, B))
    client.core.known_as(address("A"), A)
    client.core._candidates = [address("A")]
    client.advance(NEWS_AFTER_MS)
    client.get()
    assert client.questions() == [A]
    client.advance(DOUBT_AFTER_MS)
    assert client.questions() == [A, address("B")]


def test_a_call_that_waits_for_long_does_not_stop_asking() -> None:
    client = connected(table_of(A), view_of(A, B, C))
    client.get()
    questions = []
    for _ in range(10):
        client.advance(ASK_TIMEOUT_MS)
        questions.append(client.asked_for_table()[1].id)
    assert len(set(questions)) >= 8


# --- whose table is believed ----------------------------------------------------------------------------------------


def test_one_that_hung_and_was_removed_is_not_believed_when_it_comes_back() -> None:
    """1. C hangs, and is removed. 2. D joins, and gets partitions. 3. C goes on. By its list nobody is D."""
    client = connected(table_of(A, D, version=5), view_of(A, B, D, version=4), seeds="ABC")
    for told in (view_of(A, B, C, version=2), view_of(C, version=9)):
        client.take(client.core.refresh(client.now))
        client.tell_table(table_of(A, C, version=9), told, sender=None)
        assert client.core.table == table_of(A, D, version=5)
        assert client.core.view == view_of(A, B, D, version=4)
        client.advance(100)


def test_what_one_says_that_is_not_of_the_cluster_is_no_news() -> None:
    client = connected(table_of(A, A), view_of(A, B))
    client.advance(NEWS_AFTER_MS)
    client.get()
    client.tell_table(table_of(C, C, version=3), view_of(C))
    client.advance(100)
    questions = len(client.questions())
    client.get()
    assert len(client.questions()) == questions + 1
    client.tell_table(table_of(A, A), view_of(A, B))
    client.advance(100)
    client.get()
    assert len(client.questions()) == questions + 1


def test_a_table_by_which_nobody_has_left_is_taken_from_a_newer_list_although_its_version_is_lower() -> None:
    """A had committed, and told this client alone. Then it crashed, and D with it."""
    client = connected(table_of(A, D, B, version=5), view_of(A, B, C, D, version=4))
    client.take(client.core.refresh(client.now))
    client.tell_table(table_of(C, C, B, version=4), view_of(B, C, version=5))
    assert client.core.table == table_of(C, C, B, version=4)
    client.advance(100)
    client.take(client.core.refresh(client.now))
    client.tell_table(table_of(A, D, B, version=5), view_of(A, B, C, D, version=4), sender=None)
    assert client.core.view == view_of(B, C, version=5)


def test_who_claimed_to_be_master_in_vain_is_forgotten_when_the_others_have_it_back_as_another() -> None:
    """A claimed {A, C}, and the client heard of that. B had claimed, too, and C followed B. A joined B's cluster anew."""
    client = connected(table_of(A, C, version=5), view_of(A, C, version=5))
    client.take(client.core.refresh(client.now))
    again = member("A", "2")
    client.tell_table(table_of(B, again, version=6), view_of(B, C, again, version=6))
    assert client.core.table == table_of(B, again, version=6)


def test_an_older_table_that_is_stale_as_well_is_not_taken_from_a_newer_list() -> None:
    client = connected(table_of(A, D, version=5), view_of(A, B, D, version=4))
    client.take(client.core.refresh(client.now))
    client.tell_table(table_of(A, B, version=4), view_of(B, version=6))
    assert client.core.table == table_of(A, D, version=5)
    assert client.core.view == view_of(B, version=6)


def test_a_newer_table_is_taken_from_a_member_that_has_not_got_the_newest_list_yet() -> None:
    client = connected(table_of(A, B), view_of(A, B, D, version=4))
    client.core.known_as(address("B"), B)
    client.core._candidates = [address("B")]
    client.take(client.core.refresh(client.now))
    client.tell_table(table_of(B, B, version=2), view_of(A, B, version=3))
    assert client.core.table == table_of(B, B, version=2)
    assert client.core.view == view_of(A, B, D, version=4)


def test_another_cluster_is_believed_when_nobody_of_the_known_one_is_found_any_more() -> None:
    """It was started elsewhere: no address tells that the former members are gone, but that nobody answers there."""
    client = connected(table_of(A, B, version=7), view_of(A, B, version=9), seeds="ABX")
    new_cluster = table_of(X, X), view_of(X)
    client.lose(A, B)
    request = client.get()
    client.core.known_as(address("X"), X)
    client.advance(100)
    client.dead.add(address("A"))
    client.take(client.core.link_lost(LinkRefused(address("A"), "refused"), client.now))
    client.core._asked, client.core._candidates = None, [address("X")]
    client.advance(50)
    assert client.asked_for_table()[0] == X
    client.tell_table(*new_cluster)
    assert client.core.table == table_of(A, B, version=7)
    client.dead.add(address("B"))
    for _ in range(6):
        client.advance(50)
        if client.asked_for_table()[0] == X:
            client.tell_table(*new_cluster)
    assert client.core.table == table_of(X, X)
    asked = client.asked(X)
    assert asked == m.Get(asked.id, MAP, KEY)
    client.reply(X, m.ValueReply(asked.id, None))
    assert request in client.answers


def test_one_that_is_heard_again_is_not_gone() -> None:
    client = connected(table_of(A, A), view_of(A, B))
    client.take(client.core.link_lost(LinkRefused(address("A"), "refused"), client.now))
    client.take(client.core.link_lost(LinkRefused(address("B"), "refused"), client.now))
    client.core.known_as(address("A"), A)
    client.take(client.core.refresh(client.now))
    client.tell_table(table_of(X, X, version=3), view_of(X, version=3))
    assert client.core.table == table_of(A, A)
    client.core.known_as(address("A"), member("A", "2"))
    client.advance(100)
    client.take(client.core.refresh(client.now))
    client.tell_table(table_of(X, X, version=3), view_of(X, version=3))
    assert client.core.table == table_of(X, X, version=3)


# --- who refuses ----------------------------------------------------------------------------------------------------


def refuse(client: Client, sender: MemberId, request_id: int, code: ErrorCode = ErrorCode.NOT_OWNER) -> None:
    client.reply(sender, m.ErrorReply(request_id, code, "owned by another"))


@pytest.mark.parametrize("code", [ErrorCode.NOT_OWNER, ErrorCode.OWNERSHIP_LOST])
def test_who_refuses_is_asked_at_once_and_the_call_goes_to_the_new_owner_at_once(code: ErrorCode) -> None:
    """No time passes but that of the messages. Another one, that hangs, is being asked for news."""
    client = connected(table_of(A, B), view_of(A, B, C), seeds="C")
    client.advance(NEWS_AFTER_MS)
    write = client.call(m.Put, MAP, KEY, b"\0\0\0\0v", 0)
    assert client.asked_for_table()[0] != A
    others = len(client.questions())
    refuse(client, A, write, code)
    assert len(client.questions()) == others + 1
    assert client.asked_for_table()[0] == A
    client.tell_table(table_of(B, B, version=2), view_of(A, B, C))
    again = client.asked(B)
    assert isinstance(again, m.Put)
    assert again.op == write
    client.reply(B, m.DoneReply(again.id))
    assert client.answers == {write: m.DoneReply(write)}


def test_many_refusals_at_once_are_one_question() -> None:
    client = connected(table_of(A, B), view_of(A, B, C))
    calls = [client.get() for _ in range(20)]
    for request in calls:
        refuse(client, A, request)
    assert client.questions() == [A]
    client.tell_table(table_of(B, B, version=2), view_of(A, B, C))
    assert [to for to, message in client.sent if isinstance(message, m.Get)] == [A] * 20 + [B] * 20


def test_a_bulk_request_is_handed_back_and_who_refused_it_is_being_asked() -> None:
    client = connected(table_of(A, B), view_of(A, B, C))
    request = client.call(m.GetAll, MAP, [KEY])
    refuse(client, A, request)
    assert client.code(request) is ErrorCode.NOT_OWNER
    assert client.questions() == [A]
    assert client.core.is_asking


def test_a_new_owner_that_has_not_got_its_table_yet_is_asked_for_it_no_more_than_others_are() -> None:
    client = connected(table_of(B, B, version=2), view_of(A, B, C))
    request = client.get()
    began = client.now
    while client.now < began + 400:
        to, message = client.sent[-1]
        if isinstance(message, m.GetTable):
            client.tell_table(table_of(A, B), view_of(A, B, C))
        elif to == B:
            refuse(client, B, client.asked(B).id)
        client.advance(1)
    assert len(client.questions()) <= 1 + 400 // ASK_PAUSE_MAX_MS + 3
    asked = [to for to, message in client.sent if isinstance(message, m.Get)]
    assert len(asked) <= 1 + 400 // RETRY_PAUSE_MS
    assert request not in client.answers


# --- two sides of a cut ------------------------------------------------------------------------------------------------


def parted(*, used: str) -> Client:
    """A client that knows A, B, C and D, whose calls the members `used` have answered; then C and D go on without A and B,
    and one of them is asked for the table."""
    client = connected(table_of(A, B, C, D), view_of(A, B, C, D), seeds="ABCD")
    for partition, name in enumerate("ABCD"):
        if name in used:
            request = client.call(m.Get, MAP, KEY, partition=partition)
            client.reply(member(name), m.ValueReply(request, None))
    client.advance(5_000)
    client.core._candidates = [C]
    client.take(client.core.refresh(client.now))
    return client


OTHER = view_of(C, D, version=2)


@pytest.mark.rows("PX-52")
def test_a_client_stays_with_the_side_that_answers_its_calls() -> None:
    """PX-52."""
    client = parted(used="B")
    for _ in range(4):
        request = client.call(m.Get, MAP, KEY, partition=1)
        client.reply(B, m.ValueReply(request, None))
        if client.asked_for_table()[0] == C:
            client.tell_table(table_of(D, D, C, D, version=9), OTHER)
            assert client.asked_for_table()[0] == B, "it tells how its side goes on"
        assert client.core.view == view_of(A, B, C, D)
        client.advance(2_500)
        client.core._candidates = [C]
        client.take(client.core.refresh(client.now))
    request = client.call(m.Get, MAP, KEY, partition=1)
    client.reply(B, m.ValueReply(request, None))
    client.tell_table(table_of(D, D, C, D, version=9), OTHER)
    assert client.asked_for_table()[0] == B
    own = view_of(A, B, version=2)
    client.tell_table(table_of(A, B, A, B, version=7), own)
    assert client.core.view == own
    client.core._candidates = [C]
    client.take(client.core.refresh(client.now + 100))
    client.tell_table(table_of(D, D, C, D, version=11), view_of(C, D, version=5))
    assert client.core.view == own


def test_a_client_that_makes_calls_seldom_asks_those_that_answered_them_first() -> None:
    client = parted(used="B")
    client.tell_table(table_of(D, D, C, D, version=9), OTHER)
    assert client.core.view == view_of(A, B, C, D)
    assert client.asked_for_table()[0] == B
    client.tell_table(table_of(A, B, A, B, version=7), view_of(A, B, version=2))
    assert client.core.view == view_of(A, B, version=2)


@pytest.mark.rows("PX-52")
def test_a_client_whose_side_does_not_answer_goes_over() -> None:
    client = parted(used="AB")
    client.tell_table(table_of(D, D, C, D, version=9), OTHER)
    client.get()
    for _ in range(6):
        client.advance(500)
        if client.asked_for_table()[0] in (address("C"), address("D"), C, D):
            client.tell_table(table_of(D, D, C, D, version=9), OTHER)
    assert client.core.view == OTHER


def test_a_client_whose_members_are_gone_goes_over_at_once() -> None:
    client = parted(used="AB")
    client.lose(A, B)
    client.tell_table(table_of(D, D, C, D, version=9), OTHER)
    assert client.core.view == OTHER


def test_a_client_that_both_sides_serve_stays_with_the_master() -> None:
    client = parted(used="ABCD")
    client.tell_table(table_of(D, D, C, D, version=9), OTHER)
    assert client.core.view != OTHER
    other = parted(used="ABCD")
    other.tell_table(table_of(A, B, A, B, version=9), view_of(A, B, version=2))
    assert other.core.view == view_of(A, B, version=2)


def test_a_client_whom_its_side_refuses_as_too_small_goes_over() -> None:
    client = parted(used="B")
    request = client.call(m.Get, MAP, KEY, partition=1)
    client.reply(B, m.ErrorReply(request, ErrorCode.NOT_ENOUGH_MEMBERS, "two of four"))
    client.tell_table(table_of(D, D, C, D, version=9), OTHER)
    assert client.core.view == OTHER
