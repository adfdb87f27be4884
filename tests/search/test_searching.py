"""A search plays each history once, whatever interrupted it, and finds what a plain run finds."""

import shutil
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from phalanx.common.errors import UsageError
from phalanx.reports.trace_rows import TRACE_COLUMNS
from phalanx_proof.search import work
from phalanx_proof.search.findings import SearchFindings, find, rules_of
from phalanx_proof.search.searching import Chunks, HistorySearch, Looked, SearchPlan, check_plan
from phalanx_proof.search.store import Store
from phalanx_proof.search.work import Chunk, SearchRow, play_chunk
from phalanx_proof.sim.code_digest import code_digest, rules_in_code
from phalanx_proof.sim.fault import FaultKind
from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.planted_bug import PlantedBug, load_planted_bug
from phalanx_proof.sim.result import digest_of_all
from phalanx_proof.sim.run import run, run_many
from phalanx_proof.sim.schedule import read_schedule
from phalanx_proof.sim.settings import Configuration
from support.searches import HereAndNow, Searcher

PLANTED = "tests.planted_bugs:claim-without-asking"


def test_a_search_finds_what_a_plain_run_finds(searcher: Searcher) -> None:
    plain = list(run_many(range(10), Profile.MEMBERSHIP))
    found, _ = searcher.search(searcher.plan(range(10)))
    assert found.digest == digest_of_all(plain)
    assert found.histories == 10
    assert found.total("inputs") == sum(each.inputs for each in plain)
    for kind in ("rules", "events", "faults", "outcomes", "counts"):
        expected: dict[str, int] = {}
        for each in plain:
            for name, count in getattr(each, kind).items():
                expected[name] = expected.get(name, 0) + count
        assert found.counted(kind) == dict(sorted(expected.items())), kind
    healed = sorted(each.healed_after_ms for each in plain)
    assert found.distribution("healed_after_ms")["max"] == healed[-1]


def test_a_search_goes_on_where_the_last_one_ended(searcher: Searcher) -> None:
    _, first = searcher.search(searcher.plan(range(4, 9)))
    found, second = searcher.search(searcher.plan(range(12)))
    assert [seed for _, seed in first] == [4, 5, 6, 7, 8]
    assert sorted(seed for _, seed in second) == [0, 1, 2, 3, 9, 10, 11]
    assert found.digest == digest_of_all(run_many(range(12), Profile.MEMBERSHIP))
    _, third = searcher.search(searcher.plan(range(12)))
    assert third == []


def test_what_was_played_before_an_interruption_is_kept(searcher: Searcher) -> None:
    cut_short, first = searcher.search(searcher.plan(range(12)), steps=1)
    assert 0 < cut_short.histories == len(first) < 12
    found, second = searcher.search(searcher.plan(range(12)))
    assert sorted(first + second) == [("", seed) for seed in range(12)]
    assert found.histories == 12


def test_a_file_that_was_half_written_counts_as_not_played(searcher: Searcher) -> None:
    plan = searcher.plan(range(5))
    searcher.search(plan)
    (whole,) = (searcher.folder / "results").glob("part-*.parquet")
    whole.write_bytes(whole.read_bytes()[:-200])
    beside = whole.with_name(".part-1-x.parquet.writing")
    beside.write_bytes(b"PAR1")
    found, played = searcher.search(plan)
    assert [seed for _, seed in played] == [0, 1, 2, 3, 4]
    assert found.histories == 5
    assert any("cannot be read" in warning for warning in searcher.warnings)
    assert not beside.exists()
    assert searcher.search(plan)[1] == [], "what cannot be read was put aside"


def test_settings_and_profiles_stand_side_by_side(searcher: Searcher) -> None:
    searcher.search(searcher.plan(range(3)))
    swept, played = searcher.search(searcher.plan(range(3), "heartbeat_timeout=11,12"))
    assert sorted(played) == [(f"heartbeat_timeout_ms={ms}", seed) for ms in (11_000, 12_000) for seed in range(3)]
    assert [group.histories for group in swept.groups] == [3, 3]
    _, of_quiet = searcher.search(searcher.plan(range(2), profile=Profile.QUIET))
    assert len(of_quiet) == 2
    kept = pq.ParquetDataset(searcher.folder / "results").read().to_pylist()
    assert len(kept) == 11
    files = [pq.read_schema(path).names for path in (searcher.folder / "results").glob("*.parquet")]
    assert sum("heartbeat_timeout_ms" in names for names in files) == 1


def test_the_wider_sweep_plays_only_what_is_new(searcher: Searcher) -> None:
    searcher.search(searcher.plan(range(3), "heartbeat_timeout=11"))
    _, played = searcher.search(searcher.plan(range(3), "heartbeat_timeout=11,12"))
    assert {label for label, _ in played} == {"heartbeat_timeout_ms=12000"}


def test_histories_of_other_code_are_neither_taken_nor_lost(searcher: Searcher) -> None:
    plan = searcher.plan(range(3))
    crew, store = HereAndNow(), Store(searcher.folder, "0123456789abcdef", "")
    store.add(plan.configurations[0], play_chunk(Chunk(plan.configurations[0], "", code_digest(), (0, 1))).rows)
    store.close()
    found, played = searcher.search(plan)
    assert len(played) == found.histories == 3
    assert searcher.of_other_code == 2
    assert pq.ParquetDataset(searcher.folder / "results").read().num_rows == 5
    assert crew.played == []


def test_a_worker_with_other_code_plays_nothing(searcher: Searcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "code_digest", lambda canary: "another")
    plan = searcher.plan(range(3))
    store = Store(None, code_digest(), "")
    search = HistorySearch(plan, HereAndNow(), store)
    (step,) = search.play()
    assert "another version of Phalanx" in step.error
    assert "install the same one" in search.errors[0]
    assert find(plan, store).histories == 0


def test_a_worker_without_the_planted_bug_plays_nothing_and_says_so() -> None:
    chunk = Chunk(Configuration(Profile.MEMBERSHIP), "no.such.aviary:sparrow", code_digest(), (0, 1))
    assert "lacks the planted bug: --canary: cannot import no.such.aviary" in play_chunk(chunk).refused


def test_the_code_of_a_planted_bug_is_part_of_what_a_history_is_known_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "aviary.py"
    module.write_text(
        "from phalanx_proof.sim.planted_bug import PlantedBug\nCANARIES = {'sparrow': PlantedBug('aviary:sparrow')}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        without, before = code_digest(), code_digest("aviary:sparrow")
        module.write_text(module.read_text() + "# changed\n")
        code_digest.cache_clear()
        assert len({without, before, code_digest("aviary:sparrow")}) == 3
    finally:
        code_digest.cache_clear()
        del sys.modules["aviary"]


def test_only_one_search_writes_into_a_folder(searcher: Searcher) -> None:
    store = Store(searcher.folder, code_digest(), "")
    with pytest.raises(UsageError, match="another search writes into"):
        Store(searcher.folder, code_digest(), "")
    store.close()
    Store(searcher.folder, code_digest(), "").close()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UsageError, match=r"cannot write into .*file"):
        Store(tmp_path / "file" / "kept", code_digest(), "")


def test_a_copied_file_of_results_is_not_counted_twice(searcher: Searcher) -> None:
    plan = searcher.plan(range(3))
    searcher.search(plan)
    (whole,) = (searcher.folder / "results").glob("part-*.parquet")
    shutil.copy(whole, whole.with_name("part-2-copy.parquet"))
    with pytest.raises(UsageError, match=r"seed 0 .* is there twice"):
        searcher.search(plan)


def test_settings_that_do_not_fit_are_refused_before_anything_is_played(searcher: Searcher) -> None:
    with pytest.raises(UsageError, match=r"seed \d+, heartbeat_timeout_ms=300: heartbeat_timeout_ms: 300 must be"):
        check_plan(searcher.plan(range(40), "heartbeat_timeout=300ms"))


# --- what fails -------------------------------------------------------------------------------------------------------


def test_a_history_that_breaks_the_simulator_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(options: HistoryOptions, planted: PlantedBug | None) -> object:
        if options.seed == 1:
            raise KeyError("planted")
        return run(options, planted)

    monkeypatch.setattr(work, "run", broken)
    played = play_chunk(Chunk(Configuration(Profile.MEMBERSHIP), "", code_digest(), (0, 1, 2)))
    assert [row.violations for row in played.rows] == [0, 1, 0]
    assert played.rows[1].violated == work.SIMULATOR_FAILED
    assert "KeyError: 'planted'" in played.rows[1].story


def test_a_history_that_does_not_end_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(options: HistoryOptions, planted: PlantedBug | None) -> object:
        until = time.process_time() + 20
        while options.seed == 1 and time.process_time() < until:
            pass
        return run(options, planted)

    monkeypatch.setattr(work, "run", endless)
    monkeypatch.setattr(work, "HISTORY_LIMIT_S", 1.0)
    played = play_chunk(Chunk(Configuration(Profile.MEMBERSHIP), "", code_digest(), (0, 1, 2)))
    assert [row.violated for row in played.rows] == ["", work.ENDS, ""]


def looked_at(searcher: Searcher, plan: SearchPlan) -> tuple[SearchFindings, list[Looked]]:
    store = Store(searcher.folder, code_digest(plan.canary), plan.canary)
    try:
        search = HistorySearch(plan, HereAndNow(), store)
        list(search.play())
        found = find(plan, store)
        return found, search.examine(found.failing, lambda looked: None)
    finally:
        store.close()


def test_failing_histories_leave_their_events_and_one_of_a_kind_its_smallest_form(searcher: Searcher) -> None:
    plan = searcher.plan(range(12), canary=PLANTED, shrinks=1)
    found, looked = looked_at(searcher, plan)
    assert len(found.failing) > 1
    assert {each.seed for each in looked} == {each.seed for each in found.failing}
    (shrunk,) = [each for each in looked if each.schedule is not None]
    assert shrunk.schedule is not None
    schedule = read_schedule(shrunk.schedule, PLANTED)
    again = run(schedule.options, load_planted_bug(schedule.canary))
    assert again.digest == schedule.digest
    assert schedule.violation == shrunk.violated in {each.what for each in again.violations}
    whole = 0
    for each in looked:
        (trace,) = [
            table
            for path in (searcher.folder / "traces").glob("*.parquet")
            if (table := pq.read_table(path))["seed"][0].as_py() == each.seed
        ]
        assert trace.column_names[: len(TRACE_COLUMNS)] == list(TRACE_COLUMNS)
        drawn = plan.configurations[0].draw(each.seed)
        events = run(drawn, load_planted_bug(PLANTED)).events
        of_members = [name for name in trace["event"].to_pylist() if name not in ("ProcessStruck", "EventsLost")]
        if {FaultKind.DISK, FaultKind.LOSE_LOG}.isdisjoint(fault.kind for fault in drawn.faults):
            whole += 1
            assert len(of_members) == sum(events.values())
        else:
            # Without what a disk did not take.
            assert len(of_members) <= sum(events.values())
    assert whole
    found_again, looked_again = looked_at(searcher, plan)
    assert found_again.digest == found.digest
    assert {(each.seed, each.schedule) for each in looked_again} == {(each.seed, each.schedule) for each in looked}
    assert not any(each.events for each in looked_again), "it was there already"


def test_a_history_that_is_not_the_same_twice_is_said_so(searcher: Searcher) -> None:
    case = work.Case(Configuration(Profile.MEMBERSHIP), PLANTED, code_digest(PLANTED), 1, "0" * 32, True)
    assert "another history" in work.examine(case).refused


# --- rules ------------------------------------------------------------------------------------------------------------


def test_every_text_that_names_a_rule_counts_for_it_once_in_a_history(searcher: Searcher) -> None:
    results = list(run_many(range(6), Profile.MEMBERSHIP))
    found, _ = searcher.search(searcher.plan(range(6)))
    for each in found.rules:
        times = [sum(n for text, n in result.rules.items() if each.rule in rules_of(text)) for result in results]
        assert (each.times, each.histories) == (sum(times), sum(n > 0 for n in times)), each.rule


def test_rules_that_no_history_exercised_are_named(searcher: Searcher) -> None:
    found, _ = searcher.search(searcher.plan(range(2), profile=Profile.QUIET))
    assert "CS-53" in found.never, "nobody claims the mastership where nothing fails"
    assert "EL-05" not in found.never
    assert {rule for text in rules_in_code() for rule in rules_of(text)} == {each.rule for each in found.rules}
    assert rules_of("CS-51 CS-52") == ["CS-51", "CS-52"]
    assert rules_of("C-23") == ["C-23"]
    assert "C-23" in rules_in_code(), "a rule whose id has one letter"


def test_pieces_are_large_first_and_small_towards_the_end() -> None:
    """By what histories cost: a few at first, then seconds of them, in the end one second."""
    configuration = Configuration(Profile.MEMBERSHIP)
    seeds = range(2_000)
    chunks = Chunks(SearchPlan((configuration,), seeds), {configuration: seeds}, cores=2)
    sizes = []
    for chunk in chunks:
        sizes.append(len(chunk.seeds))
        chunks.learn(
            configuration, [SearchRow(seed=each, digest="", violations=0, cpu_s=0.125) for each in chunk.seeds]
        )
    assert sum(sizes) == 2_000
    assert sizes[:3] == [4, 48, 48]
    assert sizes[1:] == sorted(sizes[1:], reverse=True)
    assert set(sizes[-5:-1]) == {8}


def test_configurations_take_turns() -> None:
    one, other = Configuration(Profile.MEMBERSHIP), Configuration(Profile.QUIET)
    seeds = range(100)
    chunks = Chunks(SearchPlan((one, other), seeds), {one: seeds, other: seeds}, cores=2)
    turns = [chunk.configuration for chunk in chunks]
    assert turns[:4] == [one, other, one, other]
