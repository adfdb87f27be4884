"""Two ways to write an address are equal, and two addresses never are."""

import socket

import pytest

from phalanx.net.addresses import is_of_this_machine, normalise, socket_address

FORMS = [
    ["10.0.0.1:5701", "[::ffff:10.0.0.1]:5701", "::FFFF:a00:1:5701", "10.0.0.1:05701"],
    ["[2001:db8::1]:5701", "[2001:DB8:0:0:0:0:0:1]:5701", "2001:0db8::0001:5701"],
    ["[fe80::1]:5701", "[fe80::1%eth0]:5701", "[FE80::1%2]:5701"],
    ["node-1.example:5701", "Node-1.EXAMPLE:5701", "node-1.example.:5701"],
    ["10.0.0.1:5702"],
    ["10.0.0.2:5701"],
    ["[::1]:5701"],
    ["127.0.0.1:5701"],
    ["localhost:5701"],
    ["nonsense"],
    [""],
    [f"10.0.0.1:{'1' * 5_000}"],
]


@pytest.mark.parametrize("forms", FORMS, ids=lambda forms: forms[0][:30] or "empty")
def test_what_is_one_address_has_one_form(forms: list[str]) -> None:
    assert {normalise(form) for form in forms} == {forms[0]}
    assert normalise(normalise(forms[-1])) == normalise(forms[-1])


@pytest.mark.parametrize(
    ("place", "form"),
    [
        (("10.0.0.1", 5701), "10.0.0.1:5701"),
        (("::1", 5701, 0, 0), "[::1]:5701"),
        (("::ffff:10.0.0.1", 5701, 0, 0), "10.0.0.1:5701"),
        (("fe80::1%eth0", 5701, 0, 2), "[fe80::1]:5701"),
        (None, ""),
    ],
)
def test_what_a_socket_says_has_the_same_form(place: tuple[object, ...] | None, form: str) -> None:
    assert socket_address(place) == normalise(form) == form


def test_an_ipv4_peer_of_a_socket_for_both_is_the_one_that_was_dialled() -> None:
    with (
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server,
        socket.create_connection(("127.0.0.1", server.getsockname()[1])) as one,
    ):
        other, _ = server.accept()
        with other:
            assert other.getsockname()[0] == "::ffff:127.0.0.1"
            assert socket_address(other.getsockname()) == socket_address(one.getpeername())


def test_addresses_of_this_machine_are_known() -> None:
    for own in ("127.0.0.1", "127.9.9.9", "::1"):
        assert is_of_this_machine(own)
    # Of a network that exists for documents only, of names that are not looked up, and of none.
    for other in ("192.0.2.7", "2001:db8::7", "localhost", "somewhere.example", "", "0.0.0.0", "::"):
        assert not is_of_this_machine(other)
