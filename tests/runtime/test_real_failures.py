"""Members as processes that crash, hang, leave, and start all at once: one list in the end, and M1 to M3 on the way.

Nothing here asserts that something is fast. A busy machine may make members suspect and remove one another for a while;
what must hold is that those that run agree again, and that what they installed on the way was in order.
"""

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.client.ask import Inquirer
from phalanx.common.view import MembersView
from phalanx.runtime.process.processes import MemberProcess, start_member_process
from support.processes import Cluster, wait_for
from support.views_on_disk import ViewsOnDisk

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

SETTLE_S = 180.0
HASTY = """
heartbeat_interval_ms = 250
heartbeat_timeout_ms = 2500
join_attempts = 60
"""


class Failures:
    """A cluster with short timeouts, and what is asked of it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        config = folder / "hasty.toml"
        config.write_text(HASTY)
        self.options = ("--config", str(config))

    @property
    def members(self) -> list[MemberProcess]:
        return self.cluster.members

    def start(self, count: int) -> None:
        self.cluster.start(count, options=self.options)

    def start_at(self, port: int, seeds: list[str]) -> MemberProcess:
        """A member on a given port, not awaited."""
        log = self.cluster.folder / f"port-{port}.log"
        started = start_member_process(
            log, seeds=seeds, cluster=self.cluster.name, port=port, event_log=self.cluster.event_log,
            options=self.options,
        )  # fmt: skip
        self.cluster.adopt(started)
        return started

    def master(self) -> MemberProcess:
        """The process of the oldest member."""
        address = self.cluster.view_of(self.members[0]).master.partition("/")[0]
        return next(member for member in self.members if member.address == address)

    def slave(self) -> MemberProcess:
        master = self.master()
        return next(member for member in self.members if member is not master)

    def settled(self) -> MembersView:
        """The one list that all running members have in the end, nobody suspected; M1 to M3 held on the way to it."""
        for member in self.members:
            member.wait_ready(SETTLE_S)
        view = wait_for(self._agreed, "one list at all members, and no suspicion", SETTLE_S)
        assert ViewsOnDisk(self.cluster.event_log).judge(view.members) == []
        return view

    def _agreed(self) -> MembersView | None:
        replies = []
        for member in self.members:
            with Inquirer(member.address, cluster=self.cluster.name) as inquirer:
                replies.append(inquirer.members())
        view = replies[0].view
        is_whole = sorted(each.partition("/")[0] for each in view.members) == sorted(m.address for m in self.members)
        return view if is_whole and all(r.view == view and not r.suspected for r in replies) else None

    def wait_without(self, gone: str, at: list[MemberProcess]) -> None:
        """Until these members have a list without an incarnation."""
        wait_for(
            lambda: all(gone not in self.cluster.view_of(member) for member in at), f"a list without {gone}", SETTLE_S
        )


@pytest.fixture
def failures(cluster: Cluster, tmp_path: Path) -> Failures:
    return Failures(cluster, tmp_path)


PICKS: list[Callable[[Failures], MemberProcess]] = [Failures.master, Failures.slave]
either = pytest.mark.parametrize("pick", PICKS, ids=["master", "slave"])


@pytest.mark.rows("CS-33", "CS-35", "CS-53")
@either
def test_a_member_that_crashes_is_removed(failures: Failures, pick: Callable[[Failures], MemberProcess]) -> None:
    failures.start(4)
    victim = pick(failures)
    failures.cluster.kill(victim)
    assert len(failures.settled().members) == 3


@pytest.mark.rows("CS-42", "EL-19", "EL-20")
@either
def test_a_member_that_hangs_is_removed_and_comes_back(
    failures: Failures, pick: Callable[[Failures], MemberProcess]
) -> None:
    failures.start(4)
    victim = pick(failures)
    before = victim.member
    failures.cluster.pause(victim)
    failures.wait_without(before, [member for member in failures.members if member is not victim])
    failures.cluster.resume(victim)
    view = failures.settled()
    assert len(view.members) == 4
    assert before not in view
    assert view.master.partition("/")[0] != victim.address


def test_a_master_that_is_told_to_stop_hands_over(failures: Failures) -> None:
    failures.start(4)
    master = failures.master()
    address = master.address
    assert failures.cluster.terminate(master, SETTLE_S) == 0
    view = failures.settled()
    assert len(view.members) == 3
    assert view.master.partition("/")[0] != address


def test_two_that_are_killed_at_once_are_removed_the_master_among_them(failures: Failures) -> None:
    failures.start(5)
    victims = [failures.master(), failures.slave()]
    for victim in victims:
        victim.kill()
    for victim in victims:
        failures.cluster.kill(victim)
    assert len(failures.settled().members) == 3


@pytest.mark.rows("EL-28")
def test_twenty_that_start_at_once_join_through_a_seed_that_starts_last(failures: Failures) -> None:
    seed = free_port()
    for _ in range(20):
        failures.start_at(0, [f"127.0.0.1:{seed}"])
    failures.start_at(seed, [])
    view = failures.settled()
    assert len(view.members) == 21
    assert view.master.startswith(f"127.0.0.1:{seed}/")


def test_all_are_restarted_one_after_another_while_a_client_writes(failures: Failures) -> None:
    failures.start(10)
    stop, written, problems = threading.Event(), [0], []

    def write() -> None:
        try:
            with failures.cluster.client(call_timeout_s=SETTLE_S) as grid:
                entries = grid.map("kept")
                while not stop.is_set():
                    entries.put(written[0], written[0])
                    written[0] += 1
        except Exception as error:  # told by the test's own thread
            problems.append(error)

    # The client is made with all ten addresses; each of them is another incarnation in the end.
    writer = threading.Thread(target=write)
    writer.start()
    try:
        before = failures.settled()
        for member in list(failures.members):
            port = int(member.address.rpartition(":")[2])
            assert failures.cluster.terminate(member, SETTLE_S) == 0
            failures.start_at(port, [other.address for other in failures.members])
            failures.settled()
    finally:
        stop.set()
        writer.join(SETTLE_S)
    assert problems == []
    after = failures.settled()
    assert {m.partition("/")[0] for m in after.members} == {m.partition("/")[0] for m in before.members}
    assert not set(after.members) & set(before.members)
    with failures.cluster.client(call_timeout_s=SETTLE_S) as grid:
        entries = grid.map("kept")
        assert len(entries) == written[0]
        assert all(entries.get(n) == n for n in range(written[0]))


def free_port() -> int:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
