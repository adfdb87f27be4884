"""PX-49: a call under which two members ended is not asked of a third: the router with messages in hand, and plans on top of it."""

import itertools
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from phalanx.calls.call_router import RETRY_PAUSE_MS, CallRouter
from phalanx.calls.lost_members import ended_in_turn
from phalanx.common.errors import ErrorCode, IndeterminateWrite, UnavailableError
from phalanx.common.ids import MemberId, Target, member_id
from phalanx.common.table import PartitionTable, build_table
from phalanx.machine.effects import Answer, Send
from phalanx.machine.inputs import Call, LinkLost, LinkRefused
from phalanx.machine.outbox import Outbox
from phalanx.maps.call_plans import CallOwners, CallPlan, FindTable, Pause, RefreshTable
from phalanx.maps.journal_plans import JournalPlans
from phalanx.maps.journals import Position
from phalanx.maps.map_plans import MapPlans
from phalanx.wire import messages as m
from phalanx_protocols.hazelcast.errors import Code, refusal_of
from phalanx_protocols.resp.answers import error_of, refusal
from support.harness import address

A, B, C, D = (member_id(address(name), "1") for name in "ABCD")
A2 = member_id(address("A"), "2")
T = TypeVar("T")
KEY = b"key"
VALUE = b"\0\0\0\0v"
WRITES = [
    m.Put(1, "m", KEY, VALUE, 0),
    m.UpdateValue(1, "m", KEY, "add", [VALUE], None),
    m.AcquireLock(1, "m", KEY, "me", 0, 1_000, 0, 0),
    m.UpdateWhere(1, "m", 0, 1, b"", "max", [VALUE]),
]
READS = [m.Get(1, "m", KEY), m.Contains(1, "m", KEY)]


def by_name(request: Any) -> str:
    return type(request).__name__


class Cluster:
    """Members in a line: when the owner of the one partition is gone, the next one owns it."""

    call_timeout_s = 10.0

    def __init__(self, *members: MemberId, tells_links: bool = True) -> None:
        self.members = list(members)
        self.now = 0
        self.version = 1
        self.next_id = itertools.count(1).__next__
        self.out = Outbox()
        self.router = CallRouter(10_000, self.out, tells_links=tells_links)
        self.asked: list[Target] = []
        self.answers: dict[int, Any] = {}
        self.on_asked: Callable[[Target, Any], None] = lambda member, request: None
        """What becomes of a request."""
        self.publish()

    @property
    def table(self) -> PartitionTable:
        return build_table([tuple(self.members)], [self.version])

    def publish(self) -> None:
        self.router.on_view(set(self.members), self.now)
        self.router.on_table(self.table, self.now)
        self.take()

    def take(self) -> None:
        for effect in self.out.take():
            if isinstance(effect, Send):
                self.router.on_link_up(effect.to)
                self.asked.append(effect.to)
                self.on_asked(effect.to, effect.message)
            elif isinstance(effect, Answer):
                self.answers[effect.reply.id] = effect.reply

    def begin(self, request: Any, **named: Any) -> None:
        self.router.begin_call(Call(0, request, **named), self.now)
        self.take()

    def lose(self, member: Target) -> None:
        """The connection breaks."""
        self.router.on_link(LinkLost(member), self.now)
        self.take()

    def end(self, member: Target) -> None:
        """It is gone, and the next one owns its partitions."""
        self.lose(member)
        self.members.remove(member)  # type: ignore[arg-type]  # a member
        self.version += 1
        self.publish()

    def advance(self, ms: int = RETRY_PAUSE_MS) -> None:
        self.now += ms
        self.router.on_time(self.now)
        self.take()

    def play(self, plan: CallPlan[T]) -> T:
        outcome: Any = None
        while True:
            try:
                step = plan.send(outcome)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            match step:
                case CallOwners(requests=requests, lost=lost):
                    for partition, request in requests:
                        self.router.begin_call(Call(partition, request, None, 0, lost), self.now)
                        self.take()
                    while not all(request.id in self.answers for _, request in requests):
                        self.advance()
                    outcome = [self.answers.pop(request.id) for _, request in requests]
                case FindTable() | RefreshTable():
                    outcome = self.table
                case Pause(seconds=seconds):
                    self.now += int(seconds * 1000)
                    outcome = None


def kill(cluster: Cluster) -> None:
    """Whoever is asked ends."""
    cluster.on_asked = lambda member, request: cluster.end(member)


# --- one call ---------------------------------------------------------------------------------------------------------


@pytest.mark.rows("PX-49")
@pytest.mark.parametrize("request_", WRITES + READS, ids=by_name)
@pytest.mark.parametrize("tells_links", [True, False], ids=["client", "member"])
def test_it_is_not_asked_of_a_third(request_: Any, tells_links: bool) -> None:
    cluster = Cluster(A, B, C, D, tells_links=tells_links)
    cluster.begin(request_)
    cluster.end(A)
    assert cluster.asked == [A, B]
    cluster.end(B)
    assert cluster.asked == [A, B]
    answer = cluster.answers[1]
    assert answer.code is (ErrorCode.INDETERMINATE if request_ in WRITES else ErrorCode.UNAVAILABLE)
    assert f"two members ended while they served this, {A} and {B}; it is not asked of another" in answer.text
    assert ("it was perhaps applied" in answer.text) is (request_ in WRITES)
    assert answer.lost == (A, B)
    assert cluster.router.next_deadline() is None


@pytest.mark.rows("PX-49")
@pytest.mark.parametrize("request_", WRITES + READS, ids=by_name)
def test_one_that_ended_is_an_accident(request_: Any) -> None:
    cluster = Cluster(A, B, C)
    cluster.begin(request_)
    cluster.end(A)
    assert cluster.asked == [A, B]
    assert cluster.answers == {}


def test_a_member_that_was_started_again_at_its_address_is_another_one() -> None:
    cluster = Cluster(A, A2, C)
    cluster.begin(WRITES[0])
    cluster.end(A)
    cluster.end(A2)
    assert cluster.asked == [A, A2]
    assert cluster.answers[1].lost == (A, A2)


def test_members_that_hang_and_are_removed_count_too() -> None:
    cluster = Cluster(A, B, C)
    cluster.begin(WRITES[0])
    for _ in range(2):
        cluster.members.pop(0)
        cluster.version += 1
        cluster.publish()
    assert cluster.asked == [A, B]
    assert cluster.answers[1].lost == (A, B)


@pytest.mark.rows("PX-49")
def test_connections_that_break_end_nobody() -> None:
    """Of both the connection broke, and both are members still: the partition has only moved."""
    cluster = Cluster(A, B, C)
    cluster.begin(WRITES[0])
    for _ in range(2):
        cluster.lose(cluster.members[0])
        cluster.members.append(cluster.members.pop(0))
        cluster.version += 1
        cluster.publish()
    assert cluster.asked == [A, B, C]
    assert cluster.answers == {}


def test_one_member_that_is_lost_again_and_again_is_one() -> None:
    cluster = Cluster(A, B, C)
    cluster.begin(WRITES[0])
    for _ in range(3):
        cluster.lose(A)
        cluster.advance()
    cluster.end(A)
    assert cluster.asked == [A, A, A, A, B]
    assert cluster.answers == {}


def test_whom_the_request_never_reached_it_has_not_ended() -> None:
    cluster = Cluster(A, B, C, tells_links=True)
    cluster.begin(WRITES[0])
    for member in (A, B):
        cluster.router.on_link(LinkRefused(member, "connection refused"), cluster.now)
        cluster.take()
        cluster.members.remove(member)
        cluster.version += 1
        cluster.publish()
    assert cluster.asked == [A, B, C]
    assert cluster.answers == {}


def test_a_migration_ends_nobody() -> None:
    cluster = Cluster(A, B, C)
    cluster.begin(WRITES[0])
    for _ in range(2):
        cluster.members.append(cluster.members.pop(0))
        cluster.version += 1
        cluster.publish()
    cluster.members[1:] = []  # both leave in order, after that
    cluster.publish()
    assert cluster.asked == [A, B, C]
    assert cluster.answers == {}


def test_members_that_end_together_are_one_of_each_round() -> None:
    """Of two requests of one round each lost one: none lost two."""
    members = {C, D}
    assert ended_in_turn(((A, B),), members) == (A,)
    assert ended_in_turn(((A, B), (A,)), members) == (A,)
    assert ended_in_turn(((A,), (A, B)), members) == (A, B)
    assert ended_in_turn(((A,), (C,)), members) == (A,)
    assert ended_in_turn(((A,), (B,)), None) == (A, B)


# --- calls of several requests ----------------------------------------------------------------------------------------


def read_a_page(cluster: Cluster) -> Any:
    return MapPlans("m", cluster).scan_data([0], 1).next_pages()


BULK_WRITES: dict[str, Callable[[Cluster], Any]] = {
    "put_all": lambda cluster: MapPlans("m", cluster).put_data([KEY], [VALUE], 0),
    "clear": lambda cluster: MapPlans("m", cluster).clear(),
    "update_where": lambda cluster: MapPlans("m", cluster).update_where((), "max", [VALUE], lambda number: number),
}
BULK_READS: dict[str, Callable[[Cluster], Any]] = {
    "get_all": lambda cluster: MapPlans("m", cluster).get_data([KEY]),
    "size": lambda cluster: MapPlans("m", cluster).size(),
    "scan": read_a_page,
    "journal": lambda cluster: JournalPlans("m", cluster).read(
        {0: Position(1, 0)}, 10, JournalPlans("m", cluster).time_limit()
    ),
}


@pytest.mark.rows("PX-49")
@pytest.mark.parametrize("name", BULK_WRITES | BULK_READS)
def test_plans_that_ask_in_other_groups_ask_no_third_either(name: str) -> None:
    cluster = Cluster(A, B, C, D)
    kill(cluster)
    error = IndeterminateWrite if name in BULK_WRITES else UnavailableError
    with pytest.raises(error, match="two members ended while they served this") as raised:
        cluster.play((BULK_WRITES | BULK_READS)[name](cluster))
    assert cluster.asked == [A, B]
    assert raised.value.ended_members == (A, B)
    assert "calling again is safe" not in str(raised.value)


def test_a_round_that_was_answered_begins_a_new_count() -> None:
    """Members end in the course of a long scan, each while it serves another page."""
    cluster = Cluster(A, B, C, D)
    scan = MapPlans("m", cluster).scan_data([0], 1)
    pages = itertools.count()

    def serve(member: Target, request: Any) -> None:
        if member in (A, B) and next(pages) % 2:
            cluster.end(member)
        else:
            cluster.router.on_reply(member, m.PageReply(request.id, [KEY], [VALUE], member != D), cluster.now)
            cluster.take()

    cluster.on_asked = serve
    for _ in range(4):
        assert cluster.play(scan.next_pages())
    assert {A, B, C} >= set(cluster.asked) > {A, B}


# --- clients of other systems -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "word"), [(ErrorCode.INDETERMINATE, b"-INDETERMINATE "), (ErrorCode.UNAVAILABLE, b"-ERR ")]
)
def test_clients_of_other_systems_do_not_repeat_it_by_themselves(code: ErrorCode, word: bytes) -> None:
    """A client of Redis repeats what is answered with TRYAGAIN, one of Hazelcast what is retryable."""
    told = m.ErrorReply(1, code, "two members ended while they served this", (A, B))
    assert refusal(told).startswith(word)
    error = (
        IndeterminateWrite("two members ended") if code is ErrorCode.INDETERMINATE else UnavailableError("two ended")
    )
    error.ended_members = (A, B)
    assert error_of(None, "get", error).startswith(word)  # type: ignore[arg-type]  # the grid gets other errors only
    assert refusal_of(error).code is Code.INDETERMINATE
