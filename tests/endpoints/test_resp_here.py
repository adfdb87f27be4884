"""Commands that a member carries out from their bytes: the answers, entries and counts are those of commands one by one."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from phalanx.codec.hashing import partition_of
from phalanx.codec.rows import unpack_rows
from phalanx.codec.values import to_data
from phalanx.common.clock import STAMP_BYTES
from phalanx.common.config import NodeConfig
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import MemberId
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import MapSettings
from phalanx.endpoints.protocol import SendBytes, SendRequest, effects_of
from phalanx.grid.replica.journal import MapJournal
from phalanx.grid.replication import leader
from phalanx.grid.replication.leader import CarriedOut, CommandBytes
from phalanx.grid.replication.map_rules import rules_of
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.machine.inputs import Input
from phalanx.runtime.endpoints.endpoint_grid import MemberGrid
from phalanx.runtime.local.embedded import EmbeddedCaller
from phalanx.runtime.settings.config import Config
from phalanx.wire import messages as m
from phalanx.wire.disk_records import PlainPuts
from phalanx_protocols.resp.framing import command
from phalanx_protocols.resp.server import RespServer
from support.harness import Cluster

compiled_only = pytest.mark.skipif(
    leader.NATIVE is None, reason="phalanx-native is not built: that needs a C compiler and Python.h"
)

COUNT = 3
MAP = "redis0"
KEYS = [b"k%d" % number for number in range(8)]
STATES = ["plain", "absent", "expiring", "expired", "ordered", "tombstones", "journal", "elsewhere"]
"""What a partition's store of the map can be like; `elsewhere`: the partition is not served here now."""
VALUES = [b"1", b"-1", b"0", b"-0", b"007", b"+5", b" 5", b"9223372036854775806", b"9223372036854775807", b"-9223372036854775808",
          b"9223372036854775808", b"99999999999999999999", b"", b"text", b"1\r\n2", b"x" * 600]  # fmt: skip


class Member:
    """A member that owns all partitions, and one client of it."""

    def __init__(self, states: Sequence[str], *, has_log: bool = False) -> None:
        self.cluster = Cluster("A", partition_count=COUNT, backup_count=0, max_value_bytes=500, max_key_bytes=100)
        self.node = self.cluster.nodes["A"]
        self.caller = EmbeddedCaller(Config(), self._feed, lambda: self.cluster.now, self._fail, lambda: None)
        self.caller.attach(self.node)
        self.caller.next_id = self._next_id  # type: ignore[method-assign]  # others than those of the cluster's own requests
        self._last = 10_000
        self.cluster.put("A", to_data(b"first"), to_data(b""))
        self.cluster.settle()
        self._make(states)
        self.node.grid.leader.log = ReplicaLog() if has_log else None
        grid = MemberGrid(self.caller, 2**20, 2**20)
        grid.clock_s = lambda: 0.0  # where a turn ends decides which of two commands of different keys comes first
        self.machine = RespServer(grid, None, (MAP,)).connect(1, "", "", 0)  # type: ignore[arg-type]
        self.told = b""
        self._asked: list[tuple[int, Any]] = []
        self._carry_out(self.machine.opened(0))

    def _next_id(self) -> int:
        self._last += 1
        return self._last

    def _fail(self, error: BaseException) -> None:
        raise error

    def _feed(self, event: Input) -> None:
        before = set(self.cluster.replies)
        self.cluster.feed("A", event)
        for number in set(self.cluster.replies) - before:
            self.caller.answered(self.cluster.replies[number])

    def _make(self, states: Sequence[str]) -> None:
        grid, now = self.node.grid, self.cluster.now
        for number, state in enumerate(states):
            owned = grid.ownership.owned[number]
            assert owned is not None
            if state == "elsewhere":
                grid.ownership.owned[number] = None
                continue
            if state == "absent":
                continue
            store = owned.replica.map(MAP)
            mine = [key for key in KEYS if partition_of(to_data(key), COUNT) == number]
            for place, key in enumerate(mine[:-1]):
                value: object = (b"%d" % (place - 1), place, b"text", {b"f": b"1"}, b"9223372036854775807")[place % 5]
                store.put(to_data(key), bytes(STAMP_BYTES) + to_data(value), 0, now)
            if state in ("expiring", "expired"):
                for key in mine[:-1:2]:
                    store.expire(to_data(key), now + 1 if state == "expiring" else now, is_covering=False)
            elif state == "ordered":
                store.ordered()
            elif state == "tombstones":
                store.remove(to_data(mine[0]), 5)
            elif state == "journal":
                owned.replica.keep_journal(MAP, MapJournal(10, 10_000, 1, 1, MemberId("a:1/1")))

    def _carry_out(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, SendBytes):
                self.told += effect.data
            elif isinstance(effect, SendRequest):
                self._asked.append((effect.number, effect))

    def send(self, data: bytes) -> None:
        self._carry_out(effects_of(self.machine.received(data, self.cluster.now)))
        while self.machine.has_more or self._asked:
            while self._asked:
                number, ask = self._asked.pop(0)
                told: list[Any] = []
                self.machine.grid.ask(ask.partition, ask.request, told.append)  # type: ignore[attr-defined]  # of `MemberGrid`
                if told:  # else the partition is elsewhere
                    self._carry_out(self.machine.answered(number, told[0], self.cluster.now))
            if self.machine.has_more:
                self._carry_out(self.machine.go_on(self.cluster.now))

    def state(self) -> Any:
        """All that commands change."""
        grid = self.node.grid
        stores = [
            owned and {name: (sorted(store.entries.items()), store.held_bytes, sorted(store.tombstones), dict(store.expires_at))
                       for name, store in owned.replica.maps.items() if name == MAP}
            for owned in grid.ownership.owned
        ]  # fmt: skip
        counts = [owned and owned.replica.seq for owned in grid.ownership.owned]
        machine = self.machine
        done = machine.server.commands_done, machine.commands_read, machine.last_command, machine.held_bytes
        return (
            self.told,
            stores,
            counts,
            grid.clock.read(self.cluster.now),
            grid.traffic.last_at,
            done,
            machine.part_length,
            grid.leader.log and grid.leader.log.take(),
        )


def play(states: Sequence[str], pieces: Sequence[bytes], *, has_log: bool = False) -> Any:
    async def run() -> Any:
        member = Member(states, has_log=has_log)
        for piece in pieces:
            member.send(piece)
        return member.state()

    with asyncio.Runner() as runner:
        return runner.run(run())


def carry_out(member: Member, data: bytes, start: int, most: int, most_bytes: int, nil: bytes) -> CarriedOut | None:
    """Let a member carry out commands from their bytes."""
    commands = CommandBytes(data, start, most, most_bytes, nil)
    return member.machine.grid.local.carry_out(MAP, commands, member.cluster.now)


def is_same(states: Sequence[str], pieces: Sequence[bytes]) -> None:
    for has_log in (False, True):
        in_native_code = play(states, pieces, has_log=has_log)
        with mock.patch.object(leader, "NATIVE", None):
            assert play(states, pieces, has_log=has_log) == in_native_code


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = [*sorted(place % (len(data) + 1) for place in places), len(data)]
    begins = [0, *ends]
    return [piece for begin, end in zip(begins, ends, strict=False) if (piece := data[begin:end])]


KEY = st.sampled_from(KEYS)
ANY_CASE = st.sampled_from([str.upper, str.lower, str.title])
COMMAND = st.one_of(
    st.tuples(st.sampled_from(["GET", "INCR", "DEL", "TTL", "STRLEN", "PERSIST", "EXISTS"]), KEY),
    st.tuples(st.just("SET"), KEY, st.sampled_from(VALUES)),
    st.sampled_from([
        ("SET", KEYS[0], b"1", b"XX"), ("SET", KEYS[1], b"2", b"EX", b"100"), ("GET",), ("GET", KEYS[0], KEYS[1]), ("SET", KEYS[0]),
        ("INCRBY", KEYS[0], b"3"), ("PING",), ("NOPE", b"x"), ("SELECT", b"0"), ("HELLO", b"3"), ("MULTI",), ("EXEC",), ("RESET",),
        ("GETS", KEYS[0]), ("INCR", b"k" * 200), ("SET", b"k" * 200, b"1"), ("GET", b"k" * 200), ("CLIENT", b"ID"),
    ]),
)  # fmt: skip


@st.composite
def sent(draw: st.DrawFn) -> list[bytes]:
    """Commands as bytes, cut anywhere, sometimes with an end that is broken."""
    made = b""
    for words in draw(st.lists(COMMAND, max_size=14)):
        made += command(draw(ANY_CASE)(words[0]).encode(), *words[1:])  # type: ignore[arg-type]  # the rest are bytes
    made += draw(st.sampled_from([b"", b"", b"GET k0\r\n", b"*2\r\n$3\r\nGET\r\n$2\r\nk", b"*2\n$3\nGET\n$2\nk0\n", b"*2\r\n$03\r\nGET\r\n$2\r\nk0\r\n",
                                  b"*2\r\n$3\r\nGET\r\n$1\r\nk0\r\n", b"*2\r\n$-1\r\n", b"*2\r\n$3\r\nGET\r\n$99999999999\r\n"]))  # fmt: skip
    return cut(made, draw(st.lists(st.integers(0, 10_000), max_size=3)))


@compiled_only
@given(st.lists(st.sampled_from(STATES[:-1]), min_size=COUNT, max_size=COUNT), sent())
@example(["plain"] * COUNT, [b"".join(command(b"INCR", key) for key in KEYS)])
@example(["plain"] * COUNT, [b"".join(command(b"SET", KEYS[0], value) + command(b"INCR", KEYS[0]) for value in VALUES)])
@example(
    ["plain"] * COUNT, [b"*3\r\n$3\r\nSET\r\n$2\r\nk0\r\n$21\r\n", command(b"GET", b"k0") + b"\r\n"]
)  # a value like a command
@example(["plain"] * COUNT, [command(b"MULTI"), command(b"INCR", b"n"), command(b"EXEC"), command(b"GET", b"n")])
def test_commands_are_carried_out_alike(states: list[str], pieces: list[bytes]) -> None:
    is_same(states, pieces)


@compiled_only
def test_what_is_plain_is_carried_out_from_its_bytes_and_nothing_else_is() -> None:
    """Else the other test would compare a function with itself."""
    data = b"".join(command(name, KEYS[0], *rest) for name, *rest in ((b"set", b"5"), (b"GET",), (b"Incr",), (b"GET",)))

    async def run() -> None:
        for state in STATES:
            member = Member([state] * COUNT)
            assert carry_out(member, data, len(data), 9, 99, b"_") == (
                len(data),
                b"",
                0,
                0,
                0,
                0,
                -1,
            )
            done = carry_out(member, data, 0, 9, 99, b"_")
            assert done is not None
            if state == "plain":
                assert done == (len(data), b"+OK\r\n$1\r\n5\r\n:6\r\n$1\r\n6\r\n", 2, 1, 1, 0, -1)
                assert carry_out(member, data, 0, 2, 99, b"_")[2:5] == (1, 1, 0)  # type: ignore[index]
                assert carry_out(member, data, 0, 9, 1, b"_")[2:5] == (0, 1, 0)  # type: ignore[index]
            elif state in ("absent", "ordered", "journal", "tombstones", "expired", "expiring", "elsewhere"):
                assert done[0] == 0, state
            nothing = carry_out(member, command(b"GET", b"no such key"), 0, 9, 99, b"_\r\n")
            assert nothing is not None
            assert nothing[1] == (b"" if state == "elsewhere" else b"_\r\n")

    asyncio.run(run())


@compiled_only
def test_a_log_gets_what_was_set_from_the_bytes_of_commands() -> None:
    data = b"".join(
        command(*words)
        for words in [(b"SET", KEYS[0], b"5"), (b"GET", KEYS[0]), (b"INCR", KEYS[0]), (b"SET", KEYS[1], b"x")]
    )

    async def run() -> None:
        member = Member(["plain"] * COUNT, has_log=True)
        log = member.node.grid.leader.log
        assert log is not None
        done = carry_out(member, data, 0, 9, 99, b"_")
        assert done is not None
        assert done[2:5] == (1, 2, 1)
        taken = log.take()
        assert taken is not None
        (record,) = taken.records
        assert isinstance(record.body, PlainPuts)
        assert (record.body.map, record.body.of) == (MAP, COUNT)
        keys, values = unpack_rows(record.body.rows)
        assert keys == [to_data(KEYS[0]), to_data(KEYS[0]), to_data(KEYS[1])]
        assert [value[STAMP_BYTES:] for value in values] == [to_data(b"5"), to_data(b"6"), to_data(b"x")]
        stamps = [value[:STAMP_BYTES] for value in values]
        assert stamps == sorted(set(stamps))
        assert carry_out(member, command(b"GET", KEYS[0]), 0, 9, 99, b"_") is not None
        assert log.take() is None

    asyncio.run(run())


@compiled_only
@pytest.mark.parametrize("words", [(b"GET", KEYS[0]), (b"SET", KEYS[0], b"1"), (b"INCR", KEYS[0])])
def test_whether_the_key_of_a_command_is_here_is_asked_once(words: tuple[bytes, ...]) -> None:
    async def run() -> None:
        member = Member(["elsewhere"] * COUNT)
        local = member.machine.grid.local
        for name in ("get", "put", "update"):
            setattr(local, name, mock.Mock(side_effect=AssertionError("it was found from its bytes")))
        for _ in range(2):
            (effect,) = effects_of(member.machine.received(command(*words), member.cluster.now))
            assert isinstance(effect, SendRequest)
            assert effect.partition == partition_of(to_data(KEYS[0]), COUNT)
            refused = m.ErrorReply(effect.request.id, ErrorCode.UNAVAILABLE, "later")
            assert member.machine.answered(effect.number, refused, member.cluster.now)
        member.machine.received(command(*words)[:-1], member.cluster.now)
        assert member.machine.there == -1, "of a command that has not arrived whole nothing is known"

    asyncio.run(run())


@compiled_only
@pytest.mark.parametrize(
    "what", ["streams", "counts_reads", "any_idle", "memory", "asleep", "watched", "bounded", "waiting"]
)
def test_nothing_is_written_where_others_must_know_of_it(what: str) -> None:
    async def run() -> None:
        member = Member(["plain"] * COUNT)
        grid = member.node.grid
        if what == "streams":
            for owned in grid.ownership.owned:
                assert owned is not None
                owned.is_plain = False
        elif what == "watched":
            grid.guard.is_watchful = True
            grid.guard.watches = lambda name: True  # type: ignore[method-assign]
        elif what == "bounded":
            grid.ownership.rules = rules_of(MapPlan(usual=MapSettings(max_entries=5)), NodeConfig())
        elif what == "waiting":
            grid.parked.released.append(mock.Mock())
        elif what == "asleep":
            member.node.pause_detection.late_after = 0
        elif what == "counts_reads":
            grid.ownership.rules = rules_of(MapPlan(usual=MapSettings(merge_policy="higher-hits")), NodeConfig())
        elif what == "any_idle":
            grid.ownership.rules = rules_of(MapPlan(usual=MapSettings(max_idle_ms=5)), NodeConfig())
        else:
            grid.memory.alone_until = 0
        for name, rest in ((b"SET", [b"5"]), (b"INCR", [])):
            done = carry_out(member, command(name, KEYS[0], *rest), 0, 9, 99, b"_")
            assert done is None or done[0] == 0
        read = carry_out(member, command(b"GET", b"none"), 0, 9, 99, b"_\r\n")
        assert (read is None) is (what in ("counts_reads", "asleep", "watched"))

    asyncio.run(run())


@compiled_only
def test_objects_of_other_classes_are_left_to_python_and_nothing_is_kept() -> None:
    native = leader.NATIVE
    assert native is not None

    async def make() -> Member:
        return Member(["plain"] * COUNT)

    member = asyncio.run(make())
    data = b"".join(command(b"SET", key, b"1") + command(b"INCR", key) + command(b"GET", key) for key in KEYS)

    class Other(OwnedPartition):
        pass

    def once(owned: list[Any]) -> int:
        return native.carry_out(owned, MAP, data, 0, 99, 9_999, b"_", 1, 1, True, 99, 99, 1)[0]

    assert once([object()] * COUNT) == once([None] * COUNT) == once([]) == 0
    owned = member.node.grid.ownership.owned
    once(owned)
    tracemalloc.start()
    try:
        once(owned)
        held = tracemalloc.get_traced_memory()[0]
        for _ in range(100):
            assert once(owned) > 0
        assert tracemalloc.get_traced_memory()[0] - held < 3_000
    finally:
        tracemalloc.stop()
