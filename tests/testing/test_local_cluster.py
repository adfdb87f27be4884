"""Clusters for the tests of programs: what befalls their members is what befalls members in production."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.testing import LocalCluster
from phalanx.testing.cuts import Cuts
from phalanx.testing.wholeness import why_not_whole


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(3) as each:
        yield each


def names_in_view(cluster: LocalCluster, who: str) -> set[str]:
    view = cluster[who].view
    return set() if view is None else {each.name for each in cluster if each.id in view}


def test_a_killed_member_loses_nothing_that_has_a_backup(cluster: LocalCluster) -> None:
    with cluster.client() as grid:
        numbers = grid.map("numbers")
        numbers.put_all({number: number for number in range(500)})
        cluster.until_whole()
        cluster.kill(0)
        cluster.until_whole()
        assert len(numbers) == 500
        cluster.kill("B")
        cluster.until_whole()
        assert dict(numbers) == {number: number for number in range(500)}
    assert [each.name for each in cluster] == ["C"]


def test_a_killed_member_hands_nothing_over() -> None:
    with LocalCluster(2, backup_count=0) as cluster:
        entries = cluster["B"].map("m")
        entries.put_all({number: number for number in range(500)})
        cluster.kill("A")
        cluster.until_whole()
        assert 0 < len(entries) < 500


def test_a_member_that_stops_hands_over_what_it_holds() -> None:
    with LocalCluster(2, backup_count=0) as cluster:
        entries = cluster["B"].map("m")
        entries.put_all({number: number for number in range(500)})
        cluster.stop("A")
        assert len(entries) == 500


def test_a_member_that_hangs_is_removed_and_comes_back(cluster: LocalCluster) -> None:
    entries = cluster["A"].map("m")
    entries.put_all({number: number for number in range(100)})
    cluster.hang("C")
    cluster.until_whole()
    assert names_in_view(cluster, "A") == {"A", "B"}
    before = cluster["C"].is_hung, cluster["C"].is_running
    cluster.resume("C")
    cluster.until_whole()
    assert before == (True, True)
    assert names_in_view(cluster, "A") == {"A", "B", "C"}
    assert len(cluster["C"].map("m")) == 100


def test_a_short_hang_is_survived(cluster: LocalCluster) -> None:
    before = cluster["C"].id
    cluster.hang("C")
    time.sleep(0.2)
    cluster.resume("C")
    cluster.until_whole()
    assert cluster["C"].id == before


def test_sides_of_a_cut_go_on_apart_and_merge(cluster: LocalCluster) -> None:
    cluster["A"].map("m").put("before", 1)
    cluster.cut("A|B,C")
    cluster.until_whole()
    assert names_in_view(cluster, "A") == {"A"}
    assert names_in_view(cluster, "B") == {"B", "C"}
    cluster["A"].map("m").put("here", "a")
    cluster["B"].map("m").put("there", "b")
    assert "there" not in cluster["A"].map("m")
    assert "here" not in cluster["C"].map("m")
    own = {each.address for each in cluster}
    assert why_not_whole(list(cluster), own, Cuts()) == "A and B, C have not merged", (
        "as it will be said when the cut has ended"
    )
    cluster.heal()
    cluster.until_whole()
    assert dict(cluster["B"].map("m")) == {"before": 1, "here": "a", "there": "b"}


def test_what_is_missing_is_said(cluster: LocalCluster) -> None:
    """Of a cluster that stays as it is: what a cluster lacks on its way may be over before it is asked for."""
    cluster.until_whole()
    members, own = list(cluster), {each.address for each in cluster}
    assert why_not_whole(members, own, Cuts()) == ""
    assert "has not removed" in why_not_whole(members[1:], own, Cuts()), "one is gone, and in their view"
    cut = Cuts()
    cut.add("A|B,C", str)
    assert why_not_whole(members, own, cut) == "A and B are cut off from each other, and in one view"
    assert why_not_whole([], own, Cuts()) == "all members that run hang"


def test_who_is_cut_off_from_one_of_two_is_left_out_until_the_cut_ends(cluster: LocalCluster) -> None:
    cluster.cut("0|1")
    cluster.until_whole()
    kept = names_in_view(cluster, "C")
    assert kept in ({"A", "C"}, {"B", "C"})
    (out,) = {"A", "B"} - kept
    assert names_in_view(cluster, out) in (set(), {out})
    cluster.heal()
    cluster.until_whole()
    assert names_in_view(cluster, "C") == {"A", "B", "C"}


def test_what_is_protected_is_refused_on_the_smaller_side() -> None:
    maps = {"orders": phalanx.MapConfig(majority=True)}
    with LocalCluster(3, maps=maps, call_timeout_ms=1_000) as cluster:
        cluster["A"].map("orders").put(1, "x")
        cluster.cut("A|B,C")
        cluster.until_whole()
        with pytest.raises(phalanx.NotEnoughMembers):
            cluster["A"].map("orders").put(1, "y")
        cluster["B"].map("orders").put(1, "z")


def test_a_cut_that_begins_while_a_member_hangs_holds_when_it_goes_on(cluster: LocalCluster) -> None:
    cluster.hang("A")
    cluster.cut("A|B,C")
    cluster.until_whole()
    cluster.resume("A")
    cluster.until_whole()
    assert names_in_view(cluster, "A") == {"A"}
    assert names_in_view(cluster, "B") == {"B", "C"}


def test_a_member_can_be_killed_while_it_hangs_and_starts_anew(cluster: LocalCluster) -> None:
    cluster["B"].map("m").put("k", "v")
    cluster.until_whole()
    cluster.hang("A")
    address = cluster["A"].address
    cluster.kill("A")
    cluster.until_whole()
    again = cluster.restart("A")
    cluster.until_whole()
    assert again.address == address
    assert names_in_view(cluster, "B") == {"A", "B", "C"}
    assert again.map("m")["k"] == "v"


def test_a_cluster_grows(cluster: LocalCluster) -> None:
    assert cluster.add().name == "D"
    cluster.until_whole()
    assert names_in_view(cluster, "A") == {"A", "B", "C", "D"}
    assert len(cluster) == 4


def test_a_client_of_an_event_loop_lives_through_a_crash(cluster: LocalCluster) -> None:
    async def count() -> Any:
        async with cluster.connect() as grid:
            counts = grid.map("counts")
            for number in range(200):
                if number == 100:
                    cluster.kill("B")
                await counts.increment("n")
            await asyncio.to_thread(cluster.until_whole)
            return await counts.get("n")

    assert asyncio.run(count()) == 200


def test_a_call_to_a_killed_member_ends_with_an_error(cluster: LocalCluster) -> None:
    entries = cluster["A"].map("m")
    entries.put("k", 1)
    cluster.kill("A")
    with pytest.raises(phalanx.ClientClosed):
        entries.put("k", 2)


def test_clusters_of_two_tests_know_nothing_of_each_other(cluster: LocalCluster) -> None:
    with LocalCluster(1) as other:
        cluster["A"].map("m").put("k", 1)
        assert "k" not in other["A"].map("m")
        assert other.name != cluster.name


def test_members_of_the_program_may_come_and_go(cluster: LocalCluster) -> None:
    with phalanx.start_member_in_thread(cluster.config(lite=True)) as program:
        cluster.until_whole()
        assert program.view is not None
        assert len(program.view.members) == 4
        cluster.kill("A")
        cluster.until_whole()
        assert names_in_view(cluster, "B") == {"B", "C"}
        program.map("m")["k"] = 1
    cluster.until_whole()
    assert cluster["C"].map("m")["k"] == 1


def test_what_is_missing_is_told(cluster: LocalCluster) -> None:
    cluster.hang("C")
    with pytest.raises(phalanx.UnavailableError, match=r"not whole within 0\.05 s: A has not removed 127\.0\.0\.1"):
        cluster.until_whole(timeout=0.05)
    for each in "AB":
        cluster.hang(each)
    with pytest.raises(phalanx.UnavailableError, match="all members that run hang"):
        cluster.until_whole(timeout=0.05)


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (lambda c: c.kill("D"), r"no member 'D': the cluster has A \(0\), B \(1\), C \(2\)"),
        (lambda c: c.kill(3), "no member 3"),
        (lambda c: c.kill(True), "no member True"),
        (lambda c: c.cut("A,B"), "does not name sides"),
        (lambda c: c.cut("A|"), "does not name sides"),
        (lambda c: c.cut("A|B,A"), "names A twice"),
        (lambda c: c.cut(["A", "B"]), "a cut is written as"),
        (lambda c: c.restart("A"), "member A runs; kill or stop it first"),
        (lambda c: (c.kill("A"), c.hang("A")), "member A does not run"),
        (lambda c: (c.hang("A"), c.stop("A")), "member A hangs: resume or kill it"),
        (lambda c: LocalCluster(0), "give a number from 1 to 26, not 0"),
        (lambda c: LocalCluster(2, port=5701), "port: a LocalCluster chooses it itself"),
        (lambda c: LocalCluster(2, backups=1), "backups"),
    ],
    ids=range(13),
)
def test_wrong_orders_are_told(cluster: LocalCluster, work: Any, told: str) -> None:
    with pytest.raises((phalanx.UsageError, TypeError), match=told):
        work(cluster)


def test_the_end_of_a_cluster_is_no_crash_of_which_its_members_tell(caplog: pytest.LogCaptureFixture) -> None:
    with LocalCluster(3) as cluster:
        cluster.until_whole()
        caplog.clear()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_cuts_add_up() -> None:
    cuts = Cuts()
    cuts.add("A|B, C", str)
    cuts.add("D|B", str)
    assert cuts.between("C", "A")
    assert cuts.between("B", "D")
    assert not cuts.between("B", "C")
    assert not cuts.between("A", "D")
    cuts.clear()
    assert not cuts.between("A", "B")


def run_tests(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_service.py").write_text(textwrap.dedent(text))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", *arguments, "test_service.py"],
        cwd=folder, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


def test_pytest_has_the_fixtures_and_each_test_its_own_grid(tmp_path: Path) -> None:
    done = run_tests(
        tmp_path,
        """
        import pytest

        @pytest.mark.parametrize("number", range(5))
        def test_a_grid_is_empty(phalanx_grid, number):
            assert len(phalanx_grid.map("m")) == 0
            phalanx_grid.map("m").put("k", number)

        def test_a_cluster(phalanx_cluster):
            cluster = phalanx_cluster(3)
            other = phalanx_cluster(1, backup_count=0)
            cluster.kill(0)
            cluster.until_whole()
            assert len(cluster) == 2 and len(other) == 1

        def test_that_fails_while_a_member_hangs(phalanx_cluster):
            phalanx_cluster(2).hang("A")
            raise ValueError("as it should")

        def test_no_thread_is_left():
            import threading
            assert [each.name for each in threading.enumerate() if "phalanx" in each.name] == []
        """,
    )
    assert "1 failed, 7 passed" in done.stdout, done.stdout
    assert "ValueError: as it should" in done.stdout


def test_the_plugin_imports_nothing_unasked(tmp_path: Path) -> None:
    done = run_tests(
        tmp_path,
        """
        import sys

        def test_that_has_nothing_to_do_with_it():
            assert "pytest_phalanx" in sys.modules
            assert "phalanx" not in sys.modules
        """,
    )
    assert "1 passed" in done.stdout, done.stdout


def test_a_program_that_forgets_a_member_that_hangs_ends(tmp_path: Path) -> None:
    program = "from phalanx.testing import LocalCluster\nc = LocalCluster(2)\nc.hang('A')\n"
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 30
