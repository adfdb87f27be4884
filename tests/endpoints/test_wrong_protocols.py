"""Peers that speak what this port does not: one clear line in the log, and one for the peer in its own protocol, where that has any."""

import socket
import ssl

import pytest

from endpoints.hazelcast.requests import authentication
from phalanx.net.sniffing import Spoken, refusal_of, spoken_in
from support.processes import Cluster, wait_for

CASES = [
    (b"hello there\r\n", Spoken.REDIS, "protocol of Redis", b"-ERR it speaks the protocol of Redis"),
    (b"*1\r\n$4\r\nPING\r\n", Spoken.REDIS, "protocol of Redis", b"-ERR it speaks the protocol of Redis"),
    (b"\x01\x02\x03\x04", Spoken.UNKNOWN, "no protocol that this member knows", b""),
    (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Spoken.HTTP, "it speaks HTTP", b"HTTP/1.1 400 Bad Request"),
    (b"\x16\x03\x01\x02\x00\x01\x00", Spoken.TLS, "it begins with TLS", b"\x15\x03\x01\x00\x02\x02\x28"),
    (b"CP1" + authentication(), Spoken.OTHER_HAZELCAST, "another version of Hazelcast's protocol", b""),
    (b"CP3" + authentication(), Spoken.OTHER_HAZELCAST, "another version of Hazelcast's protocol", b""),
    (b"CB2" + bytes(40), Spoken.OTHER_HAZELCAST, "another version of Hazelcast's protocol", b""),
    (b"HZC" + bytes(40), Spoken.OTHER_HAZELCAST, "another version of Hazelcast's protocol", b""),
]


@pytest.mark.parametrize(("sent", "spoken", "logged", "told"), CASES, ids=map(str, range(len(CASES))))
def test_strangers_are_known_by_their_first_bytes(sent: bytes, spoken: Spoken, logged: str, told: bytes) -> None:
    found = [spoken_in(sent[:length]) for length in range(1, len(sent) + 1)]
    known = [each for each in found if each is not None]
    assert set(known) == {spoken}, "however much of it has arrived"
    why, answer = refusal_of(spoken, ("hazelcast",))
    assert logged in why
    assert answer.startswith(told)
    assert bool(answer) == bool(told)


def test_a_client_is_told_by_a_member_that_serves_no_hazelcast() -> None:
    assert spoken_in(b"CP2") is Spoken.HAZELCAST
    why, _ = refusal_of(Spoken.HAZELCAST, ())
    assert "serves no other protocol (setting serve): start the member with --serve hazelcast" in why


@pytest.mark.parametrize(
    ("sent", "logged"),
    [
        (b"CP3" + authentication(), "another version of Hazelcast's protocol"),
        (
            b"CP2" + authentication(cluster="other"),
            "cluster name 'other', and this cluster is 'test': set cluster_name",
        ),
    ],
    ids=["protocol", "cluster"],
)
def test_a_wrong_client_costs_one_line_and_its_connection(cluster: Cluster, sent: bytes, logged: str) -> None:
    (member,) = cluster.start(1, options=("--serve", "hazelcast"))
    host, _, port = member.address.rpartition(":")
    before = len(cluster.logs().splitlines())
    for _ in range(3):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(sent)
            while connection.recv(4096):
                pass
    wait_for(lambda: logged in cluster.logs(), "the member says why")
    lines = [line for line in cluster.logs().splitlines()[before:] if "closing the connection" in line]
    assert len(lines) == 1, "told once, and counted then"
    assert logged in lines[0]


def test_a_client_with_tls_is_told_in_tls(cluster: Cluster) -> None:
    (member,) = cluster.start(1, options=("--serve", "hazelcast"))
    host, _, port = member.address.rpartition(":")
    context = ssl.create_default_context()
    with (
        socket.create_connection((host, int(port)), timeout=10) as connection,
        pytest.raises(ssl.SSLError, match=r"(?i)handshake failure"),
    ):
        context.wrap_socket(connection, server_hostname="localhost")
    wait_for(
        lambda: "it begins with TLS, which this port does not speak: connect without TLS" in cluster.logs(),
        "it is told",
    )
