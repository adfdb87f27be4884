"""Who may talk: the first frame each way."""

import pytest
from hypothesis import given

from phalanx.common.ids import MemberId
from phalanx.wire import messages as m
from phalanx.wire.handshake import judge_hello, refusal_in
from support.harness import lone_id
from support.strategies import structs

THIS = lone_id("A")


def hello(
    sender: str = "B:5701/1", receiver: str = "A:5701", cluster: str = "phalanx", protocol: int = m.PROTOCOL_VERSION
) -> m.Hello:
    return m.Hello(protocol, cluster, sender, receiver)


@pytest.mark.parametrize("sender", ["B:5701/1", "client/1", "[::1]:5701/1"])
@pytest.mark.parametrize("receiver", ["A:5701", "A:5701/A1", "localhost:5701"])
def test_members_and_clients_of_the_cluster_are_welcome(sender: str, receiver: str) -> None:
    assert judge_hello(hello(sender, receiver), THIS, "phalanx") == m.Welcome(THIS, protocol=m.PROTOCOL_VERSION)


@pytest.mark.rows("CS-77")
@pytest.mark.parametrize(
    ("greeting", "reason"),
    [
        (m.Welcome(THIS), "must be a Hello"),
        (m.Refused("no"), "must be a Hello"),
        (
            hello(protocol=m.PROTOCOL_VERSION + 1),
            f"speaks protocols {m.OLDEST_PROTOCOL_VERSION} to {m.PROTOCOL_VERSION}, the peer protocol "
            f"{m.PROTOCOL_VERSION + 1}: upgrade the older side",
        ),
        (hello(cluster="other"), "belongs to cluster 'phalanx', not to 'other'"),
        (hello(receiver="A:5701/2"), "another incarnation of the member listens at A:5701 now"),
        (hello("stranger"), "'stranger' is neither a member's nor a client's identity"),
        (hello("B/1"), "neither"),
        (hello("B:5701/"), "neither"),
        (hello(":5701/1"), "neither"),
        (hello("B:0/1"), "neither"),
    ],
)
def test_others_are_told_why_they_are_not(greeting: m.Handshake, reason: str) -> None:
    answer = judge_hello(greeting, THIS, "phalanx")
    assert isinstance(answer, m.Refused)
    assert reason in answer.reason


@given(structs(m.Hello))
def test_any_greeting_is_answered(greeting: m.Hello) -> None:
    assert isinstance(judge_hello(greeting, THIS, "phalanx"), m.Welcome | m.Refused)


@pytest.mark.parametrize(
    ("answer", "wanted", "reason"),
    [
        (m.Welcome(THIS), "A:5701/A1", None),
        (m.Welcome(THIS), "A:5701", None),
        (m.Welcome(THIS), "localhost:5701", None),
        (m.Welcome(MemberId("A:5701/2")), "A:5701/A1", "A:5701/2 answered instead of A:5701/A1"),
        (m.Refused("not you"), "A:5701", "not you"),
        (hello(), "A:5701", "the peer did not answer the greeting as a member does"),
    ],
)
def test_what_the_other_side_makes_of_the_answer(answer: m.Handshake, wanted: str, reason: str | None) -> None:
    assert refusal_in(answer, wanted) == reason
