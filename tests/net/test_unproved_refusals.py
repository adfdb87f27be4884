"""A refusal by one who has not shown the secret says nothing of the cluster: who joins passes it over, and tries on.

One that is proved is believed, as every refusal is where there is no secret.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

import phalanx
from phalanx.common.ids import Address, MemberId
from phalanx.net import greeting
from phalanx.net.greeting import Accepting, Connecting
from phalanx.net.secret import Secret
from phalanx.wire.codec import FrameReader, encode_frame, handshake_decoder
from phalanx.wire.messages import Challenge, Proof, Refused
from support.processes import free_port
from support.secret_members import HASTY, SECRET, members, told, until

OTHER = "the secret of another cluster"
FOREIGN = "this member belongs to cluster 'theirs', not to 'phalanx'"


@contextlib.asynccontextmanager
async def stranger(port: int = 0, *, challenges: bool = False) -> AsyncIterator[str]:
    """One without the secret at an address, who refuses whoever greets: at once, or after it has seen a proof."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader(handshake_decoder)
        with contextlib.suppress(OSError):
            while data := await reader.read(4096):
                for message in frames.feed(data):
                    name = MemberId(f"127.0.0.1:{port_of}/stranger")
                    asks = challenges and not isinstance(message, Proof)
                    answer = Challenge(name, b"n" * 32) if asks else Refused(FOREIGN, b"" if asks else b"p" * 32)
                    writer.write(encode_frame(answer))
                    await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", port) as server:
        port_of = server.sockets[0].getsockname()[1]
        yield f"127.0.0.1:{port_of}"


async def start(**settings: Any) -> Any:
    with_all: dict[str, Any] = {"port": 0, "secret": SECRET} | HASTY | settings
    return await phalanx.start_member(phalanx.Config(**with_all))


@pytest.mark.parametrize("challenges", [False, True])
def test_a_stranger_at_a_seeds_address_ends_no_join(challenges: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with stranger(challenges=challenges) as there, members(1) as (one,):
            joiner = await start(seeds=(there, one.address), join_attempts=20)
            assert joiner.view.members[0] == one.id
            await joiner.stop(drain=False)
            assert f"cannot reach the seed {there}" in told(caplog)
            assert FOREIGN in told(caplog)

    with caplog.at_level(logging.WARNING, "phalanx.member"):
        asyncio.run(run())


def test_a_seed_that_comes_back_to_its_address_is_found_after_a_stranger() -> None:
    async def run() -> None:
        async with stranger() as there:
            joining = asyncio.create_task(start(seeds=(there,), join_attempts=100, join_timeout_ms=300))
            await asyncio.sleep(0.7)
            assert not joining.done()
        seed = await start(port=int(there.rpartition(":")[2]))
        joiner = await joining
        await until(lambda: len(seed.view.members) == 2, "it has joined")
        await joiner.stop(drain=False)
        await seed.stop(drain=False)

    asyncio.run(run())


def test_a_wrong_secret_is_told_at_once_and_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with members(1) as (one,):
            with pytest.raises(phalanx.JoinFailed) as failed:
                await start(secret=OTHER, seeds=(one.address,), join_attempts=4, join_timeout_ms=200)
            assert "after 4 attempts" in str(failed.value)
            assert greeting.ANOTHER_SECRET in str(failed.value)
            assert one.view is not None
            assert len(one.view.members) == 1
        # A member of another test may still look for one that had the port of the joiner, and be refused by it.
        of_both = [line for line in told(caplog).splitlines() if one.address in line]
        lines = [line for line in of_both if greeting.ANOTHER_SECRET in line]
        assert sum("cannot reach the seed" in line for line in lines) == 1
        assert sum("Join attempt" in line for line in lines) == 4
        assert sum("refused 1 connections to" in line for line in lines) == 1
        assert sum("refused 1 connections from" in line for line in lines) == 1
        assert len(lines) == 7, "at a bounded rate"

    with caplog.at_level(logging.WARNING, "phalanx.member"):
        asyncio.run(run())


def test_a_first_seed_with_a_wrong_secret_forms_no_cluster_beside_the_one_that_there_is() -> None:
    async def run() -> None:
        port = free_port()
        async with members(1) as (one,):
            seeds = (f"127.0.0.1:{port}", one.address)
            with pytest.raises(phalanx.JoinFailed, match="has another secret"):
                await start(port=port, secret=OTHER, seeds=seeds, join_attempts=3, join_timeout_ms=1_500)

    asyncio.run(run())


def test_a_refusal_that_is_proved_ends_a_join() -> None:
    async def run() -> None:
        async with members(1, cluster="theirs") as (one,):
            with pytest.raises(phalanx.JoinFailed, match=f"^{one.address} refuses: {FOREIGN}"):
                await start(seeds=(one.address,), join_attempts=10_000)

    asyncio.run(run())


def refused(secret: str, *, altered: bool = False) -> Connecting:
    """A greeting between two clusters; the connecting side has this secret, and the refusal may be altered on the way."""
    at = MemberId("127.0.0.1:1/one")
    accepting = Accepting(at, "theirs", Secret(SECRET))
    connecting = Connecting(at, "ours", "127.0.0.1:2/two", Secret(secret))
    challenge = accepting.answer(connecting.begin(Address("127.0.0.1:1")))
    proof = connecting.answer(challenge)
    assert isinstance(proof, Proof)
    refusal = accepting.answer(proof)
    assert isinstance(refusal, Refused)
    if altered:
        refusal = Refused(refusal.reason + ", go away", refusal.proof)
    assert isinstance(connecting.answer(refusal), str)
    return connecting


def test_only_what_the_other_side_has_proved_is_final() -> None:
    assert refused(SECRET).is_final
    assert not refused(SECRET, altered=True).is_final
    assert not refused(OTHER).is_final
    without = Connecting(MemberId("127.0.0.1:1/one"), "ours", "127.0.0.1:2/two", None)
    assert isinstance(without.answer(Refused(FOREIGN)), str)
    assert without.is_final, "where there is no secret, nobody can prove anything"
