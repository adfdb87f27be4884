"""What becomes of a call when its owner refuses, changes or is lost: what is asked again, and what is unknown."""

from typing import Any

import msgspec
import pytest

from phalanx.calls.call_router import REPEAT_WITHIN_MS, RETRY_PAUSE_MS, SPARE_ENDS, CallRouter
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import MemberId, Target, member_id
from phalanx.common.table import PartitionTable, build_table
from phalanx.machine.effects import Answer, Send
from phalanx.machine.inputs import Call, LinkLost, LinkRefused
from phalanx.machine.outbox import Outbox
from phalanx.wire import messages as m
from support.harness import KEY, MAP, Cluster, address

A, B = (member_id(address(name), "1") for name in "AB")
VALUE = b"\0\0\0\0v"
TIMEOUT_MS = 10_000

GET = m.Get(1, MAP, KEY)
CONTAINS = m.Contains(1, MAP, KEY)
PUT = m.Put(1, MAP, KEY, VALUE, 0)
READS = [GET, CONTAINS]
OPERATIONS = [
    PUT,
    m.PutIfAbsent(1, MAP, KEY, VALUE, 0),
    m.Replace(1, MAP, KEY, None, VALUE, 0),
    m.Remove(1, MAP, KEY),
    m.UpdateWhere(1, MAP, 0, 1, b"", "max", [VALUE]),
]
BULK_READS = [m.GetAll(1, MAP, [KEY]), m.SizeOf(1, MAP, [0], 1), m.ScanPartition(1, MAP, 0, 1, b"", 100)]
BULK_WRITES = [m.PutAll(1, MAP, [KEY], [VALUE], 0), m.ClearPartitions(1, MAP, [0], 1)]
BULK = BULK_READS + BULK_WRITES
ONE_KEY = READS + OPERATIONS
ALL = ONE_KEY + BULK


def by_name(request: Any) -> str:
    return type(request).__name__


def each(requests: list[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("request_", requests, ids=by_name)


def owned_by(owner: MemberId | None, version: int = 1) -> PartitionTable:
    return build_table([(owner,) if owner else ()], [version])


class Routed:
    """One call on a router that knows A as the owner, unless told otherwise."""

    def __init__(
        self,
        request: Any,
        owner: MemberId | None = A,
        to: Target | None = None,
        timeout_ms: int = TIMEOUT_MS,
        *,
        tells_links: bool = False,
    ) -> None:
        self.now = 0
        self.out = Outbox()
        self.router = CallRouter(timeout_ms, self.out, tells_links=tells_links)
        self.sent: list[Target] = []
        self.messages: list[Any] = []
        self.answer: Any = None
        if owner is not None:
            self.router.on_table(owned_by(owner), 0)
        self.router.begin_call(Call(0, request, to), 0)
        self._take()

    def _take(self) -> None:
        for effect in self.out.take():
            if isinstance(effect, Send):
                self.sent.append(effect.to)
                self.messages.append(effect.message)
            elif isinstance(effect, Answer):
                assert self.answer is None, "one call, one answer"
                self.answer = effect.reply

    def table(self, owner: MemberId | None) -> None:
        self.router.on_table(owned_by(owner, 2), self.now)
        self._take()

    def view(self, *members: MemberId) -> None:
        self.router.on_view(set(members), self.now)
        self._take()

    def refused(self, code: ErrorCode, sender: Target = A) -> None:
        self.router.on_reply(sender, m.ErrorReply(1, code, "because"), self.now)
        self._take()

    def refused_again(self, code: ErrorCode, sender: Target) -> None:
        """The latest try."""
        self.router.on_reply(sender, m.ErrorReply(self.messages[-1].id, code, "because"), self.now)
        self._take()

    def lost(self, peer: Target = A) -> None:
        self.router.on_link(LinkLost(peer), self.now)
        self._take()

    def advance(self, ms: int) -> None:
        end = self.now + ms
        while (deadline := self.router.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now + 1, deadline)
            self.router.on_time(self.now)
            self._take()
        self.now = end

    @property
    def code(self) -> ErrorCode | None:
        return self.answer.code if isinstance(self.answer, m.ErrorReply) else None


@each(ALL)
def test_a_call_goes_to_the_owner_and_its_reply_ends_it(request_: Any) -> None:
    call = Routed(request_)
    assert call.sent == [A]
    call.router.on_reply(A, m.DoneReply(1), 5)
    call._take()
    assert call.answer == m.DoneReply(1)
    assert call.router.next_deadline() is None
    call.lost()
    call.refused(ErrorCode.INVALID)


@each(ALL)
@pytest.mark.parametrize("code", [ErrorCode.TOO_LARGE, ErrorCode.INVALID])
def test_what_is_wrong_stays_wrong(request_: Any, code: ErrorCode) -> None:
    call = Routed(request_)
    call.refused(code)
    assert call.code is code


@each(ALL)
def test_an_owner_that_is_not_ready_is_asked_again_a_little_later(request_: Any) -> None:
    call = Routed(request_)
    call.refused(ErrorCode.NOT_READY)
    assert call.sent == [A]
    call.advance(RETRY_PAUSE_MS)
    assert call.sent == [A, A]
    assert call.answer is None


@each(ONE_KEY)
def test_a_member_that_is_not_the_owner_has_done_nothing_so_the_owner_is_asked(request_: Any) -> None:
    call = Routed(request_)
    call.refused(ErrorCode.NOT_OWNER)
    call.table(B)
    assert call.sent == [A, B]
    assert call.answer is None


@each(BULK)
def test_a_request_for_many_goes_back_to_the_caller_when_its_owner_changed(request_: Any) -> None:
    call = Routed(request_)
    call.refused(ErrorCode.NOT_OWNER)
    assert call.code is ErrorCode.NOT_OWNER
    moved = Routed(request_)
    moved.table(B)
    assert moved.code is (ErrorCode.OWNERSHIP_LOST if isinstance(request_, m.WRITES) else ErrorCode.NOT_OWNER)
    assert moved.sent == [A]


@each(ONE_KEY)
@pytest.mark.parametrize("how", ["lost", "moved", "ownership lost"])
def test_what_concerns_one_key_is_asked_again(request_: Any, how: str) -> None:
    call = Routed(request_)
    if how == "lost":
        call.lost()
    elif how == "ownership lost":
        call.refused(ErrorCode.OWNERSHIP_LOST)
    call.table(B)
    assert call.sent == [A, B], "at once: a newer table ends every pause"
    assert call.answer is None


@each(ONE_KEY)
def test_every_try_names_the_same_operation_and_has_an_id_of_its_own(request_: Any) -> None:
    call = Routed(request_)
    for _ in range(3):
        call.lost()
        call.advance(RETRY_PAUSE_MS)
    assert [message.id for message in call.messages] == [1, -1, -2, -3]
    if request_ in OPERATIONS:
        assert [message.op for message in call.messages] == [0, 1, 1, 1]
    same = [
        msgspec.structs.replace(message, id=1, **({"op": 0} if request_ in OPERATIONS else {}))
        for message in call.messages
    ]
    assert same == [request_] * 4


SLICE = m.UpdateWhere(1, MAP, 0, 1, b"", "max", [VALUE])
DIVIDED = build_table([(B,), (B,)], [2, 2])


@pytest.mark.parametrize("how", ["not owner", "lost", "ownership lost"])
def test_a_slice_goes_back_to_the_caller_when_its_partition_was_divided(how: str) -> None:
    call = Routed(SLICE)
    if how == "lost":
        call.lost()
    else:
        call.refused(ErrorCode.NOT_OWNER if how == "not owner" else ErrorCode.OWNERSHIP_LOST)
    call.router.on_table(DIVIDED, 0)
    call._take()
    assert call.sent == [A], "the operation is of the partition before: none of its parts is asked"
    assert call.code is (ErrorCode.NOT_OWNER if how == "not owner" else ErrorCode.OWNERSHIP_LOST)


def test_the_answer_of_a_slice_holds_although_its_partition_was_divided_meanwhile() -> None:
    call = Routed(SLICE, owner=B)
    call.router.on_table(DIVIDED, 0)
    call._take()
    assert call.answer is None
    call.router.on_reply(B, m.UpdatedReply(1, 3, False), 0)
    call._take()
    assert call.answer == m.UpdatedReply(1, 3, False)


def test_a_slice_of_a_count_that_nobody_has_any_more_ends() -> None:
    call = Routed(m.UpdateWhere(1, MAP, 1, 2, b"", "max", [VALUE]), owner=None)
    call.router.on_table(owned_by(A), 0)
    call._take()
    assert call.code is ErrorCode.NOT_OWNER


@each(OPERATIONS)
def test_an_owner_that_has_forgotten_the_outcome_ends_the_call(request_: Any) -> None:
    call = Routed(request_)
    call.refused(ErrorCode.INDETERMINATE)
    assert call.code is ErrorCode.INDETERMINATE


@each(OPERATIONS)
def test_a_write_is_not_asked_for_again_when_its_outcome_may_be_forgotten(request_: Any) -> None:
    call = Routed(request_, timeout_ms=10 * REPEAT_WITHIN_MS)
    call.advance(REPEAT_WITHIN_MS - RETRY_PAUSE_MS - 1)
    call.lost()
    call.advance(RETRY_PAUSE_MS)
    assert call.sent == [A, A]
    call.lost()
    call.advance(RETRY_PAUSE_MS)
    assert call.code is ErrorCode.INDETERMINATE
    assert call.sent == [A, A]


@each(ALL)
def test_without_an_answer_a_write_is_unknown_and_a_read_has_changed_nothing(request_: Any) -> None:
    call = Routed(request_)
    call.advance(TIMEOUT_MS - 1)
    assert call.answer is None
    call.advance(1)
    assert call.code is (ErrorCode.UNAVAILABLE if request_ in READS + BULK_READS else ErrorCode.INDETERMINATE)
    assert call.router.next_deadline() is None


@each(ALL)
def test_a_call_that_was_never_sent_has_changed_nothing(request_: Any) -> None:
    call = Routed(request_, owner=None)
    call.advance(TIMEOUT_MS)
    assert call.code is ErrorCode.UNAVAILABLE
    assert "no member has told who owns the partition" in call.answer.text
    assert call.sent == []


@each(ALL)
def test_a_partition_without_an_owner_is_waited_for(request_: Any) -> None:
    call = Routed(request_, owner=None)
    call.table(None)
    call.advance(1_000)
    call.table(A)
    assert call.sent == [A]


@each(ONE_KEY)
def test_a_refused_connection_is_told_when_time_is_over(request_: Any) -> None:
    call = Routed(request_)
    while call.answer is None:
        call.router.on_link(LinkRefused(A, "connection refused"), call.now)
        call._take()
        call.advance(RETRY_PAUSE_MS)
    assert "connection refused" in call.answer.text
    assert call.code is ErrorCode.UNAVAILABLE, "nothing was ever sent"


@each(ONE_KEY)
def test_what_was_sent_once_may_be_done_although_every_later_connection_is_refused(request_: Any) -> None:
    call = Routed(request_)
    call.lost()
    while call.answer is None:
        call.router.on_link(LinkRefused(A, "connection refused"), call.now)
        call._take()
        call.advance(RETRY_PAUSE_MS)
    assert len(call.sent) > 1
    assert call.code is (ErrorCode.UNAVAILABLE if request_ in READS else ErrorCode.INDETERMINATE)


@each(ALL)
def test_a_request_to_one_who_is_not_there_says_that_nothing_was_done(request_: Any) -> None:
    """A request for many is handed back to its caller, others to one member end."""
    call = Routed(request_)
    call.router.on_link(LinkRefused(A, "connection refused"), call.now)
    call._take()
    assert call.code is (None if request_ in ONE_KEY else ErrorCode.NOT_OWNER)
    direct = Routed(request_, to=A)
    direct.router.on_link(LinkRefused(A, "connection refused"), direct.now)
    direct._take()
    assert direct.code is ErrorCode.UNAVAILABLE


@each(ONE_KEY)
@pytest.mark.parametrize("how", ["expired", "removed", "moved", "closed"])
@pytest.mark.parametrize("is_open", [False, True])
def test_what_waits_for_a_connection_has_not_left(request_: Any, how: str, is_open: bool) -> None:
    """The driver says which connections are open; what it has queued for others it sends only if it is still asked."""
    call = Routed(request_, tells_links=True)
    if is_open:
        call.router.on_link_up(A)
    assert call.router.is_current_try(1)
    match how:
        case "removed":
            call.view(B)
        case "moved":
            call.table(B)
            call.refused_again(ErrorCode.NOT_READY, B)
        case "closed":
            call.router.end("the client was closed")
            call._take()
    call.advance(TIMEOUT_MS)
    assert not call.router.is_current_try(1)
    may_be_applied = is_open and request_ not in READS
    assert call.code is (ErrorCode.INDETERMINATE if may_be_applied else ErrorCode.UNAVAILABLE)


def test_a_connection_that_is_gone_is_open_no_more() -> None:
    call = Routed(PUT, owner=None, tells_links=True)
    call.router.on_link_up(A)
    call.lost()
    call.table(A)
    call.advance(TIMEOUT_MS)
    assert (call.sent, call.code) == ([A], ErrorCode.UNAVAILABLE)


@each(ALL)
def test_who_is_no_member_any_more_is_not_asked_although_the_table_still_names_it(request_: Any) -> None:
    call = Routed(request_, owner=None)
    call.view(B)
    call.router.on_table(owned_by(A), call.now)
    call.advance(2 * RETRY_PAUSE_MS)
    assert (call.sent, call.answer) == ([], None)
    call.table(B)
    assert call.sent == [B]


@each(ONE_KEY)
def test_a_call_under_way_at_one_who_is_no_member_any_more_waits_for_the_next_owner(request_: Any) -> None:
    call = Routed(request_)
    call.view(A, B)
    call.view(B)
    call.advance(2 * RETRY_PAUSE_MS)
    assert call.sent == [A]
    call.table(B)
    assert call.sent == [A, B]


@each(BULK)
def test_a_request_for_many_goes_back_to_the_caller_when_its_owner_is_no_member_any_more(request_: Any) -> None:
    call = Routed(request_)
    call.view(B)
    handed_back = ErrorCode.OWNERSHIP_LOST if isinstance(request_, m.WRITES) else ErrorCode.NOT_OWNER
    assert (call.code, call.sent) == (handed_back, [A])


@each([m.Get(1, MAP, KEY), m.GetAll(1, MAP, [KEY])])
def test_one_asked_by_name_is_asked_whether_it_is_a_member_or_not(request_: Any) -> None:
    call = Routed(request_, to=A)
    call.view(B)
    assert (call.sent, call.answer) == ([A], None)


@each(ALL)
@pytest.mark.parametrize("code", list(ErrorCode))
def test_one_member_asked_by_name_has_the_last_word(request_: Any, code: ErrorCode) -> None:
    call = Routed(request_, to=B)
    assert call.sent == [B]
    call.table(A)
    call.refused(code, sender=B)
    assert call.code is code


@each(ALL)
def test_one_member_asked_by_name_and_lost_ends_the_call(request_: Any) -> None:
    call = Routed(request_, to=B)
    call.lost(A)
    assert call.answer is None
    call.lost(B)
    assert call.code is (ErrorCode.UNAVAILABLE if request_ in READS + BULK_READS else ErrorCode.INDETERMINATE)


def test_calls_end_in_their_order_and_leave_nothing_behind() -> None:
    out = Outbox()
    router = CallRouter(TIMEOUT_MS, out)
    router.on_table(owned_by(A), 0)
    for number in range(1, 50):
        router.begin_call(Call(0, m.Get(number, MAP, KEY)), number)
    for number in range(2, 50, 2):
        router.on_reply(A, m.ErrorReply(number, ErrorCode.NOT_READY, "later"), 60)
    now = 60
    while (deadline := router.next_deadline()) is not None:
        now = max(now + 1, deadline)
        router.on_time(now)
    answers = [effect.reply.id for effect in out.take() if isinstance(effect, Answer)]
    assert answers == list(range(1, 50))
    assert repr(router) == "CallRouter(pending=0, waiting=[])"


# --- in a cluster ---------------------------------------------------------------------------------------------------


def test_an_embedded_call_is_answered_by_whoever_owns_the_partition_by_then() -> None:
    c = Cluster("ABC")
    c.assign(rows=["AB"])
    c.hold("C", "A")
    write = c.call("C", m.Put, MAP, KEY, VALUE, 0)
    c.crash("A")
    c.release()
    c.advance(5_000)
    assert c.replies[write] == m.DoneReply(write)
    read = c.call("C", m.Get, MAP, KEY)
    c.settle()
    assert c.replies[read] == m.ValueReply(read, VALUE)


def test_an_embedded_removal_that_its_dead_owner_did_not_get_is_done_by_the_next() -> None:
    c = Cluster("ABC")
    c.assign(rows=["AB"])
    c.put("A", KEY, VALUE)
    c.settle()
    c.hold("C", "A")
    removal = c.call("C", m.Remove, MAP, KEY)
    c.crash("A")
    c.release()
    c.advance(5_000)
    assert c.replies[removal] == m.ValueReply(removal, VALUE)
    assert c.get("B", KEY) is None


@pytest.mark.parametrize("caller", "ABC")
def test_a_call_before_the_first_assignment_does_not_wait_for_another_call(caller: str) -> None:
    """The request for an assignment may be lost, or come while the master still looks for the newest table."""
    c = Cluster("ABC")
    lost: list[m.Message] = []

    def first_requests(sender: str, receiver: str, message: m.Message) -> bool:
        if isinstance(message, m.TableRequest) and len(lost) < 3:
            lost.append(message)
            return True
        return False

    c.swallow = first_requests
    write = c.call(caller, m.Put, MAP, KEY, VALUE, 0)
    c.advance(3_000)
    assert c.replies.get(write) == m.DoneReply(write)


@pytest.mark.parametrize("caller", "BC")
def test_a_call_during_the_search_for_the_newest_table_gets_its_assignment(caller: str) -> None:
    c = Cluster("ABC")
    c.hold("C", "B")
    c.crash("A")
    c.advance(1_500)
    while c.view("B") != "BC":
        c.deliver("C", "B")
    write = c.call(caller, m.Put, MAP, KEY, VALUE, 0)
    c.advance(2_000)
    c.release()
    c.advance(2_000)
    assert c.replies.get(write) == m.DoneReply(write)


# --- maps that are protected ----------------------------------------------------------------------------------------


@each(ALL)
def test_want_of_members_is_told_to_the_caller_at_once_and_nobody_else_is_asked(request_: Any) -> None:
    call = Routed(request_)
    call.refused(ErrorCode.NOT_ENOUGH_MEMBERS)
    assert call.code is ErrorCode.NOT_ENOUGH_MEMBERS
    assert call.sent == [A]
    assert not call.router.waiting


@each(ONE_KEY)
@pytest.mark.parametrize("code", [ErrorCode.NOT_OWNER, ErrorCode.NOT_READY])
def test_want_of_members_is_told_as_such_where_those_asked_before_did_nothing(request_: Any, code: ErrorCode) -> None:
    call = Routed(request_)
    call.refused(code)
    call.table(B)
    call.refused_again(ErrorCode.NOT_ENOUGH_MEMBERS, B)
    assert call.code is ErrorCode.NOT_ENOUGH_MEMBERS
    assert call.answer.id == 1


@pytest.mark.rows("EL-48")
@each(ONE_KEY)
@pytest.mark.parametrize("ended", ["lost", "moved", "ownership lost"])
def test_want_of_members_does_not_say_that_a_write_that_may_be_done_is_not(request_: Any, ended: str) -> None:
    call = Routed(request_)
    if ended == "lost":
        call.lost()
    elif ended == "ownership lost":
        call.refused(ErrorCode.OWNERSHIP_LOST)
    call.table(B)
    assert call.sent == [A, B]
    call.refused_again(ErrorCode.NOT_ENOUGH_MEMBERS, B)
    is_write = isinstance(request_, m.WRITES)
    assert call.code is (ErrorCode.INDETERMINATE if is_write else ErrorCode.NOT_ENOUGH_MEMBERS)
    assert "because" in call.answer.text


# --- parts of an earlier call ---------------------------------------------------------------------------------------


class Several:
    """Calls on one router whose owner never answers; which of them ended when."""

    def __init__(self) -> None:
        self.out = Outbox()
        self.router = CallRouter(TIMEOUT_MS, self.out)
        self.router.on_table(owned_by(A), 0)
        self.ended: list[tuple[int, int]] = []

    def begin(self, request_id: int, now: int, within_ms: int = 0) -> None:
        self.router.begin_call(Call(0, m.GetAll(request_id, MAP, [KEY]), None, within_ms), now)

    def run(self) -> list[tuple[int, int]]:
        self.out.take()
        while (deadline := self.router.next_deadline()) is not None:
            self.router.on_time(deadline)
            told = [each.reply for each in self.out.take() if isinstance(each, Answer)]
            assert told, "a deadline at which nothing ends"
            self.ended += [(deadline, reply.id) for reply in told]
            assert {reply.code for reply in told if isinstance(reply, m.ErrorReply)} == {ErrorCode.UNAVAILABLE}
            assert all(isinstance(reply, m.ErrorReply) for reply in told)
        return self.ended


def test_a_call_with_less_time_ends_sooner_than_those_before_it() -> None:
    calls = Several()
    calls.begin(1, 0)
    calls.begin(2, 10, within_ms=300)
    calls.begin(3, 20, within_ms=100)
    calls.begin(4, 30)
    calls.begin(5, 40, within_ms=2 * TIMEOUT_MS)
    assert calls.run() == [(120, 3), (310, 2), (10_000, 1), (10_030, 4), (10_040, 5)]


def test_ends_of_calls_that_were_answered_do_not_pile_up() -> None:
    calls = Several()
    calls.begin(1, 0)
    for request_id in range(2, 2_000):
        calls.begin(request_id, 1, within_ms=500)
        calls.router.on_reply(A, m.ValuesReply(request_id, []), 2)
        assert len(calls.router._sooner) <= 4 + SPARE_ENDS
    calls.out.take()
    calls.begin(2_000, 3, within_ms=500)
    calls.router.on_time(502)
    calls.router.on_time(503)
    assert [each.reply.id for each in calls.out.take() if isinstance(each, Answer)] == [2_000]
