"""Histories in which Hazelcast clients speak to members that crash, hang, come and go, and are cut off."""

from typing import Any

import pytest

from phalanx.common.errors import IndeterminateWrite, PhalanxError
from phalanx.wire.messages import ErrorReply, Get, ValueReply
from phalanx_proof.sim.checkers.redis_checker import LOST, WRONG
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.run import run
from phalanx_protocols.hazelcast import session
from phalanx_protocols.hazelcast.answers import done, value
from phalanx_protocols.hazelcast.errors import Code, RefusedCall, refusal_of
from phalanx_protocols.hazelcast.executions import _request, _update_in
from phalanx_protocols.hazelcast.fields import Fields
from phalanx_protocols.hazelcast.map_calls import set_, take_value
from phalanx_protocols.hazelcast.serving import Connection
from phalanx_protocols.hazelcast.session import HazelcastConnection
from support.histories import blocks, count_all, play_all


def test_no_acknowledged_write_is_lost_or_done_twice_and_no_answer_is_wrong() -> None:
    assert count_all(range(5), Profile.HAZELCAST)["commands of Redis clients"] > 400


@pytest.mark.parametrize("block", blocks(10, ()))
def test_the_same_in_many_more_histories(block: int) -> None:
    play_all(range(1_000 + 40 * block, 1_040 + 40 * block), Profile.HAZELCAST)


def set_at_once(connection: Connection, kind: int, number: int, fields: Fields) -> bytes:
    """A write is answered before its owner has it."""
    waiting = set_(connection, kind, number, fields)
    assert waiting is None
    # What the owner says later is the answer to nothing.
    for under_way in connection._under_way._requests.values():  # type: ignore[attr-defined]
        if under_way.number == number:
            under_way.take = lambda kind, number, reply: None
    return done(kind, number)


def count_again(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """An increment whose outcome is not known is asked for again, as another request."""
    name, processor, key = fields.map(), fields.data(), fields.data()

    def take(kind: int, number: int, reply: Any) -> bytes | None:
        if isinstance(reply, ErrorReply):
            return connection.ask(
                key, _request(connection, name, key, *_update_in(processor)), kind, number, take_value
            )
        return take_value(kind, number, reply)

    return connection.ask(key, _request(connection, name, key, *_update_in(processor)), kind, number, take)


def refused_is_absent(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """A read that is refused is answered as if the key had no value."""
    name, key = fields.map(), fields.data()

    def take(kind: int, number: int, reply: Any) -> bytes | None:
        return value(kind, number, reply.value if isinstance(reply, ValueReply) else None)

    return connection.ask(key, Get(connection.next_id(), name, key), kind, number, take)


def indeterminate_is_undone(error: PhalanxError) -> RefusedCall:
    """A client is told that it may repeat a write which may have been done."""
    return RefusedCall(Code.RETRYABLE if isinstance(error, IndeterminateWrite) else refusal_of(error).code, str(error))


def tell_nothing(connection: HazelcastConnection, now: int) -> list[Any]:
    """Clients are not told of changes of the cluster."""
    return []


SET, EXECUTE, GET = 0x010F00, 0x012E00, 0x010200
SEEDS = (9, 0, *range(60))
"""Histories that one bug may survive before it counts as not found; those that told of them last come first."""
WHOLE = "the cluster becomes whole after healing"


def finds(what: str) -> bool:
    """Whether one of some histories is told to violate this."""
    return any(
        violation.what == what for seed in SEEDS for violation in run(draw_options(seed, Profile.HAZELCAST)).violations
    )


@pytest.mark.parametrize(
    ("kind", "bug", "what"),
    [(SET, set_at_once, LOST), (EXECUTE, count_again, LOST), (GET, refused_is_absent, WRONG)],
)
def test_a_planted_bug_of_a_call_is_found(kind: int, bug: Any, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(session.HANDLERS, kind, bug)
    assert finds(what)


def test_an_error_that_says_too_much_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "refusal_of", indeterminate_is_undone)
    assert finds(LOST)


def test_a_client_that_is_told_of_no_changes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HazelcastConnection, "cluster_changed", tell_nothing)
    assert finds(WHOLE)
