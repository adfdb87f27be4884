"""Requests that no client of this version makes: each is refused, and leaves nothing behind."""

import pytest

from phalanx.codec.rows import pack_rows
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import HiddenKind, hidden_name
from phalanx.common.ids import MAX_TTL_MS
from phalanx.wire import messages as m
from support.harness import KEY, MAP, TEXT, Cluster

V = TEXT + b"v"


def wish(c: Cluster, name: str, job: str, what: m.Replacement) -> m.Message:
    """Asked until it is fulfilled or refused, as a client does."""
    for _ in range(20):
        request = c.ask("A", m.ReplaceContent, name, job, what)
        c.advance(20)
        reply = c.replies[request]
        if not (isinstance(reply, m.ErrorReply) and reply.code is ErrorCode.NOT_READY):
            return reply
    return reply


@pytest.mark.parametrize("what", list(m.Replacement))
@pytest.mark.parametrize("job", ["", "a/b", "x" * 10_000])
def test_a_replacement_by_what_is_no_job_is_refused(what: m.Replacement, job: str) -> None:
    """1. No job is pending, which is written as ''. 2. Job '' wants its content decided. 3. It would be, for ever."""
    c = Cluster("AB")
    c.assign(rows=["AB"])
    reply = wish(c, MAP, job, what)
    assert isinstance(reply, m.ErrorReply)
    assert "cannot be a job" in reply.text
    assert c.table("A").maps.contents == ()
    assert isinstance(wish(c, MAP, "j1", m.Replacement.BEGIN), m.CountReply)


@pytest.mark.parametrize(
    "name", ["", "x" * 100_000, hidden_name(MAP, "j", HiddenKind.ATTEMPT, "a")], ids=["empty", "long", "hidden"]
)
def test_no_table_carries_what_cannot_name_a_map(name: str) -> None:
    c = Cluster("AB")
    c.assign(rows=["AB"])
    reply = wish(c, name, "j1", m.Replacement.BEGIN)
    assert isinstance(reply, m.ErrorReply)
    assert "map" in reply.text
    assert c.table("A").maps.contents == ()


@pytest.mark.parametrize("ttl_ms", [-2, MAX_TTL_MS + 1, 2**64 - 1])
def test_a_time_to_live_that_nothing_can_carry_is_refused(ttl_ms: int) -> None:
    c = Cluster("A")
    c.assign(rows=["A"])
    attempt = hidden_name(MAP, "j", HiddenKind.ATTEMPT, "a")
    asked = [
        c.ask("A", m.Put, MAP, KEY, V, ttl_ms),
        c.ask("A", m.PutAll, MAP, [KEY], [V], ttl_ms),
        c.ask("A", m.PutPacked, MAP, (m.PackedRows(0, pack_rows([KEY], [V])),), 1, ttl_ms),
        c.ask("A", m.PutPacked, attempt, (m.PackedRows(0, pack_rows([KEY], [V]), 1),), 1, ttl_ms),
    ]
    for each in asked:
        reply = c.replies[each]
        assert isinstance(reply, m.ErrorReply)
        assert "ten years" in reply.text
    assert c.entries("A") == {}
    assert isinstance(c.replies[c.ask("A", m.Put, MAP, KEY, V, MAX_TTL_MS)], m.DoneReply)
