"""Asking one member one question, and what its table says."""

import socket
import threading

import pytest

from phalanx.client.ask import Inquirer
from phalanx.client.blocking.connection import RefusedByPeer
from phalanx.common.errors import ConnectError
from phalanx.common.ids import Address, MemberId
from phalanx.common.table import build_table, unassigned_table
from phalanx.common.view import MembersView
from phalanx.reports.placement import Placement
from support.processes import Cluster

A, B, C, D = (MemberId(f"127.0.0.1:{port}/{name}") for port, name in ((1, "a"), (2, "b"), (3, "c"), (4, "d")))
ROWS = [(A, B), (B, C), (C, A), (C,), ()]


def placement(members: tuple[MemberId, ...], backup_count: int = 1) -> Placement:
    return Placement(MembersView(7, A, members), build_table(ROWS, [1] * len(ROWS)), backup_count)


@pytest.mark.parametrize(
    ("members", "backup_count", "lacking"),
    [
        ((A, B, C), 1, [3, 4]),
        ((A, B, C), 0, [4]),
        ((A, B, C), 2, [0, 1, 2, 3, 4]),
        ((A, B), 1, [1, 2, 3, 4]),  # C was lost, and the table does not know it yet
        ((A, B, D), 1, [1, 2, 3, 4]),
        ((C,), 1, [0, 4]),  # one member cannot back itself up
    ],
)
def test_lacking_are_those_with_fewer_living_replicas_than_members_allow(
    members: tuple[MemberId, ...], backup_count: int, lacking: list[int]
) -> None:
    assert placement(members, backup_count).lacking() == lacking


def test_what_each_member_of_the_view_owns_and_backs_up() -> None:
    assert placement((A, B, C, D)).counts() == {A: (1, 1), B: (1, 1), C: (2, 1), D: (0, 0)}
    assert placement((A, B)).counts() == {A: (1, 1), B: (1, 1)}


def test_before_the_assignment_everything_is_lacking() -> None:
    seen = Placement(MembersView(1, A, (A, B)), unassigned_table(3), 1)
    assert seen.lacking() == [0, 1, 2]
    assert seen.counts() == {A: (0, 0), B: (0, 0)}


def test_a_port_where_nobody_listens_is_told() -> None:
    with pytest.raises(ConnectError, match=r"cannot connect to 127\.0\.0\.1:1: Connection refused"):
        Inquirer(Address("127.0.0.1:1")).members()


def test_something_that_never_answers_is_told_after_the_time_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address(f"127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(
            ConnectError, match=r"did not answer within 0.2 s: it may hang, or it is not a member of Phalanx"
        ):
            Inquirer(address, timeout_s=0.2).members()


def test_something_that_is_no_member_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet_as_another_program() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(100)

        threading.Thread(target=greet_as_another_program, daemon=True).start()
        with pytest.raises(RefusedByPeer, match="no member of Phalanx listens there"):
            Inquirer(Address(f"127.0.0.1:{server.getsockname()[1]}"), timeout_s=2).members()


def test_after_an_error_the_next_question_connects_anew(cluster: Cluster) -> None:
    member = cluster.start(1)[0]
    with Inquirer(member.address, cluster=cluster.name, timeout_s=0.3) as inquirer:
        assert inquirer.members().view.members == (member.member,)
        cluster.pause(member)
        with pytest.raises(ConnectError, match=r"did not answer within 0.3 s: it may hang"):
            inquirer.table()
        cluster.resume(member)
        assert inquirer.members().view.members == (member.member,)
        assert inquirer.table().table.version == 0
