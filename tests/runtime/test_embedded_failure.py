"""Members inside a program: one that fails ends as in a crash and leaves the program alone; too large messages end nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

import phalanx
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_key_data
from phalanx.common.errors import EntryTooLarge
from phalanx.common.ids import Address, MemberId
from phalanx.machine.inputs import Call, TimePassed
from phalanx.runtime.member import Member
from phalanx.runtime.process.failure import MemoryShortage
from phalanx.wire.codec import FrameReader

WITHIN_S = 30.0


async def three() -> list[Member]:
    first = await phalanx.start_member(phalanx.Config(port=0, call_timeout_ms=20_000))
    others = [await phalanx.start_member(phalanx.Config(port=0, seeds=(Address(first.address),))) for _ in range(2)]
    return [first, *others]


def play(story: Callable[[list[Member]], Awaitable[None]]) -> None:
    """Tell a story of three members, and stop those that still run."""

    async def told() -> None:
        members = await three()
        try:
            await asyncio.wait_for(story(members), 2 * WITHIN_S)
        finally:
            for member in members:
                await member.stop(drain=False)

    asyncio.run(told())


async def until(condition: Callable[[], object], what: str) -> None:
    """Until the condition holds, which tells `what`."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"not within {WITHIN_S:g} s: {what}")


@pytest.mark.parametrize("kind", [RuntimeError, MemoryError, RecursionError, phalanx.InvariantViolation])
def test_a_member_that_fails_breaks_off_and_says_so_to_its_program(kind: type[Exception], caplog: Any) -> None:
    async def story(members: list[Member]) -> None:
        master, failing, _ = members
        kept = master.map("kept")
        await kept.put_all({n: n for n in range(300)})
        await until(lambda: all(len(row) == 2 for row in master.table.rows), "every partition has a backup")

        handle = failing.node.handle

        def fail(event: Any, now: int) -> list[Any]:
            if not isinstance(event, Call):
                return handle(event, now)  # otherwise a message could be first, and the call would find no member
            raise kind("planted")

        failing.node.handle = fail  # type: ignore[method-assign]
        call = asyncio.ensure_future(failing.map("kept").put("key", "value"))
        with pytest.raises(phalanx.IndeterminateWrite):
            await call
        with pytest.raises(phalanx.MemberFailed) as failed:
            await failing.wait_ended()
        assert isinstance(failed.value.__cause__, kind)
        failing.node.handle = handle  # type: ignore[method-assign]
        failing.feed(TimePassed())
        assert not failing.node._out.effects, "a member that has failed does nothing any more"

        await until(lambda: len(master.view.members) == 2, "the others go on without it")  # type: ignore[union-attr]
        await until(lambda: failing.id not in master.table.members, "others have taken over")
        assert await kept.get_all(range(300)) == {n: n for n in range(300)}

    play(story)
    assert sum("has failed and ends now" in record.getMessage() for record in caplog.records) == 1


def test_an_error_in_a_timer_or_callback_ends_the_member_too() -> None:
    async def story(members: list[Member]) -> None:
        _, failing, _ = members

        def fail() -> int:
            raise RuntimeError("planted")

        failing.node.next_deadline = fail  # type: ignore[method-assign]  # asked by a timer
        with pytest.raises(phalanx.MemberFailed):
            await failing.wait_ended()

    play(story)


def test_a_handler_of_the_program_that_raises_is_no_error_of_the_member() -> None:
    class Broken(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise OSError("the program's disk is full")

    broken = Broken(logging.DEBUG)
    logger = logging.getLogger("phalanx.member")
    logger.addHandler(broken)
    try:
        play(lambda members: members[0].map("kept").put("key", "value"))
    finally:
        logger.removeHandler(broken)


def test_what_is_over_the_frame_limit_is_told_to_whoever_asked() -> None:
    async def story(members: list[Member]) -> None:
        caller, owner, _ = members
        entries = caller.map("kept")
        await entries.put_all({n: n for n in range(50)})
        theirs = next(n for n in range(50) if is_owned_by(owner, caller, n))
        for link in caller._links._of.values():
            link._max_frame_bytes = 10_000
        with pytest.raises(EntryTooLarge, match="over the limit of 10000 bytes"):
            await entries.put(theirs, "x" * 20_000)
        await entries.put(theirs, "short")
        assert await entries.get(theirs) == "short"
        # The other way: an answer that is too large for the caller's connection.
        await owner.map("kept").put(theirs, "y" * 20_000)
        for link in owner._links._of.values():
            link._max_frame_bytes = 10_000
        for connection in owner.accepted.inbound:
            connection._max_frame_bytes = 10_000
        with pytest.raises(EntryTooLarge):
            await entries.get(theirs)
        assert len(caller.view.members) == 3  # type: ignore[union-attr]

    play(story)


def is_owned_by(owner: Member, caller: Member, key: int) -> bool:
    """Whether the member owns the partition of a key."""
    table = caller.table
    return table.replicas(partition_of(to_key_data(key), table.partition_count))[0] == owner.id


def test_a_lack_of_memory_ends_a_member_at_once_for_members_and_at_the_third_time_for_clients() -> None:
    shortage = MemoryShortage()
    shortage.note(0.0, of_member=False)
    shortage.note(5.0, of_member=False)
    shortage.note(10.0, of_member=False)
    with pytest.raises(MemoryError, match="3 times within 10 s"):
        shortage.note(14.9, of_member=False)
    with pytest.raises(MemoryError, match="another member"):
        MemoryShortage().note(0.0, of_member=True)


def test_a_backup_without_memory_for_a_write_goes_and_the_write_is_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Short(FrameReader):  # type: ignore[type-arg]
        """There is no memory for long frames of members."""

        def feed(self, data: bytes | bytearray) -> list[Any]:
            if len(data) > 40_000:
                raise MemoryError
            return super().feed(data)

    async def story(members: list[Member]) -> None:
        kept = members[0].map("kept")
        await kept.put_all({n: n for n in range(300)})
        await until(lambda: all(len(row) == 2 for row in members[0].table.rows), "every partition has a backup")
        master = members[0]

        def replicas(number: int) -> Sequence[MemberId]:
            return master.table.replicas(partition_of(to_key_data(number), master.table.partition_count))

        key = next(n for n in range(300) if replicas(n)[0] == master.id)
        backup = replicas(key)[1]
        short = next(member for member in members if member.id == backup)
        for connection in short.accepted.inbound:
            if connection.sender == members[0].id:
                monkeypatch.setattr(connection, "_reader", Short(connection.decoder))
        await kept.put(key, b"x" * 1_000_000)
        with pytest.raises(phalanx.MemberFailed, match="what another member sends"):
            await short.wait_ended()
        assert await kept.get(key) == b"x" * 1_000_000

    play(story)
