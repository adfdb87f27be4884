"""The blocking client connects without waiting for one who hangs: what is known meanwhile decides whom it asks."""

import select
import socket
from pathlib import Path

import pytest

import phalanx
from phalanx.client.blocking import connection
from phalanx.client.blocking.connection import BlockingConnection, ConnectAttempt, RefusedByPeer
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_key_data
from phalanx.common.errors import ConnectError
from phalanx.common.ids import Address
from support.processes import Cluster, wait_for

HASTY = """
heartbeat_interval_ms = 200
heartbeat_timeout_ms = 1500
"""


@pytest.fixture
def endless_greetings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A greeting that nobody answers takes longer than any call."""
    monkeypatch.setattr(connection, "GREETING_TIMEOUT_S", 600.0)


@pytest.mark.usefixtures("endless_greetings")
def test_a_call_to_an_owner_that_hung_before_it_was_connected_to_is_answered_by_the_next(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "hasty.toml").write_text(HASTY)
    first, _, victim = cluster.start(3, options=("--config", str(tmp_path / "hasty.toml")))
    with cluster.client() as writer:
        writer.map("m").put_all({number: number for number in range(1_000)})
        cluster.wait_redundant()
    with phalanx.Client(first.address, cluster=cluster.name, call_timeout_s=60) as client:
        table = client.partition_table()
        owners = {number: table.owner(partition_of(to_key_data(number), 271)) for number in range(1_000)}
        number = next(number for number, owner in owners.items() if owner == victim.member)
        cluster.pause(victim)
        assert client.map("m")[number] == number


@pytest.mark.usefixtures("endless_greetings")
def test_a_client_whose_first_seed_hangs_gets_in_by_the_next(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (member,) = cluster.start(1)
        seeds = f"127.0.0.1:{silent.getsockname()[1]},{member.address}"
        with phalanx.Client(seeds, cluster=cluster.name, connect_timeout_s=30) as client:
            assert client.partition_count


def test_who_never_answers_the_greeting_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "GREETING_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConnectError, match=f"{address}: no whole answer to the greeting in time"):
            phalanx.Client(address, connect_timeout_s=2)


def test_a_connection_whose_greeting_is_not_over_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        attempt = ConnectAttempt(Address(f"127.0.0.1:{silent.getsockname()[1]}"), "phalanx", "client/1")
        attempt.go_on_for(0.01)
        assert attempt.member is None
        with pytest.raises(ValueError, match="is not over"):
            BlockingConnection(attempt, 1_000)
        attempt.socket.close()


def test_every_address_of_a_host_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.0.0.2", "127.0.0.1")]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **options: list(found))
        attempt = ConnectAttempt(Address(f"many:{port}"), "phalanx", "client/1")
        wait_for(lambda: is_connected(attempt), "the second address is tried")
        connection, _ = server.accept()
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(RefusedByPeer, match="no member of Phalanx"):
            attempt.go_on_for(5)
        connection.close()
        attempt.socket.close()


def is_connected(attempt: ConnectAttempt) -> bool:
    attempt.go_on_for(0.01)
    return attempt.waits_for == select.POLLIN
