"""No message of a client, or of a process that is no member, may break a member: it is answered, or nothing happens."""

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import ClientId, MemberId
from phalanx.common.versions import this_release
from phalanx.machine.inputs import Received
from phalanx.partition.coordinator.table_publication import COALESCE_PUBLICATIONS_MS
from phalanx.wire import messages as m
from phalanx.wire.codec import encode_frame
from support.harness import CLIENT, KEY, MAP, Cluster
from support.strategies import REQUESTS, examples, messages, structs

pytestmark = pytest.mark.thorough

FROM_ANYBODY = [kind for kind in m.Message.__args__ if kind not in REQUESTS]
ENDS_MEMBERS = (m.LeaveCluster, m.StopCluster)
"""What an operator lets members end with."""
OF_CLIENTS = [kind for kind in REQUESTS if kind not in (*get_args(m.MergeRequest), *ENDS_MEMBERS)]
"""What a member takes from a client at all, and lives."""
STRANGERS = st.sampled_from(["Z:5701/1", "A:5701/old", "B:5701/0", "/", "x/", "/x", "a/b/c", ":/:"])
ANOTHER_CLIENT = ClientId("client/2")


def running(**settings_: Any) -> Cluster:
    cluster = Cluster("ABC", partition_count=3, **settings_)
    cluster.assign()
    cluster.put("A", KEY, b"\0\0\0\0value")
    cluster.settle()
    return cluster


def works(cluster: Cluster) -> None:
    """All still agree, and a write goes through."""
    cluster.advance(3_000)
    assert cluster.views_of("ABC") == ["ABC"] * 3
    write = m.Put(cluster.next_id(), MAP, cluster.key(0), b"\0\0\0\0after", 0)
    cluster.replies.pop(write.id, None)
    cluster.feed(cluster.replicas("A", 0)[0], Received(ANOTHER_CLIENT, write))
    cluster.settle()
    assert cluster.is_done(write.id)


class Clients(RuleBasedStateMachine):
    """Clients send whatever the wire can carry; each request gets one answer, and it can be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = running()
        self.cluster.replies.clear()

    @rule(request=messages(OF_CLIENTS), member=st.sampled_from("ABC"))
    def ask(self, request: m.Request, member: str) -> None:
        self.cluster.replies.pop(request.id, None)
        self.cluster.feed(member, Received(CLIENT, request))
        self.cluster.settle()
        if request.id not in self.cluster.replies:
            # The write may wait for a backup that has just been replaced, until its owner is told by the next table.
            self.cluster.advance(COALESCE_PUBLICATIONS_MS)
        reply = self.cluster.replies.pop(request.id)
        assert encode_frame(reply)

    @rule(ms=st.sampled_from([1, 100, 5_000]))
    def wait(self, ms: int) -> None:
        self.cluster.advance(ms)

    @invariant()
    def nobody_is_hurt(self) -> None:
        assert self.cluster.views_of("ABC") == ["ABC"] * 3

    def teardown(self) -> None:
        works(self.cluster)


TestClients = Clients.TestCase
TestClients.settings = settings(examples(0.8), stateful_step_count=30)


@pytest.mark.parametrize("kind", FROM_ANYBODY, ids=lambda kind: kind.__name__)
@examples(0.4)
@given(data=st.data(), stranger=STRANGERS)
def test_a_stranger_changes_nothing(kind: type, data: st.DataObject, stranger: str) -> None:
    cluster = _shared()
    for member in "ABC":
        message = data.draw(structs(kind))
        tables = [cluster.table(name) for name in "ABC"]
        cluster.feed(member, Received(MemberId(stranger), message))
        if kind is not m.JoinRequest:
            assert [cluster.table(name) for name in "ABC"] == tables
            assert cluster.views_of("ABC") == ["ABC"] * 3
    cluster.links = {pair: link for pair, link in cluster.links.items() if pair[1][0] in "ABC"}


_made: list[Cluster] = []


def _shared() -> Cluster:
    """One cluster for all examples: what strangers say must leave no trace anyway."""
    cluster = _made[0] if _made else running()
    if sorted(cluster.nodes) != ["A", "B", "C"] or cluster.views_of("ABC") != ["ABC"] * 3:
        cluster = running()
    _made[:] = [cluster]
    return cluster


def join_request(member: str) -> m.JoinRequest:
    return m.JoinRequest(1, MemberId(member), "phalanx", m.OLDEST_PROTOCOL_VERSION, 3, release=this_release())


@pytest.mark.parametrize(
    ("sender", "member", "reason"),
    [
        ("A:5701/2", "A:5701/2", "this member itself listens at A:5701"),
        ("Z:5701/1", "A:5701/2", "asks for another"),
        ("Z:5701/1", "B:5701/2", "asks for another"),
        ("Z/1", "Z/1", "is not an address"),
        ("Z:5701/", "Z:5701/", "names no incarnation"),
    ],
)
def test_a_request_to_join_that_cannot_be_meant_is_refused_for_good(sender: str, member: str, reason: str) -> None:
    """Above all one from the master's own address: to replace itself, the master would leave its own view."""
    cluster = running()
    cluster.feed("A", Received(MemberId(sender), join_request(member)))
    refusals = [
        message
        for link in cluster.links.values()
        for _, message in link.queue
        if isinstance(message, m.JoinRefused) and link.target == sender
    ]
    assert [refusal.retry for refusal in refusals] == [False]
    assert reason in refusals[0].reason
    assert cluster.views_of("ABC") == ["ABC"] * 3


def test_a_write_of_who_is_no_member_is_refused_and_changes_nothing() -> None:
    """It was sent across a cut and comes when that is healed: its sender got its answer from another owner long ago."""
    cluster = running()
    owner = cluster.replicas("A", 0)[0]
    cluster.put("A", cluster.key(0), b"\0\0\0\0value")
    cluster.settle()
    writes: list[m.Request] = [
        m.Put(1, MAP, cluster.key(0), b"\0\0\0\0late", 0),
        m.PutIfAbsent(2, MAP, cluster.key(0, 1), b"\0\0\0\0late", 0),
        m.Replace(3, MAP, cluster.key(0), None, b"\0\0\0\0late", 0),
        m.Remove(4, MAP, cluster.key(0)),
        m.UpdateValue(7, MAP, cluster.key(0), "get_and_put", [b"\0\0\0\0late"], 0),
        m.PutAll(5, MAP, [cluster.key(0)], [b"\0\0\0\0late"], 0),
        m.ClearPartitions(6, MAP, [0], 3),
    ]
    before = cluster.entries(owner)
    assert before
    for write in writes:
        cluster.feed(owner, Received(MemberId("Z:5701/1"), write))
    assert cluster.entries(owner) == before
    answers = [
        (message.id, message.code)
        for link in cluster.links.values()
        for _, message in link.queue
        if isinstance(message, m.ErrorReply) and link.target == "Z:5701/1"
    ]
    assert answers == [(write.id, ErrorCode.NOT_READY) for write in writes]
