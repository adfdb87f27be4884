"""How members get into a cluster (docs/protocol/joining.md): attempts, redirects, refusals, and who may form one."""

from typing import Any

import msgspec
import pytest

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, member_id
from phalanx.common.versions import Release, this_release
from phalanx.common.view import MembersView
from phalanx.machine.effects import Finished, Record, Send
from phalanx.machine.inputs import LinkLost, LinkRefused, Received, Started, TimePassed
from phalanx.membership.join.joining import Joining, JoinOutcome
from phalanx.membership.views.acknowledgements import PendingView
from phalanx.node.node import Node
from phalanx.wire import messages as m
from phalanx.wire.join_events import JoinAnswered, JoinAttemptFailed, Joined, MemberAdmitted
from phalanx.wire.suspicion_events import StaleMessageIgnored
from support.harness import PORT, Cluster, Lone, address, lone_context, lone_id, lone_view


class Joiner:
    """A member that has just started."""

    def __init__(self, name: str, seeds: str, **settings: object) -> None:
        self.now = 0
        config = NodeConfig(seeds=tuple(address(seed) for seed in seeds), partition_count=1, **settings)  # type: ignore[arg-type]
        self.node = Node(lone_id(name), config)
        self.asked: list[tuple[str, m.JoinRequest]] = []
        self.sent: list[tuple[str, object]] = []
        self.events: list[object] = []
        self.finished: Finished | None = None
        self.feed(Started())

    def feed(self, event: object) -> None:
        for effect in self.node.handle(event, self.now):  # type: ignore[arg-type]
            if isinstance(effect, Send):
                self.sent.append((effect.to, effect.message))
                if isinstance(effect.message, m.JoinRequest):
                    self.asked.append((effect.to, effect.message))
            elif isinstance(effect, Record):
                self.events.append(effect.event)
            elif isinstance(effect, Finished):
                self.finished = effect

    def hear(self, sender: str, make: type, *fields: object) -> None:
        """An answer to the present request."""
        self.feed(Received(lone_id(sender), make(self.asked[-1][1].request_id, *fields)))

    def refused(self, name: str) -> None:
        self.feed(LinkRefused(address(name), "connection refused"))

    def advance(self, ms: int) -> None:
        end = self.now + ms
        while (deadline := self.node.next_deadline()) is not None and deadline <= end and self.finished is None:
            self.now = max(self.now, deadline)
            self.feed(TimePassed())
        self.now = end

    @property
    def has_formed(self) -> bool:
        view = self.node.membership.view
        return view is not None and view.members == (self.node.this,)


def new_view(names: str, version: int) -> MembersView:
    """The view of members of this build alone, by the first of them."""
    view = lone_view(names, version)
    return msgspec.structs.replace(
        view, cluster_version=m.PROTOCOL_VERSION, releases=(this_release(),), release_indices=(1,) * len(view.members)
    )


def join_request(name: str, number: int, **fields: Any) -> m.JoinRequest:
    """What a member of this build asks."""
    return m.JoinRequest(
        number, lone_id(name), "phalanx", m.OLDEST_PROTOCOL_VERSION, 1, release=this_release(), **fields
    )


@pytest.mark.rows("EL-04", "EL-05", "CS-26")
@pytest.mark.parametrize("seeds", ["", "A"])
def test_the_seed_forms_the_cluster_at_once_and_without_a_message(seeds: str) -> None:
    a = Joiner("A", seeds)
    assert a.node.membership.view == new_view("A", 1)
    assert a.sent == []
    joined = [event for event in a.events if isinstance(event, Joined)]
    assert [(event.view_version, event.members) for event in joined] == [(1, (lone_id("A"),))]
    a.feed(Received(lone_id("B"), join_request("B", 7)))
    footing = a.node.membership.majority.quorum.footing
    assert (lone_id("B"), m.JoinResponse(7, new_view("AB", 2), footing=footing, departures=())) in a.sent


@pytest.mark.parametrize(
    ("release", "version"), [(Release(), m.OLDEST_PROTOCOL_VERSION), (this_release(), m.PROTOCOL_VERSION)]
)
def test_a_cluster_begins_with_the_older_version_if_a_process_of_the_older_release_was_found(
    release: Any, version: int
) -> None:
    """PX-44: 1. X keeps data aside. 2. All others end, and are upgraded. 3. A forms the cluster, and must not refuse X."""
    a = Joiner("A", "AX")
    a.hear(
        "X", m.JoinRefused, True, "this member has not joined a cluster itself yet", False, False, False, (), release
    )
    assert a.has_formed
    view = a.node.membership.state.joined()
    assert view.cluster_version == version
    a.advance(10_000)
    assert a.node.membership.state.joined().cluster_version == version
    if version == m.OLDEST_PROTOCOL_VERSION:
        a.feed(Received(lone_id("X"), m.JoinRequest(3, lone_id("X"), "phalanx", m.OLDEST_PROTOCOL_VERSION, 1)))
        assert a.node.membership.state.joined().members == (lone_id("A"), lone_id("X"))
        assert not a.node.membership.gone.departures.awaited(m.PROTOCOL_VERSION, a.now)


@pytest.mark.parametrize(("is_deserted", "version"), [(False, m.OLDEST_PROTOCOL_VERSION), (True, m.PROTOCOL_VERSION)])
def test_a_cluster_begins_with_the_older_version_if_a_seed_did_not_answer(is_deserted: bool, version: int) -> None:
    """PX-44: an older side of the cluster may be there, behind a cut. Where no process listens there is none."""
    a = Joiner("A", "AX")
    while not a.has_formed:
        a.feed(LinkRefused(address("X"), "refused", is_deserted=is_deserted))
        a.advance(600)
    a.advance(2_000)
    assert a.node.membership.state.joined().cluster_version == version
    for _ in range(2):
        # Its machine says later that no process listens there: nothing is waited for.
        a.feed(LinkRefused(address("X"), "refused", is_deserted=True))
        a.advance(10_000)
    assert a.node.membership.state.joined().cluster_version == m.PROTOCOL_VERSION


@pytest.mark.rows("EL-03", "EL-12")
def test_a_member_asks_its_seeds_with_an_id_and_its_own_name() -> None:
    c = Joiner("C", "AB")
    request = join_request("C", 1, known=(address("A"), address("B")), may_found=False)
    assert c.asked == [(address("A"), request), (address("B"), request)]


@pytest.mark.rows("EL-08", "EL-09", "EL-10", "EL-11", "EL-12")
def test_a_join_is_tried_five_times_for_five_seconds_and_then_fails() -> None:
    b = Joiner("B", "A")
    b.advance(24_999)
    assert b.finished is None
    assert len({request.request_id for _, request in b.asked}) == 5, "a fresh id for each attempt"
    b.advance(1)
    assert b.finished is not None
    assert b.finished.failed
    failed = [event for event in b.events if isinstance(event, JoinAttemptFailed)]
    assert [event.attempt for event in failed] == [0, 1, 2, 3, 4]
    assert {(event.seed, event.reason) for event in failed} == {(address("A"), "no answer within 5000 ms")}
    assert b.finished.reason.startswith("Unable to join the cluster after 5 attempts")
    assert "A:5701: no answer within 5000 ms" in b.finished.reason
    b.advance(60_000)
    assert len(b.asked) == 5


@pytest.mark.rows("EL-12")
def test_an_answer_with_an_id_that_is_not_the_present_one_is_ignored() -> None:
    b = Joiner("B", "A")
    for make in (m.JoinResponse(2, lone_view("AB", 2)), m.JoinRefused(2, False, "no", True),
                 m.JoinRedirect(2, lone_id("C"))):  # fmt: skip
        b.feed(Received(lone_id("A"), make))
    assert b.node.membership.view is None
    assert b.finished is None
    assert len(b.asked) == 1
    assert [event.rule for event in b.events if isinstance(event, StaleMessageIgnored)] == ["EL-12"]


@pytest.mark.rows("CS-24")
def test_a_list_without_the_joiner_is_no_admission() -> None:
    b = Joiner("B", "A")
    b.hear("A", m.JoinResponse, lone_view("AC", 2))
    assert b.node.membership.view is None


@pytest.mark.rows("EL-13")
def test_an_admitted_member_takes_the_list_and_begins_its_heartbeats() -> None:
    b = Joiner("B", "A")
    b.hear("A", m.JoinResponse, lone_view("AB", 2))
    assert b.node.membership.view == lone_view("AB", 2)
    assert b.node.membership.master == lone_id("A")
    assert [event for event in b.events if isinstance(event, Joined)] != []
    b.advance(0)
    assert (lone_id("A"), m.Heartbeat(2, lone_id("A"))) in b.sent


@pytest.mark.rows("CS-12", "EL-06")
def test_a_seed_that_is_not_the_master_names_it_and_one_that_has_not_joined_asks_for_patience() -> None:
    c = Cluster("AB")
    c.start("C", seeds="B")
    c.settle()
    assert c.view("C") == "ABC"
    c.hold("A", "D")
    c.start("D", seeds="A")
    c.start("E", seeds="D")
    c.settle()
    assert c.view("E") == ""
    c.release()
    c.advance(700)
    assert c.view("E") == "ABCDE"
    assert c.version("E") == 5


@pytest.mark.rows("EL-28", "EL-27")
def test_a_member_that_starts_before_its_seed_keeps_asking_until_it_is_up() -> None:
    c = Cluster(seeds="A")
    c.start("B")
    c.advance(4_000)
    assert c.view("B") == ""
    request = c.ask("B", m.GetMembers)
    assert isinstance(c.replies[request], m.ErrorReply), "it serves nothing before it has joined"
    c.join("A")
    c.advance(1_000)
    assert c.views_of("AB") == ["AB", "AB"]


@pytest.mark.rows("EL-07")
def test_without_a_seed_the_cluster_works_on_and_nobody_new_comes_in() -> None:
    c = Cluster("ABC")
    c.assign()
    c.crash("A")
    c.advance(3_000)
    assert c.views_of("BC") == ["BC", "BC"]
    c.start("D", seeds="A")
    c.advance(26_000)
    assert c.finished["D"].failed
    assert c.views_of("BC") == ["BC", "BC"]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [("cluster", "other", "cluster 'phalanx', not to 'other'"), ("partition_count", 7, "1 partition, the joiner is configured for 7")],
)  # fmt: skip
@pytest.mark.rows("CS-09")
def test_what_members_must_agree_on_is_checked_before_admission(field: str, value: object, reason: str) -> None:
    c = Cluster("A")
    c.start("B", **{field: value})  # type: ignore[arg-type]
    c.settle()
    assert c.finished["B"].failed
    assert reason in c.finished["B"].reason
    assert c.view("A") == "A"


@pytest.mark.rows("CS-09", "CS-77")
def test_another_protocol_is_refused_for_good() -> None:
    c = Cluster("A")
    node = c.nodes["A"]
    later = Release(m.PROTOCOL_VERSION + 1, m.PROTOCOL_VERSION + 1)
    request = m.JoinRequest(1, lone_id("B"), "phalanx", later.oldest, 1, release=later)
    effects = node.handle(Received(lone_id("B"), request), c.now)
    refusal = next(effect.message for effect in effects if isinstance(effect, Send))
    spoken = f"protocols {m.OLDEST_PROTOCOL_VERSION} to {m.PROTOCOL_VERSION}"
    text = f"this cluster speaks {spoken}, not protocol {m.PROTOCOL_VERSION + 1}: upgrade the older side"
    assert refusal == m.JoinRefused(1, False, text, False)


# --- who may form a cluster -------------------------------------------------------------------------------------------


def test_the_first_of_several_seeds_forms_a_cluster_when_no_other_runs() -> None:
    a = Joiner("A", "ABC")
    for _ in range(3):
        assert not a.has_formed
        for name in "BC":
            a.refused(name)
        a.advance(600)
        if a.has_formed:
            break
    assert a.has_formed
    assert a.now <= 2_000


@pytest.mark.parametrize("name", "BC")
def test_another_than_the_first_seed_never_forms_a_cluster(name: str) -> None:
    """Two that start together must not form two."""
    joiner = Joiner(name, "ABC")
    for _ in range(60):
        for other in "ABC".replace(name, ""):
            joiner.refused(other)
        joiner.advance(500)
    assert joiner.finished is not None
    assert joiner.finished.failed
    assert not joiner.has_formed


def test_the_first_seed_forms_when_the_others_are_starting_too() -> None:
    a = Joiner("A", "AB")
    a.hear("B", m.JoinRefused, True, "this member has not joined a cluster itself yet", False)
    assert a.has_formed


@pytest.mark.parametrize("reason", ["the master is suspected", "this member leaves", "claiming"])
def test_a_restarted_first_seed_waits_for_the_cluster_that_went_on(reason: str) -> None:
    """B is in a cluster that is just not ready to admit anybody. To form another one would split the data."""
    a = Joiner("A", "AB")
    for _ in range(8):
        a.hear("B", m.JoinRefused, True, reason, True)
        a.advance(600)
        assert not a.has_formed
    a.hear("B", m.JoinResponse, lone_view("BA", 9))
    assert a.node.membership.view == lone_view("BA", 9)


def test_a_first_seed_that_found_a_cluster_fails_rather_than_forms_one() -> None:
    a = Joiner("A", "AB")
    while a.finished is None and not a.has_formed:
        a.hear("B", m.JoinRefused, True, "the master is suspected", True)
        a.advance(1_000)
    assert a.finished is not None
    assert a.finished.failed


def test_a_seed_that_loses_the_connection_may_have_a_cluster() -> None:
    a = Joiner("A", "AB")
    for _ in range(5):
        a.feed(LinkLost(address("B")))
        a.advance(600)
    assert not a.has_formed


@pytest.mark.parametrize("gone", ["A", "AB", "AC"])
@pytest.mark.parametrize("after_ms", [0, 100, 250, 400, 600, 2_000])
def test_a_seed_that_restarts_at_any_moment_joins_the_survivors(gone: str, after_ms: int) -> None:
    c = Cluster("ABCD", seeds="ABC")
    c.crash(gone)
    c.advance(after_ms)
    for name in gone:
        c.start(name)
    c.advance(20_000)
    for name in [name for name in "ABCD" if name not in c.nodes]:
        c.rejoin(name)
    c.advance(3_000)
    views = {"".join(sorted(view)) for view in c.views_of("ABCD")}
    assert views == {"ABCD"}
    assert len({c.master(name) for name in "ABCD"}) == 1


@pytest.mark.parametrize(
    "delays", [(0, 0, 0), (0, 300, 900), (900, 300, 0), (300, 0, 900), (2_000, 0, 100), (0, 4_000, 0)]
)
def test_seeds_that_start_at_any_time_find_each_other(delays: tuple[int, int, int]) -> None:
    c = Cluster(seeds="ABC")
    for at, name in sorted(zip(delays, "ABC", strict=True)):
        c.advance(at - (c.now - 100_000))
        c.start(name)
    c.advance(12_000)
    assert {"".join(sorted(view)) for view in c.views_of("ABC")} == {"ABC"}


# --- the master's side ------------------------------------------------------------------------------------------------


@pytest.mark.rows("CS-10", "EL-14", "EL-15", "EL-16", "EL-17", "EL-18", "EL-27", "EL-23", "EL-24")
def test_a_join_is_answered_when_all_existing_members_have_acknowledged_the_list() -> None:
    """athens, byzantium, cyrene; delphi asks to join."""
    c = Cluster("ABC")
    c.hold_all()
    c.start("D")
    sent_to_joiner: list[m.Message] = []

    def listen(sender: str, receiver: str, message: m.Message) -> bool:
        if receiver == "D" and isinstance(message, m.MembersUpdate):
            sent_to_joiner.append(message)
        return False

    c.swallow = listen
    c.release("D", "A")
    c.release("A", "D")
    c.settle()
    assert c.view("A") == "ABCD"
    assert c.version("A") == 4
    assert [len(c.pending("A", member, m.MembersUpdate)) for member in "ABC"] == [0, 1, 1]
    assert sent_to_joiner == [], "it was no member before: its answer is the list"
    for member in "BC":
        assert c.view("D") == ""
        c.deliver("A", member, m.MembersUpdate)
        assert c.view(member) == "ABCD"
        c.deliver(member, "A", m.MembersAck)
        c.settle()
    assert c.view("D") == "ABCD"
    answered = c.events_of("A", JoinAnswered)[-1]
    assert (answered.joiner, answered.late) == (c.id("D"), ())


@pytest.mark.rows("EL-25")
def test_the_first_joiner_is_answered_at_once_because_nobody_has_to_acknowledge() -> None:
    c = Cluster("A")
    c.start("B")
    c.settle()
    assert c.view("B") == "AB"


@pytest.mark.rows("EL-17", "EL-26", "EL-46")
def test_a_join_is_answered_after_two_seconds_although_a_member_has_not_acknowledged() -> None:
    c = Cluster("ABC")
    c.hold("C", "A")
    c.start("D")
    c.advance(1_990)
    assert c.view("D") == ""
    c.advance(20)
    assert c.view("D") == "ABCD"
    assert c.events_of("A", JoinAnswered)[-1].late == (c.id("C"),)


@pytest.mark.rows("EL-24", "EL-25", "EL-26")
@pytest.mark.parametrize("count", range(5))
def test_acknowledgements_are_complete_at_the_last_one_and_not_before(count: int) -> None:
    waiting = [lone_id(name) for name in "BCDEF"[:count]]
    view = lone_view("ABCDEFG", 7)
    pending = PendingView(view, waiting, 100, {lone_id("G"): 1})
    for member in waiting:
        assert not pending.is_over(99)
        pending.on_ack(member, 6)
        pending.on_ack(lone_id("Z"), 7)
        assert not pending.is_over(99)
        pending.on_ack(member, 7)
    assert pending.is_over(0)


def test_a_member_that_left_is_not_waited_for() -> None:
    pending = PendingView(lone_view("ABCD", 4), [lone_id("B"), lone_id("C")], 100, {lone_id("D"): 1})
    pending.on_ack(lone_id("B"), 4)
    pending.keep_only(lone_view("ABCD", 4).members)
    assert not pending.is_over(0)
    pending.keep_only(lone_view("ABD", 5).members)
    assert pending.is_over(0)


@pytest.mark.rows("EL-19", "EL-20", "EL-21", "EL-14")
def test_a_process_that_restarts_on_its_address_is_another_member_and_the_youngest() -> None:
    c = Cluster("ABC")
    c.crash("B")
    c.join("B")
    assert c.views_of("ABC") == ["ACB"] * 3
    assert c.id("B") == "B:5701/B2"
    admitted = c.events_of("A", MemberAdmitted)[-1]
    assert (admitted.joiner, admitted.replaced) == ("B:5701/B2", ("B:5701/B1",))


@pytest.mark.rows("EL-21")
def test_a_repeated_request_of_a_member_does_not_admit_it_twice() -> None:
    c = Cluster("AB")
    version = c.version("A")
    c.hold_all()
    request = m.JoinRequest(9, c.id("B"), "phalanx", m.OLDEST_PROTOCOL_VERSION, 1, release=this_release())
    c.say("B", "A", request)
    assert c.version("A") == version
    a = c.nodes["A"]
    clock, footing = a.clock.read(c.now), a.membership.majority.quorum.footing
    response = m.JoinResponse(9, c.members_view("A"), True, clock, footing, departures=())
    assert c.pending("A", "B", m.JoinResponse) == [response]


def test_a_joiner_that_asked_two_clusters_takes_nobody_from_one_to_the_other() -> None:
    """S and T are two clusters of one name. J asks both, S answers first. T finds that out, and then S."""
    c = Cluster("S")
    c.seeds = "T"
    c.join("T")
    c.hold("T", "J")
    c.start("J", seeds="ST")
    c.settle()
    assert c.views_of("SJ") == ["SJ", "SJ"]
    assert c.view("T") == "TJ"
    c.release()
    c.say("T", "J", m.MembersUpdate(c.members_view("T")))
    c.settle()
    c.advance(900)
    assert c.views_of("STJ") == ["SJ", "T", "SJ"]
    c.advance(15_000)
    assert c.finished["T"].rejoin == c.ids("SJ")
    c.rejoin("T")
    assert c.views_of("STJ") == ["SJT"] * 3


@pytest.mark.rows("EL-29", "EL-30")
def test_after_joining_all_pairs_exchange_heartbeats() -> None:
    c = Cluster("AB")
    c.join("C")
    c.hold_all()
    c.advance(1_100)
    for sender, receiver in [(x, y) for x in "ABC" for y in "ABC" if x != y]:
        assert c.pending(sender, receiver, m.Heartbeat), (sender, receiver)


def test_an_attempt_to_join_is_told_for_people() -> None:
    joining = Joining(lone_context("B", NodeConfig(seeds=(address("A"),))), 0)
    assert joining.begin(0) is JoinOutcome.WAITING
    assert repr(joining) == f"Joining(attempt=0, waiting_for=['A:{PORT}'], reasons={{}})"


def test_a_member_that_has_joined_takes_no_other_answer() -> None:
    b = Lone("B", "AB", 2)
    b.hear("A", m.JoinResponse(1, lone_view("ACB", 9)))
    b.hear("A", m.JoinRefused(1, False, "no", True))
    b.hear("A", m.JoinRedirect(1, lone_id("C")))
    assert b.membership.view == lone_view("AB", 2)
    assert b.finished is None
    assert member_id(address("B"), "1") == MemberId("B:5701/1")


@pytest.mark.rows("EL-21")
def test_of_two_incarnations_of_one_address_that_wait_together_the_later_is_admitted() -> None:
    """1. J asks and waits for the view that admits C. 2. It dies, unnoticed. 3. The next one on its address asks too."""
    c = Cluster("AB")
    c.hold("B", "A")
    c.start("C")
    c.settle()
    first, second = (member_id(address("J"), f"J{number}") for number in (1, 2))
    for joiner in (first, second):
        c.feed(
            "A",
            Received(joiner, m.JoinRequest(1, joiner, "phalanx", m.OLDEST_PROTOCOL_VERSION, 1, release=this_release())),
        )
    c.release()
    c.settle()
    view = c.nodes["A"].membership.view
    assert view is not None
    assert second in view
    assert first not in view
