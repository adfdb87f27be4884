"""Places of clients and members: members come first, whoever has no place is told so, and it is counted."""

import asyncio
import errno
import logging
import resource
import time
import uuid
from typing import Any

import pytest

import phalanx
from phalanx.client.ask import Inquirer
from phalanx.common.errors import ConnectError
from phalanx.common.ids import Address
from phalanx.common.view import MembersView
from phalanx.runtime.connections import connection_limits as places
from phalanx.runtime.connections.connection_limits import (
    MAX_CLIENTS,
    MAX_MEMBER_PLACES,
    MAX_WAITING_PLACES,
    Places,
    plan_places,
)
from phalanx.runtime.member import Member
from phalanx.runtime.process.processes import PHALANX
from phalanx.runtime.settings.config import Config
from phalanx.wire.messages import GetMembers, Refused, Welcome
from support.processes import Cluster, free_port, wait_for
from support.raw_peers import RawPeer

# --- how descriptors are divided --------------------------------------------------------------------------------------


def test_descriptors_are_divided() -> None:
    assert plan_places(64, 14, 0) == (32, 6, 12)
    assert plan_places(1024, 24, 0) == (625, 125, 250)
    assert plan_places(1 << 20, 24, 0) == (MAX_CLIENTS, 2_500, (1 << 20) - 24 - MAX_CLIENTS - 2_500)
    assert plan_places(1 << 20, 24, 40_000).waiting == 10_000, "a fleet that connects at once"
    assert plan_places(1 << 20, 24, 100).waiting == MAX_WAITING_PLACES
    assert plan_places(20_000, 0, 0).members >= MAX_MEMBER_PLACES
    assert plan_places(1024, 24, 5) == (5, 125, 870)
    assert plan_places(64, 14, 1000) == (36, 6, 8), "no more than there are"
    assert plan_places(10, 14, 0) == (1, 4, 0), "one at least, or nobody could look what is wrong"


def test_the_settings_are_checked() -> None:
    with pytest.raises(phalanx.UsageError, match="max_clients: -1 must not be negative"):
        Config(max_clients=-1)
    with pytest.raises(phalanx.UsageError, match="slow_peer_timeout_ms: 0 must be greater than 0"):
        Config(slow_peer_timeout_ms=0)
    with pytest.raises(phalanx.UsageError, match="max_total_backlog_bytes: 5 must be at least max_backlog_bytes"):
        Config(max_total_backlog_bytes=5)


def test_a_large_cluster_under_a_low_limit_is_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "descriptor_limit", lambda: 64)
    monkeypatch.setattr(places, "descriptors_in_use", lambda: 14)
    some = Places(0)
    assert some.warning(7) == ""
    assert some.warning(8).startswith("8 members take 14 descriptors here, and 12 are kept for them")
    assert some.warning(9) == ""


def test_a_client_does_not_get_the_last_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "descriptor_limit", lambda: 64)
    monkeypatch.setattr(places, "descriptors_in_use", lambda: 14)
    some = Places(0)
    assert some.refusal(31, 57) == ""
    assert "all 32 places for clients are taken" in some.refusal(32, 20)
    assert "few descriptors left" in some.refusal(3, 58)


class Stranger:
    """A connection that has not greeted."""

    sender = None
    is_of_member = False

    def __init__(self, host: str) -> None:
        self.host = host

    def peer_host(self) -> str:
        return self.host

    def abort(self) -> None: ...


def test_a_host_has_half_of_the_waiting_places_where_others_want_one(few_waiting_places: int) -> None:
    some = Places(0)
    honest = [Stranger("10.0.0.1"), Stranger("10.0.0.2")]
    flood = [Stranger("6.6.6.6") for _ in range(40)]
    assert [some.arrived(each, each.host) for each in (*honest, *flood[:2])] == [None] * 4
    for number in range(2, 40):
        assert some.arrived(flood[number], "6.6.6.6") is flood[number - 2], "it crowds out itself"
    assert some.arrived(Stranger("10.0.0.3"), "10.0.0.3") is flood[38]
    assert some.arrived(Stranger("10.0.0.4"), "10.0.0.4") is honest[0], "nobody has half of them: the oldest makes room"


def test_a_flood_leaves_nothing_behind_but_the_connections_that_wait() -> None:
    some = Places(0)
    waiting = some.plan.waiting
    for number in range(3 * waiting):
        crowded_out = some.arrived(Stranger(f"10.0.{number % 7}"), f"10.0.{number % 7}")
        assert (crowded_out is None) == (number < waiting)
    assert len(some._silent) == waiting == sum(map(len, some._of_host.values()))
    for each in list(some._silent):
        some.gone(each)
    assert not some._silent
    assert not some._of_host
    assert not some._large


# --- members over real sockets ----------------------------------------------------------------------------------------


async def start(**settings: Any) -> Member:
    return await phalanx.start_member(phalanx.Config(port=0, cluster="test", join_attempts=1, **settings))


def test_one_client_too_many_is_refused_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        member = await start(max_clients=2)
        try:
            peers = await asyncio.to_thread(lambda: [RawPeer(member.address).greeted() for _ in range(2)])
            with RawPeer(member.address) as third:
                assert isinstance(await asyncio.to_thread(third.greet), Refused)
            assert member.overload.refused_clients.total == 1
            # On a slow machine a client can ask more than once.
            with pytest.raises(ConnectError, match=r"all 2 places for clients are taken: .* raise max_clients"):
                async with phalanx.connect(member.address, cluster="test", connect_timeout_s=5.0):
                    pass
            again = await asyncio.to_thread(lambda: RawPeer(member.address, sender=peers[0].sender).greeted())
            two = await start(seeds=(member.address,))  # members have places
            await two.stop(drain=False)
            peers[1].socket.close()
            async with asyncio.timeout(10.0):
                while True:  # the place is free as soon as the member has noticed
                    fresh = await asyncio.to_thread(RawPeer, member.address)
                    with fresh:
                        if isinstance(await asyncio.to_thread(fresh.greet), Welcome):
                            break
            again.socket.close()
        finally:
            await member.stop(drain=False)

    with caplog.at_level(logging.WARNING, "phalanx.member"):
        asyncio.run(run())
    assert any(
        "refused 1 clients from 127.0.0.1, the last because all 2 places" in r.getMessage() for r in caplog.records
    )


def test_the_oldest_that_has_not_greeted_makes_room_for_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "MIN_WAITING_PLACES", 3)
    monkeypatch.setattr(places, "MAX_WAITING_PLACES", 3)
    monkeypatch.setattr(places, "WAITING_SHARE", 1 << 30)

    async def run() -> None:
        member = await start()
        try:
            silent = [await asyncio.to_thread(RawPeer, member.address) for _ in range(3)]
            await asyncio.to_thread(lambda: RawPeer(member.address).greeted())
            await asyncio.to_thread(wait_for, silent[0].is_closed, "the oldest is closed")
            assert not silent[2].is_closed()
            assert member.overload.crowded_out.total == 1
            for peer in silent:
                peer.socket.close()
        finally:
            await member.stop(drain=False)

    asyncio.run(run())


@pytest.fixture
def few_waiting_places(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many connections may wait at a member of these tests."""
    monkeypatch.setattr(places, "MIN_WAITING_PLACES", 4)
    monkeypatch.setattr(places, "MAX_WAITING_PLACES", 4)
    monkeypatch.setattr(places, "WAITING_SHARE", 1 << 30)
    return 4


class Strangers:
    """Idle connections that greeted as members that are in no list. A context manager that closes them."""

    def __init__(self) -> None:
        self.peers: list[RawPeer] = []

    def __enter__(self) -> "Strangers":
        return self

    def __exit__(self, *error: object) -> None:
        for peer in self.peers:
            peer.socket.close()

    def take(self, address: str, places: int) -> list[RawPeer]:
        """So many more."""
        more = [RawPeer(address, sender=f"127.0.0.1:{20000 + n}/{uuid.uuid4()}").greeted() for n in range(places)]
        self.peers += more
        return more


def test_a_member_that_dials_an_address_does_not_lose_what_it_sent_to_the_member_there() -> None:
    """1. A member leaves, and its master sends it the list without it, on a connection that it has just opened. 2. The master
    dials the address of this former member, to see whether another side is there. 3. The member must still get the list.
    """
    sender = f"127.0.0.1:20000/{uuid.uuid4()}"

    def peer(member: Member, receiver: str) -> RawPeer:
        return RawPeer(member.address, sender=sender, receiver=receiver).greeted()

    def is_closed(peer: RawPeer) -> bool:
        try:
            return peer.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    async def run() -> None:
        one = await start()
        try:
            to_member = await asyncio.to_thread(peer, one, one.id)
            kept = one.accepted.peers[sender]
            to_address = await asyncio.to_thread(peer, one, one.address)
            assert one.accepted.peers[sender] is kept
            assert not kept.is_closing
            assert kept.sender == sender
            # A connection to the address replaces one to the address, and one to the member replaces both.
            again = await asyncio.to_thread(peer, one, one.address)
            assert await asyncio.to_thread(is_closed, to_address)
            assert one.accepted.peers[sender] is kept
            newer = await asyncio.to_thread(peer, one, one.id)
            assert await asyncio.to_thread(is_closed, to_member)
            assert await asyncio.to_thread(is_closed, again)
            assert sender not in one.accepted.seekers
            newer.socket.close()
            await asyncio.to_thread(wait_for, lambda: sender not in one.accepted.peers, "the last one is gone")
            for each in (to_member, to_address, again):
                each.socket.close()
        finally:
            await one.stop(drain=False)

    asyncio.run(run())


def test_idle_strangers_that_call_themselves_members_shut_out_nobody(few_waiting_places: int) -> None:
    async def run() -> None:
        one = await start()
        try:
            await asyncio.to_thread(strangers.take, one.address, few_waiting_places)
            async with phalanx.connect(one.address, cluster="test", connect_timeout_s=5.0) as grid:
                await grid.map("m").put(1, 2)
            await asyncio.to_thread(strangers.take, one.address, few_waiting_places)
            two = await start(seeds=(one.address,))
            try:
                assert await two.map("m").get(1) == 2
                await asyncio.to_thread(strangers.take, one.address, few_waiting_places)
                before = one.accepted.peers[two.id]
                before.abort()
                await asyncio.to_thread(
                    wait_for,
                    lambda: one.accepted.peers.get(two.id) not in (None, before),
                    "the next heartbeat opens another",
                )
                assert await two.map("m").get(1) == 2
                assert one.view is not None
                assert one.view.members == (one.id, two.id)
            finally:
                await two.stop(drain=False)
        finally:
            await one.stop(drain=False)

    with Strangers() as strangers:
        asyncio.run(run())


def test_idle_strangers_do_not_keep_a_member_from_joining(few_waiting_places: int) -> None:
    """A member without a list cannot tell who is a member: the one that it wants to join finds a place all the same."""

    async def run() -> None:
        seed = f"127.0.0.1:{free_port()}"
        two = Member(phalanx.Config(port=0, cluster="test", seeds=(Address(seed),), join_attempts=20))
        joining = asyncio.create_task(two.start())
        await asyncio.to_thread(wait_for, lambda: two.own_addresses, "it listens")
        await asyncio.to_thread(strangers.take, two.address, few_waiting_places)
        one = await phalanx.start_member(phalanx.Config(port=int(seed.rpartition(":")[2]), cluster="test"))
        try:
            async with asyncio.timeout(20.0):
                await joining
            assert two.view is not None
            assert two.view.members == (one.id, two.id)
        finally:
            await two.stop(drain=False)
            await one.stop(drain=False)

    with Strangers() as strangers:
        asyncio.run(run())


def test_neither_the_silent_nor_strangers_take_the_places_of_the_other(few_waiting_places: int) -> None:
    """A joiner that has greeted is not crowded out by connections that say nothing, nor a newcomer by strangers."""

    async def run() -> None:
        member = await start()
        try:
            joiners = await asyncio.to_thread(strangers.take, member.address, few_waiting_places // 2)
            silent = [await asyncio.to_thread(RawPeer, member.address) for _ in range(2 * few_waiting_places)]
            strangers.peers += silent
            gone, newcomer = silent[: -few_waiting_places // 2], silent[-1]
            await asyncio.to_thread(wait_for, lambda: all(peer.is_closed() for peer in gone), "the oldest are closed")
            assert not any(peer.is_closed() for peer in joiners)
            more = await asyncio.to_thread(strangers.take, member.address, few_waiting_places)
            gone = [*silent[:-1], *joiners, more[0]]
            await asyncio.to_thread(wait_for, lambda: all(peer.is_closed() for peer in gone), "the oldest are closed")
            assert not any(peer.is_closed() for peer in more[1:])
            await asyncio.to_thread(newcomer.greeted)
            assert member.overload.crowded_out.total == len(gone)
        finally:
            await member.stop(drain=False)

    with Strangers() as strangers:
        asyncio.run(run())


def test_without_a_descriptor_a_member_is_not_taken_for_unreachable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A joiner that has none waits for one: it does not conclude that the seed is not there."""

    async def run() -> None:
        one = await start()
        loop = asyncio.get_running_loop()
        connect, failures = loop.create_connection, 3

        async def fail(*arguments: Any, **named: Any) -> Any:
            nonlocal failures
            if failures:
                failures -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return await connect(*arguments, **named)

        monkeypatch.setattr(loop, "create_connection", fail)
        try:
            two = await start(seeds=(one.address,))
            assert two.overload.descriptor_shortages.total + one.overload.descriptor_shortages.total == 3
            await two.stop(drain=False)
        finally:
            await one.stop(drain=False)

    with caplog.at_level(logging.WARNING, "phalanx.member"):
        asyncio.run(run())
    said = [record.getMessage() for record in caplog.records]
    assert any(
        "has no descriptor for a connection to" in line and "raise the limit of open files" in line for line in said
    )
    assert not any("cannot reach the seed" in line for line in said)


# --- real processes with few descriptors ------------------------------------------------------------------------------


def limited(ulimit: str) -> tuple[str, ...]:
    """The command `phalanx` under a limit of open files."""
    return ("/bin/sh", "-c", f'ulimit {ulimit}; exec "$@"', "sh", *PHALANX)


def test_a_member_joins_and_stays_where_idle_clients_have_taken_all_they_can(cluster: Cluster) -> None:
    config = cluster.folder / "quick.toml"
    config.write_text("heartbeat_interval_ms = 200\nheartbeat_timeout_ms = 1500\n")
    options, program = ("--config", str(config)), limited("-n 64")
    (first,) = cluster.start(1, options=options, program=program)
    peers = [RawPeer(first.address) for _ in range(70)]
    answers: list[Welcome | Refused | None] = []
    for peer in peers:
        try:
            answers.append(peer.greet())
        except OSError:
            answers.append(None)  # closed before it greeted: all connected at the same time
    welcome = [peer for peer, answer in zip(peers, answers, strict=True) if isinstance(answer, Welcome)]
    for peer in peers:
        if peer not in welcome:
            peer.socket.close()
    extra = [RawPeer(first.address) for _ in range(2)]
    while isinstance(answer := extra[0].greet(), Welcome) and len(welcome) < 64:
        welcome.append(extra.pop(0))
        extra.append(RawPeer(first.address))
    assert isinstance(answer, Refused)
    assert "places for clients are taken" in answer.reason
    assert len(welcome) >= 20

    (second,) = cluster.start(1, wait=False, options=options, program=program)
    second.wait_ready()

    def seen() -> MembersView:
        welcome[0].send(GetMembers(1))
        here = welcome[0].replies(1)[0].view
        with Inquirer(second.address, cluster=cluster.name) as inquirer:
            there = inquirer.members().view
        assert isinstance(here, MembersView)
        return here if here == there else MembersView(0, here.maker, ())

    view = wait_for(lambda: seen() if len(seen().members) == 2 else None, "both have one list")
    until = time.monotonic() + 2 * 1.5  # whoever is not reached is removed within the heartbeat timeout
    while time.monotonic() < until:
        assert seen() == view
    assert "refused 1 clients from 127.0.0.1, the last because all" in first.log.read_text()
    assert "places for" in first.log.read_text()
    for peer in [*welcome, *extra]:
        peer.socket.close()


def test_a_member_process_raises_its_limit_of_open_files(cluster: Cluster) -> None:
    (member,) = cluster.start(1, program=limited("-S -n 50"))
    soft, hard = resource.prlimit(member.pid, resource.RLIMIT_NOFILE)
    assert soft == min(hard, places.UNLIMITED)
