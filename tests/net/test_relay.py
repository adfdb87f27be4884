"""A stranger without the secret who listens where somebody dials, and passes the greeting on to a member."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.common.errors import ConnectError
from phalanx.common.ids import Address
from phalanx.net.secret import SECRET_FILE_VARIABLE
from support.processes import Cluster, free_port
from support.relays import Forwarder, Relay
from support.secret_members import (
    DEADLINE_S,
    ENTRIES,
    HASTY,
    SECRET,
    by_asyncio,
    by_blocking,
    by_question,
    clear,
    members,
    size_of,
    told,
    until,
)


@pytest.fixture(autouse=True)
def _nothing_else_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_FILE_VARIABLE, raising=False)


# --- passed on to somebody else -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [by_asyncio, by_blocking])
def test_who_passes_a_clients_greeting_on_is_no_client(
    ask: Callable[[str], Awaitable[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with members(1) as (member,), Relay(member.address) as relay:
            await member.map("m").put_all(ENTRIES)
            with pytest.raises(ConnectError) as refused:
                await ask(relay.address)
            stolen = await relay.one_over()
            stolen.send(clear())
            await until(lambda: stolen.closed.is_set() or stolen.heard, "an answer, or the end")
            assert not stolen.heard
            assert not stolen.is_welcomed
            assert await size_of(member) == len(ENTRIES)
            reason = (
                f"{relay.address} was dialled, and the connection came to {member.address}, which is not known under"
            )
            assert reason in str(refused.value)
            assert f"--also-known-as {relay.address}" in str(refused.value)
            assert f"{member.address} refused 1 connections from 127.0.0.1, the last because {reason}" in told(caplog)
            assert member.refused_strangers.total >= 1

    asyncio.run(run())


@pytest.mark.parametrize("to", ["another member", "the master itself"])
def test_who_listens_where_a_member_was_is_not_the_master(to: str, caplog: pytest.LogCaptureFixture) -> None:
    """The master looks for another side at the addresses of former members."""

    async def run() -> None:
        async with members(3) as (master, other, gone):
            await master.map("m").put_all(ENTRIES)
            address = gone.address
            await gone.stop(drain=False)
            target = other if to == "another member" else master
            async with Relay(target.address, at=address) as relay:
                await until(lambda: master.view and len(master.view.members) == 2, "it was removed")
                stolen = await relay.one_over(receiver=address)
                stolen.send(clear())
                async with asyncio.timeout(DEADLINE_S):
                    await stolen.closed.wait()
                assert not any(each.is_welcomed for each in relay.connections)
            assert await size_of(master) == len(ENTRIES)
            if target is other:
                assert f"{address} was dialled, and the connection came to {other.address}" in told(caplog)
                assert other.refused_strangers.total >= 1

    asyncio.run(run())


def test_a_call_for_a_member_that_is_gone_is_given_up_at_a_stranger_that_names_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Before the others have removed it, they dial its incarnation."""

    async def run() -> None:
        async with members(3, connection_grace_ms=5_000) as (master, other, gone):
            address, identity = gone.address, gone.id
            await gone.stop(drain=False)
            async with Relay(other.address, at=address) as relay:
                stolen = await relay.one_over(receiver=identity)
                assert [type(each).__name__ for each in stolen.said] == ["Hello", "Challenge"]
                reason = f"{address} was dialled, and '{other.address}' answered: the program that listens there passes"
                await until(
                    lambda: f"connections to {address}, the last because {reason}" in told(caplog), "it is told"
                )
                assert master.refused_strangers.total + other.refused_strangers.total >= 1

    asyncio.run(run())


def test_a_client_and_a_joiner_go_on_to_the_members_beside_the_stranger() -> None:
    async def run() -> None:
        async with members(1) as (member,), Relay(member.address) as relay:
            await member.map("m").put_all(ENTRIES)
            addresses = f"{relay.address},{member.address}"
            assert await by_asyncio(addresses) == await by_blocking(addresses) == len(ENTRIES)
            seeds = (Address(relay.address), Address(member.address))
            joiner = await phalanx.start_member(
                phalanx.Config(port=0, secret=SECRET, seeds=seeds, **HASTY)  # type: ignore[arg-type]
            )
            await joiner.stop(drain=False)

    asyncio.run(run())


# --- several addresses of one member --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "advertise", "dialled"),
    [
        ("127.0.0.1", None, ["127.0.0.1", "localhost", "LOCALHOST"]),
        ("127.0.0.2", None, ["127.0.0.2"]),
        ("localhost", None, ["localhost", "127.0.0.1"]),
        ("0.0.0.0", "127.0.0.3", ["0.0.0.0", "127.0.0.3", "127.0.0.1", "127.0.0.2", "localhost"]),
        ("127.0.0.1", "localhost", ["127.0.0.1", "localhost"]),
    ],
)
def test_a_member_is_reached_at_each_of_its_addresses(
    host: str, advertise: str | None, dialled: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(0o600)

    async def run() -> None:
        async with members(1, host=host, advertise=advertise) as (member,):
            port = member.address.rpartition(":")[2]
            for name in dialled:
                try:
                    assert await by_asyncio(f"{name}:{port}") == await by_blocking(f"{name}:{port}") == 0
                    assert await by_question(f"{name}:{port}", file) == 1
                except ConnectError as error:
                    pytest.fail(f"a member that listens on {host} is not reached at {name}: {error}")
            seed = Address(f"{dialled[-1]}:{port}")
            settings: dict[str, Any] = HASTY | {"secret": SECRET, "host": host, "advertise": advertise}
            joiner = await phalanx.start_member(phalanx.Config(port=0, seeds=(seed,), **settings))
            await until(lambda: member.view and len(member.view.members) == 2, "it joined")
            await joiner.stop(drain=False)
            assert member.refused_strangers.total == 0

    asyncio.run(run())


@pytest.mark.parametrize("host", ["127.0.0.2", "127.0.0.3"])
def test_the_same_port_on_another_address_of_the_host_is_another_listener(host: str) -> None:
    async def run() -> None:
        async with members(1) as (member,):
            port = member.address.rpartition(":")[2]
            async with Relay(member.address, at=f"{host}:{port}") as relay:
                with pytest.raises(ConnectError, match=f"{host}:{port} was dialled"):
                    await by_asyncio(relay.address)
                assert not (await relay.one_over()).is_welcomed

    asyncio.run(run())


def test_a_mapped_port_takes_a_word_of_the_operator(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(0o600)

    async def run() -> None:
        port = free_port()
        async with Forwarder(f"127.0.0.1:{port}") as mapped:
            async with members(1, port=port):
                for ask in (by_asyncio, by_blocking):
                    with pytest.raises(
                        ConnectError, match=f"start 127.0.0.1:{port} with --also-known-as {mapped.address}"
                    ):
                        await ask(mapped.address)
                with pytest.raises(ConnectError, match=f"{mapped.address} was dialled, and the connection came to"):
                    await by_question(mapped.address, file)
            async with members(1, port=port, also_known_as=(mapped.address,)) as (member,):
                assert await by_asyncio(mapped.address) == await by_blocking(mapped.address) == 0
                assert await by_question(mapped.address, file) == 1
                assert member.refused_strangers.total == 0

    asyncio.run(run())


# --- processes ------------------------------------------------------------------------------------------------------


def test_members_go_on_beside_a_stranger_at_the_address_of_one_that_was_killed(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, settings = tmp_path / "secret", tmp_path / "member.toml"
    file.write_text(SECRET)
    file.chmod(0o600)
    settings.write_text("merge_interval_ms = 200\nheartbeat_interval_ms = 200\npartition_count = 31\n")
    monkeypatch.setenv(SECRET_FILE_VARIABLE, str(file))
    _, other, victim = cluster.start(3, options=("--config", str(settings)))
    address = victim.address
    with cluster.client() as grid:
        grid.map("m").put_all(ENTRIES)
        cluster.wait_redundant()
        cluster.kill(victim)

    async def run() -> None:
        async with Relay(other.address, at=address) as relay:
            for receiver in (address, ""):
                stolen = await relay.one_over(receiver)
                stolen.send(clear())
            await asyncio.to_thread(cluster.wait_views)
            await asyncio.to_thread(cluster.wait_redundant)
            with await asyncio.to_thread(
                phalanx.Client, f"{address},{cluster.addresses}", cluster=cluster.name
            ) as grid:
                assert await asyncio.to_thread(dict, grid.map("m").items()) == ENTRIES
            assert not any(each.is_welcomed for each in relay.connections)

    asyncio.run(run())
    assert f"{address} was dialled, and the connection came to {other.address}" in other.log.read_text()
