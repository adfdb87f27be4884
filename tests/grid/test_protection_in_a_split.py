"""A cut into two sides, with clients on both that go on writing a protected map: who is told what, and from when on."""

from typing import Any

import pytest

from phalanx.common.errors import ErrorCode
from phalanx.common.map_settings import MapChange, Protection
from phalanx.wire import messages as m
from support.harness import MAP, TEXT, Cluster

ALL = "ABCDE"
STEP_MS = 50
WATCHED_MS = 30_000
HEARTBEAT_MS, TIMEOUT_MS, GRACE_MS = 1_000, 10_000, 300
VALUE = TEXT + b"value"


class Clients:
    """One at each member, who writes a key of the partition that this member owns, again and again."""

    def __init__(self, **protection: Any) -> None:
        self.c = c = Cluster(ALL, backup_count=0, partition_count=5)
        c.assign(rows=list(ALL))
        done = c.ask("A", m.ChangeMap, MAP, MapChange(protection=Protection(**protection)))
        c.advance(10_000)
        assert c.is_done(done)
        self.last_done_ms: dict[str, int] = {}
        self.first_refused_ms: dict[str, int] = {}

    def cut(self, small: str, large: str, *, is_silent: bool) -> None:
        """Nothing passes any more: noticed by nobody at first, or refused at each try."""
        if is_silent:
            self.c.hold(small, large)
            self.c.hold(large, small)
        else:
            self.c.cut(small, large)

    def write(self) -> None:
        c, began = self.c, self.c.now
        while c.now < began + WATCHED_MS:
            c.advance(STEP_MS)
            for partition, name in enumerate(ALL):
                asked = c.put(name, c.key(partition), VALUE)
                reply = c.replies.get(asked)
                if isinstance(reply, m.DoneReply):
                    self.last_done_ms[name] = c.now - began
                elif isinstance(reply, m.ErrorReply) and reply.code is ErrorCode.NOT_ENOUGH_MEMBERS:
                    self.first_refused_ms.setdefault(name, c.now - began)


@pytest.mark.rows("EL-48", "EL-50", "EL-63")
@pytest.mark.parametrize("protection", [{"minimum": 3}, {"majority": True}], ids=["minimum 3", "majority"])
@pytest.mark.parametrize(("small", "large"), [("AB", "CDE"), ("DE", "ABC")], ids=" | ".join)
@pytest.mark.parametrize("is_silent", [False, True], ids=["refused", "silent"])
def test_the_larger_side_always_serves_and_the_smaller_one_until_it_has_noticed(
    protection: dict[str, Any], small: str, large: str, is_silent: bool
) -> None:
    clients = Clients(**protection)
    clients.cut(small, large, is_silent=is_silent)
    clients.write()
    assert all(clients.last_done_ms[name] == WATCHED_MS for name in large)
    assert not set(clients.first_refused_ms) & set(large)
    # The window of EL-50: until its view has shrunk the small side acknowledges. That takes as long as a failure takes to
    # be found and a list without the others to be made, and not a step longer.
    window_ms = TIMEOUT_MS + HEARTBEAT_MS if is_silent else GRACE_MS + 2 * STEP_MS
    for name in small:
        assert 0 < clients.last_done_ms[name] <= window_ms
        assert clients.first_refused_ms[name] == clients.last_done_ms[name] + STEP_MS, "and from then on no more"


@pytest.mark.rows("EL-63")
def test_a_map_that_is_not_protected_is_served_on_every_side() -> None:
    clients = Clients()
    clients.cut("AB", "CDE", is_silent=False)
    clients.write()
    assert set(clients.last_done_ms.values()) == {WATCHED_MS}
    assert not clients.first_refused_ms
