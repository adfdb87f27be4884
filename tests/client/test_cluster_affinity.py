"""Whose table a client believes when nobody of its own cluster answers: the rule, without members."""

from typing import Any

import pytest

from phalanx.client.core.client_core import ASK_TIMEOUT_MS, ClientCore
from phalanx.client.core.cluster_affinity import Contact
from phalanx.client.core.two_clusters import could_be_restart
from phalanx.common.ids import MemberId, member_id
from phalanx.common.restored_cluster import restored_root
from phalanx.common.table import PartitionTable, build_table, unassigned_table
from phalanx.common.view import MembersView
from phalanx.machine.effects import Answer, Effect, Send
from phalanx.machine.inputs import Call, LinkRefused
from phalanx.wire import messages as m
from support.harness import address

A, B, C, D = (member_id(address(name), "1") for name in "ABCD")
A2, B2, C2 = (member_id(address(name), "2") for name in "ABC")
MINUTE = 60_000


class Client:
    """A core that was given some addresses and knows the cluster of A and B, which A founded; both are gone."""

    def __init__(self, seeds: str = "ABC", *, assigned: bool = True, founders: tuple[MemberId, ...] = (A,)) -> None:
        self.now = 10 * MINUTE
        self.wall_ahead_ms = 0
        self.sent: list[Send] = []
        self.answers: list[m.Reply] = []
        self.core = ClientCore([address(name) for name in seeds], MINUTE, "names", Contact(lambda: self.wall_ahead_ms))
        self.take(self.core.time_passed(self.now))
        table = build_table([(A, B)], [1]) if assigned else unassigned_table(1)
        self.tell(A, B, founders=founders, table=table)

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.core._router.on_link_up(effect.to)
                self.sent.append(effect)
            elif isinstance(effect, Answer):
                self.answers.append(effect.reply)

    def tell(
        self,
        *members: MemberId,
        founders: tuple[MemberId, ...] = (),
        age_ms: int = 0,
        sought: str = "",
        table: PartitionTable | None = None,
        version: int = 1,
    ) -> None:
        """The member that is being asked answers with this list."""
        to, question = next(
            (each.to, each.message) for each in reversed(self.sent) if isinstance(each.message, m.GetTable)
        )
        table = table if table is not None else build_table([members[:1]], [9])
        places = tuple(address(name) for name in sought)
        reply = m.TableReply(question.id, table, MembersView(version, members[0], members), places, founders, age_ms)
        self.take(self.core.received(to, reply, self.now))

    def lose(self, *members: MemberId) -> None:
        """A call finds that these are gone, and asks for the table."""
        self.take(self.core.call(Call(0, m.Get(1, "m", b"key")), self.now))
        for member in members:
            self.take(self.core.link_lost(LinkRefused(member, "connection refused"), self.now))
        self.advance(100)

    def advance(self, ms: int) -> None:
        """Time passes, and whoever is asked for the table does not answer."""
        self.now += ms
        for _ in range(2):
            self.now += ASK_TIMEOUT_MS
            self.take(self.core.time_passed(self.now))

    def uses(self, member: MemberId) -> bool:
        return self.core.view is not None and member in self.core.view


def test_a_cluster_that_was_there_before_the_last_answer_is_refused_and_both_are_named() -> None:
    client = Client()
    client.lose(A, B)
    client.tell(C, D, founders=(C,), age_ms=30 * MINUTE, version=7)
    assert client.uses(A)
    [told] = client.core.take_remarks()
    for named in ("two clusters", "'names'", A, C, "list 7", address("A"), address("C"), "founded by"):
        assert named in told
    client.advance(MINUTE)
    [answer] = client.answers
    assert isinstance(answer, m.ErrorReply)
    assert told in answer.text
    assert client.core.take_remarks() == []


def test_it_is_refused_too_as_long_as_nobody_has_used_the_own_one() -> None:
    client = Client(assigned=False)
    client.lose(A, B)
    client.tell(C, founders=(C,), age_ms=30 * MINUTE)
    assert client.uses(A)
    assert "two clusters" in client.core.no_owners


def test_a_cluster_that_was_founded_since_is_what_became_of_it_wherever_it_is() -> None:
    for members in [(A2, B2), (C, D), (A2,)]:
        client = Client()
        client.lose(A, B)
        client.tell(*members, founders=members[:1], age_ms=ASK_TIMEOUT_MS)
        assert client.uses(members[0])
        [told] = client.core.take_remarks()
        assert A in told
        assert members[0] in told


def test_what_counts_is_when_the_last_request_was_sent_that_was_answered() -> None:
    """1. A put is answered. 2. C was founded before that. The table was told long before both."""
    client = Client()
    client.now += MINUTE
    client.take(client.core.call(Call(0, m.Get(7, "m", b"key")), client.now))
    client.take(client.core.received(A, m.ValueReply(7, None), client.now))
    client.lose(A, B)
    client.tell(C, founders=(C,), age_ms=MINUTE // 2)
    assert client.uses(A)


def test_an_answer_that_was_read_late_says_nothing_about_the_time_between() -> None:
    """1. A answers, and dies. 2. It is started anew. 3. Only now the client comes to read the answer."""
    client = Client()
    client.take(client.core.call(Call(0, m.Get(7, "m", b"key")), client.now))
    client.now += MINUTE
    client.take(client.core.received(A, m.ValueReply(7, None), client.now))
    client.lose(A, B)
    client.tell(A2, founders=(A2,), age_ms=MINUTE // 2)
    assert client.uses(A2)


def test_a_client_whose_machine_slept_goes_by_the_wall_clock() -> None:
    """Its own clock stood still while the cluster was started anew."""
    client = Client()
    client.wall_ahead_ms += 60 * MINUTE
    client.lose(A, B)
    client.tell(A2, founders=(A2,), age_ms=30 * MINUTE)
    assert client.uses(A2)


@pytest.mark.parametrize(
    "told",
    [
        pytest.param({"founders": (A,)}, id="the other side of a cut"),
        pytest.param({"founders": (C, D, A)}, id="it was merged into another"),
        pytest.param({"founders": (C,), "sought": "A"}, id="sides that look for each other"),
        pytest.param({}, id="an earlier version does not name founders"),
    ],
)
def test_an_old_cluster_that_is_of_the_own_one_is_followed(told: dict[str, Any]) -> None:
    client = Client()
    client.lose(A, B)
    client.tell(C, D, age_ms=30 * MINUTE, **told)
    assert client.uses(C)
    assert client.core.take_remarks() == []


def test_the_own_one_was_of_an_earlier_version() -> None:
    client = Client(founders=())
    client.lose(A, B)
    client.tell(C, founders=(C,), age_ms=30 * MINUTE)
    assert client.uses(C)


def test_members_of_an_earlier_version_in_the_own_one_hide_its_founder_from_nobody() -> None:
    client = Client()
    client.take(client.core.refresh(client.now))
    client.tell(A, B, version=2)
    client.lose(A, B)
    client.tell(C, founders=(C,), age_ms=30 * MINUTE)
    assert client.uses(A)


def test_a_cluster_that_has_taken_all_addresses_member_by_member_is_followed_however_old() -> None:
    """A was started anew without a seed while B went on, then B with A as its seed."""
    client = Client("AB")
    client.lose(A, B)
    client.tell(A2, B2, founders=(A2,), age_ms=30 * MINUTE)
    assert client.uses(A2)


def test_a_cluster_that_has_members_at_all_addresses_and_elsewhere_is_refused() -> None:
    """The addresses were given to members of another cluster meanwhile."""
    client = Client("AB")
    client.lose(A, B)
    client.tell(C, A2, B2, founders=(C,), age_ms=30 * MINUTE)
    assert client.uses(A)


def test_a_client_goes_on_when_its_own_cluster_answers_again() -> None:
    client = Client()
    client.lose(A, B)
    client.tell(C, founders=(C,), age_ms=30 * MINUTE)
    client.advance(100)
    client.tell(A, B, founders=(A,), age_ms=40 * MINUTE, version=2)
    assert client.uses(A)
    assert client.core.no_owners == ""


def test_lanes_know_together_when_their_cluster_was_heard_last_and_warn_once() -> None:
    client = Client()
    other = ClientCore([address("C")], MINUTE, "names", client.core._contact)
    other.adopt(client.core.state, client.now)
    client.lose(A, B)
    client.tell(C, founders=(C,), age_ms=30 * MINUTE)
    assert len(client.core.take_remarks()) == 1
    client.core = other
    client.lose(A, B)
    client.tell(C, founders=(C,), age_ms=30 * MINUTE)
    assert client.uses(A)
    assert other.take_remarks() == []


def test_ages_may_differ_by_as_much_as_clocks_do() -> None:
    day = 24 * 60 * MINUTE
    assert could_be_restart(5_000, 5_000)
    assert not could_be_restart(5_100, 5_000)
    assert could_be_restart(day + 10_000, day)


def test_a_restored_cluster_is_followed_when_the_own_one_is_gone_and_never_beside_it() -> None:
    """DU-23: it has another founder, and looks at the addresses of the one that was backed up."""
    root = restored_root(A, "monday")
    for age_ms, sought, is_followed in ((ASK_TIMEOUT_MS, "AB", True), (30 * MINUTE, "AB", False)):
        client = Client()
        client.lose(A, B)
        client.tell(C, D, founders=(root,), age_ms=age_ms, sought=sought)
        assert client.uses(C) is is_followed
        remarks = client.core.take_remarks()
        assert len(remarks) == 1, "it is told what the other cluster is"
        assert ("It has the data of a backup" in remarks[0]) is is_followed
