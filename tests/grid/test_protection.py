"""Maps that refuse to be used where the cluster is too small: at the owner, when asked and when answered."""

from typing import Any

import pytest

from phalanx.common.errors import ErrorCode, NotEnoughMembers
from phalanx.common.map_settings import MapChange, Protection
from phalanx.grid.replication.protection import ProtectionGuard
from phalanx.machine.inputs import Received
from phalanx.machine.outbox import Outbox
from phalanx.maps.requests import raise_error
from phalanx.wire import messages as m
from phalanx.wire.table_events import ProtectionChanged
from support.harness import CLIENT, KEY, MAP, TEXT, Cluster, local_at

OLD, NEW = TEXT + b"old", TEXT + b"new"
NUMBER = 1_000
"""Of the operation that is asked for more than once; what the harness asks has lower numbers."""

READS: dict[str, tuple[Any, ...]] = {
    "get": (m.Get, MAP, KEY),
    "contains": (m.Contains, MAP, KEY),
    "get_all": (m.GetAll, MAP, [KEY]),
    "size": (m.SizeOf, MAP, [0]),
    "scan": (m.ScanPartition, MAP, 0, 1, b"", 1000),
}
WRITES: dict[str, tuple[Any, ...]] = {
    "put": (m.Put, MAP, KEY, NEW, 0),
    "put_if_absent": (m.PutIfAbsent, MAP, KEY, NEW, 0),
    "replace": (m.Replace, MAP, KEY, None, NEW, 0),
    "compare_and_set": (m.Replace, MAP, KEY, OLD, NEW, 0),
    "remove": (m.Remove, MAP, KEY),
    "put_all": (m.PutAll, MAP, [KEY], [NEW], 0),
    "clear": (m.ClearPartitions, MAP, [0]),
}
ALL = READS | WRITES


def request_of(kind: str, id: int = NUMBER) -> Any:
    make, *fields = ALL[kind]
    if make in (m.SizeOf, m.ClearPartitions):
        fields.append(1)
    return make(id, *fields)


def protect(c: Cluster, **protection: Any) -> None:
    """By the master, which is the first member."""
    asked = c.ask(next(iter(c.nodes)), m.ChangeMap, MAP, MapChange(protection=Protection(**protection)))
    c.settle()
    assert c.is_done(asked)


def code_of(reply: Any) -> ErrorCode | None:
    return reply.code if isinstance(reply, m.ErrorReply) else None


def ask(c: Cluster, name: str, kind: str, id: int = NUMBER) -> Any:
    c.feed(name, Received(CLIENT, request_of(kind, id)))
    c.settle()
    return c.replies[id]


def holding(names: str, **settings: Any) -> Cluster:
    """The first member owns the one partition, and holds an entry."""
    c = Cluster(names, **settings)
    c.assign(rows=[names[: c.settings["backup_count"] + 1]])
    c.put(names[0], KEY, OLD)
    c.settle()
    return c


@pytest.mark.rows("EL-48", "EL-49")
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    ("minimum", "is_served"),
    [(0, True), (1, True), (2, True), (3, True), (4, False)],
    ids=["0", "1", "m-1", "m", "m+1"],
)
def test_fewer_members_than_the_minimum_are_refused_and_as_many_are_not(
    kind: str, minimum: int, is_served: bool
) -> None:
    c = holding("ABC")
    protect(c, minimum=minimum)
    reply = ask(c, "A", kind)
    if is_served:
        assert code_of(reply) is None
        return
    assert code_of(reply) is ErrorCode.NOT_ENOUGH_MEMBERS
    what = "reads" if kind in READS else "writes"
    assert reply.text == (
        f"map 'm' refuses {what}: it needs at least 4 members that hold data, and 3 are here by member list "
        f"{c.version('A')}; start or reconnect members, or change this with 'phalanx map protect'"
    )
    assert c.entries("A") == {KEY: OLD}, "nothing was changed"
    assert not c.nodes["A"].grid.leader.unsettled


@pytest.mark.rows("EL-48")
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(("reads", "writes"), [(True, True), (True, False), (False, True)])
def test_reads_or_writes_or_both_are_refused(kind: str, reads: bool, writes: bool) -> None:
    c = holding("AB")
    protect(c, minimum=3, reads=reads, writes=writes)
    is_refused = reads if kind in READS else writes
    assert code_of(ask(c, "A", kind)) is (ErrorCode.NOT_ENOUGH_MEMBERS if is_refused else None)


@pytest.mark.rows("EL-48")
@pytest.mark.parametrize("kind", ALL)
def test_protection_that_was_turned_off_refuses_nothing(kind: str) -> None:
    c = holding("AB")
    protect(c, minimum=3)
    assert code_of(ask(c, "A", kind)) is ErrorCode.NOT_ENOUGH_MEMBERS
    protect(c)
    assert code_of(ask(c, "A", kind, NUMBER + 1)) is None


@pytest.mark.rows("EL-48")
def test_a_cluster_of_one_starts_with_protection_and_serves_when_the_others_have_come() -> None:
    c = Cluster("A", maps={MAP: {"minimum_members": 2}, "alone": {"minimum_members": 1}})
    c.assign()
    assert code_of(ask(c, "A", "put")) is ErrorCode.NOT_ENOUGH_MEMBERS
    other = c.ask("A", m.Put, "other", KEY, NEW, 0)
    alone = c.ask("A", m.Put, "alone", KEY, NEW, 0)
    assert c.is_done(other)
    assert c.is_done(alone)
    c.join("B")
    c.advance(1_000)
    owner = c.replicas("A")[0]
    assert code_of(ask(c, owner, "put", NUMBER + 1)) is None


@pytest.mark.rows("EL-48")
def test_lite_members_are_not_counted() -> None:
    c = holding("AB")
    c.start("C", lite=True)
    c.settle()
    assert c.view("A") == "ABC"
    protect(c, minimum=3)
    assert code_of(ask(c, "A", "get")) is ErrorCode.NOT_ENOUGH_MEMBERS
    assert "2 are here" in c.replies[NUMBER].text  # type: ignore[union-attr]  # an error


@pytest.mark.parametrize("kind", ALL)
def test_one_that_does_not_own_the_partition_names_the_owner_all_the_same(kind: str) -> None:
    c = holding("AB")
    protect(c, minimum=3)
    assert code_of(ask(c, "B", kind)) is ErrorCode.NOT_OWNER


@pytest.mark.parametrize("kind", ALL)
def test_a_call_of_the_embedding_program_is_refused_at_once(kind: str) -> None:
    c = holding("AB")
    protect(c, minimum=3)
    make, *fields = ALL[kind]
    if make in (m.SizeOf, m.ClearPartitions):
        fields.append(1)
    asked = c.call("B", make, *fields)
    c.settle()
    assert code_of(c.replies[asked]) is ErrorCode.NOT_ENOUGH_MEMBERS
    with pytest.raises(NotEnoughMembers, match="nothing was changed"):
        raise_error(c.replies[asked], kind)  # type: ignore[arg-type]  # an error


def test_what_goes_past_the_owners_requests_in_the_embedding_program_does_not_go_past_protection() -> None:
    c = holding("A", backup_count=0)
    protect(c, minimum=2)
    grid = c.nodes["A"].grid
    assert grid.guard.watches(MAP)
    assert local_at(c).put(MAP, KEY, NEW) == 0
    assert c.entries("A") == {KEY: OLD}
    assert local_at(c).put("other", KEY, NEW) is None


# --- a view that shrinks --------------------------------------------------------------------------------------------

ABOUT_WRITES = (m.ReplicateAck, m.ReplicateAcks, m.ProbeAnswer)
BACKED = ("put", "put_if_absent", "replace", "compare_and_set", "remove", "put_all", "clear")


def waiting(kind: str, *, minimum: int = 3) -> Cluster:
    """A write of a map that needs three members has been applied at A, and waits for B, its backup; M leads."""
    c = Cluster("MABC", backup_count=1)
    c.assign(rows=["AB"])
    protect(c, minimum=minimum)
    if kind != "put_if_absent":
        c.put("A", KEY, OLD)
    c.settle()
    c.swallow = lambda sender, receiver, message: sender == "B" and isinstance(message, ABOUT_WRITES)
    c.feed("A", Received(CLIENT, request_of(kind)))
    c.settle()
    assert NUMBER not in c.replies
    return c


@pytest.mark.rows("EL-48", "EL-50")
@pytest.mark.parametrize("kind", BACKED)
def test_a_write_that_came_in_time_is_not_acknowledged_when_its_backup_leaves_with_too_many(kind: str) -> None:
    c = waiting(kind)
    c.crash("BC")
    c.advance(3_000)
    assert c.view("A") == "MA"
    reply = c.replies[NUMBER]
    assert code_of(reply) is ErrorCode.INDETERMINATE
    assert "it was applied here and is not confirmed" in reply.text  # type: ignore[union-attr]  # an error
    assert "needs at least 3 members that hold data, and 2 are here" in reply.text  # type: ignore[union-attr]


@pytest.mark.rows("EL-48")
@pytest.mark.parametrize("kind", BACKED)
def test_a_write_that_came_in_time_is_not_acknowledged_when_its_backup_confirms_too_late(kind: str) -> None:
    c = waiting(kind)
    c.crash("MC")
    c.advance(6_000)
    assert c.view("A") == "AB"
    assert c.master("A") == "A"
    assert NUMBER not in c.replies
    c.swallow = lambda sender, receiver, message: False
    c.advance(2_000)
    assert code_of(c.replies[NUMBER]) is ErrorCode.INDETERMINATE


@pytest.mark.parametrize("kind", BACKED)
def test_a_write_is_acknowledged_while_enough_are_left(kind: str) -> None:
    c = waiting(kind, minimum=2)
    c.crash("BC")
    c.advance(3_000)
    assert c.view("A") == "MA"
    assert code_of(c.replies[NUMBER]) is None


@pytest.mark.rows("EL-48")
@pytest.mark.parametrize("kind", ["put", "put_if_absent", "replace", "compare_and_set", "remove"])
def test_a_retry_does_not_confirm_on_a_small_side_what_was_withheld_there(kind: str) -> None:
    c = waiting(kind)
    c.crash("BC")
    c.advance(3_000)
    again = msgspec_retry(request_of(kind), -1)
    c.feed("A", Received(CLIENT, again))
    c.settle()
    assert code_of(c.replies[-1]) is ErrorCode.INDETERMINATE, "and not NotEnoughMembers: it was applied"
    # One that never came is a clear refusal.
    other = c.ask("A", m.Put, MAP, KEY, NEW, 0)
    assert code_of(c.replies[other]) is ErrorCode.NOT_ENOUGH_MEMBERS
    # When there are enough again, it is answered as it was.
    c.join("D")
    c.advance(2_000)
    owner = c.replicas("M")[0]
    c.feed(owner, Received(CLIENT, msgspec_retry(request_of(kind), -2)))
    c.settle()
    assert code_of(c.replies[-2]) is None
    if kind in ("replace", "compare_and_set"):
        assert c.replies[-2] == m.FlagReply(-2, True)


@pytest.mark.rows("EL-48")
def test_the_next_owner_does_not_confirm_on_a_small_side_what_the_first_one_applied() -> None:
    c = Cluster("MABC", backup_count=1)
    c.assign(rows=["AB"])
    protect(c, minimum=3)
    c.hold("B", "A")
    c.feed("A", Received(CLIENT, request_of("put")))
    c.settle()
    c.crash("AC")
    c.advance(3_000)
    assert c.replicas("B")[0] == "B"
    c.feed("B", Received(CLIENT, msgspec_retry(request_of("put"), -1)))
    c.settle()
    assert code_of(c.replies[-1]) is ErrorCode.INDETERMINATE


def msgspec_retry(request: Any, id: int) -> Any:
    import msgspec

    return msgspec.structs.replace(request, id=id, op=request.id)


def test_what_another_side_has_kept_is_taken_in_all_the_same() -> None:
    """It was acknowledged when it was written, and is safer here than where it is kept."""
    c = holding("ABC")
    c.ask("A", m.ChangeMap, "*", MapChange(protection=Protection(4)))
    c.settle()
    answers: list[Any] = []

    def note(sender: str, receiver: str, message: Any) -> bool:
        if (sender, receiver) == ("A", "C") and isinstance(message, m.Reply):
            answers.append(message)
        return False

    c.swallow = note
    stamp = c.nodes["A"].clock.stamp(c.now + 1_000)
    version = stamp.to_bytes(8, "big") + NEW
    c.say("C", "A", m.MergeEntries(7, MAP, c.id("C"), stamp, [KEY], [version], [], [], []))
    c.settle()
    assert answers == [m.CountReply(7, 1)]
    assert c.entries("A") == c.entries("B") == {KEY: NEW}
    assert code_of(ask(c, "A", "get")) is ErrorCode.NOT_ENOUGH_MEMBERS


# --- the majority ---------------------------------------------------------------------------------------------------


@pytest.mark.rows("EL-48", "EL-50", "EL-63")
def test_a_cut_leaves_the_majority_serving_and_the_minority_refusing_and_unprotected_maps_on_both() -> None:
    c = Cluster("ABCDE", backup_count=4)
    c.assign(rows=["ABCDE"])
    protect(c, majority=True)
    c.put("A", KEY, OLD)
    c.settle()
    c.cut("AB", "CDE")
    c.advance(60_000)
    assert c.views_of("AC") == ["AB", "CDE"]
    for number, kind in enumerate(ALL, start=NUMBER):
        small = ask(c, c.replicas("A")[0], kind, number)
        assert code_of(small) is ErrorCode.NOT_ENOUGH_MEMBERS, kind
        assert small.text.startswith("map 'm' refuses ")
        assert "it needs the majority: " in small.text
    for number, kind in enumerate(ALL, start=2 * NUMBER):
        assert code_of(ask(c, c.replicas("C")[0], kind, number)) is None, kind
    for name in "AC":
        asked = c.ask(c.replicas(name)[0], m.Put, "free", KEY, NEW, 0)
        c.settle()
        assert c.is_done(asked), f"{name}: availability goes before consistency unless a map says otherwise"


@pytest.mark.rows("EL-50")
def test_what_is_told_of_a_change_is_told_once_at_each_member_with_the_numbers() -> None:
    c = holding("ABC")
    protect(c, minimum=3)
    assert not c.events_of("A", ProtectionChanged)
    c.crash("C")
    c.advance(3_000)
    for number in range(3):
        ask(c, "A", "get", NUMBER + number)
    for name in "AB":
        (told,) = c.events_of(name, ProtectionChanged)
        assert (told.map, told.refuses, told.minimum, told.present) == (MAP, True, 3, 2)
        assert told.view_version == c.version(name)
        assert told.owner == c.id(name)
        assert "it needs at least 3 members that hold data, and 2 are here" in told.reason
    c.join("D")
    c.advance(1_000)
    for name in "AB":
        _, told = c.events_of(name, ProtectionChanged)
        assert (told.map, told.refuses, told.present, told.reason) == (MAP, False, 3, "")
    assert not c.events_of("D", ProtectionChanged)


class Asked:
    """A side that has the majority for sure, or not."""

    def __init__(self) -> None:
        self.until = 10

    def may_acknowledge(self, now: int) -> bool:
        return now < self.until

    def majority_words(self) -> str:
        return "1 of 3"


def test_the_majority_may_be_lost_by_time_alone() -> None:
    c = holding("AB")
    view, plan = c.nodes["A"].membership.view, c.table("A").maps
    assert view is not None
    out, asked = Outbox(), Asked()
    guard = ProtectionGuard(plan, 1, asked, out)
    guard.on_view(view, 0)
    guard.on_plan(plan.with_change(MAP, MapChange(protection=Protection(majority=True))), 1)
    assert guard.why_refused(MAP, is_write=False, now=9) == ""
    assert "it needs the majority: 1 of 3" in guard.why_refused(MAP, is_write=False, now=10)
    assert guard.find_withheld(MAP, 10)
    assert not guard.why_refused("other", is_write=True, now=10)
    guard.on_time(9)
    assert not out.recorded
    guard.on_time(10)
    guard.on_time(11)
    asked.until = 99
    guard.on_time(12)
    told = [event for event in out.recorded if isinstance(event, ProtectionChanged)]
    assert [event.refuses for event in told] == [True, False]


def test_where_nothing_is_protected_or_enough_are_here_operations_are_not_asked_about() -> None:
    c = holding("ABC")
    guard = c.nodes["A"].grid.guard
    assert not guard.is_watchful
    protect(c, minimum=3)
    assert not guard.is_watchful
    protect(c, minimum=4)
    assert guard.is_watchful
    assert guard.watches(MAP)
    assert not guard.watches("other")
