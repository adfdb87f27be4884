"""A short slice of each target of the fuzzer, the corpus, and the fuzzer's own judgement. The long run is `./run soak --only fuzz`."""

from __future__ import annotations

import ast
import time
from random import Random

import pytest

from hostile.fuzzing.engine import CORPUS, Engine, corpus_of
from hostile.fuzzing.judging import Judge
from hostile.fuzzing.supervisor import confirm, run_target
from hostile.fuzzing.target import Case, Target, Turns
from hostile.fuzzing.targets import MODULES, make_target
from hostile.fuzzing.texts import from_text, to_text
from support.roots import SCRIPTS

SLICE_S = 0.5
"""CPU time of the slice of one target."""
SLICE_INPUTS = 1_000


@pytest.mark.parametrize("name", MODULES)
def test_a_slice_of_each_target_does_no_harm(name: str) -> None:
    if name == "http":  # it measures the loop of its whole process
        played = run_target(name, "slice", inputs=SLICE_INPUTS, seconds=4 * SLICE_S)
        assert not played.trouble, played.trouble
        assert [to_text(each.case, f"{each.kind}: {each.what}") for each in played.findings] == []
        return
    engine = Engine(make_target(name), "slice")
    began = time.process_time()
    found = [engine.play(case) for case in corpus_of(name)]
    while engine.inputs < SLICE_INPUTS and time.process_time() < began + SLICE_S:
        found.append(engine.play(engine.next()))
    told = [f"{each.kind}: {each.what}\n{each.detail}\n{to_text(each.case)}" for each in found if each is not None]
    assert not told, told[0]


def test_the_long_run_has_all_targets() -> None:
    text = (SCRIPTS / "soak.py").read_text(encoding="utf-8")
    found = ast.literal_eval(text.partition("FUZZ_TARGETS = ")[2].partition("  # fmt")[0])
    assert set(found) == set(MODULES)


def test_the_corpus_is_of_targets_that_there_are() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= set(MODULES)


@pytest.mark.parametrize(
    "case", [[], [b""], [b"a", b"a", b"b"], [b"\x81\xa1a" * 3000 + b"\xc0"], [bytes(range(256)) * 2]]
)
def test_an_input_comes_back_from_its_text(case: Case) -> None:
    assert from_text(to_text(case, "about\nit")) == case


def test_what_is_repeated_stands_once() -> None:
    assert to_text([b"x" * 100_000 + b"y"] * 300) == "300 of b'x' * 100000 + b'y'\n"
    with pytest.raises(ValueError, match="line 2 is no part of an input"):
        from_text("b''\n__import__('os')\n")


class Harmful(Target):
    """Does what its input says."""

    name = "harmful"

    def make(self, rng: Random) -> Case:
        return [b"nothing"]

    def play(self, case: Case, turns: Turns) -> None:
        what = case[0] if case else b""
        if what == b"raise":
            raise KeyError("out of the door")
        if what == b"hold":
            turns.run(_hold)


def _hold() -> None:
    ends = time.thread_time() + 0.3
    while time.thread_time() < ends:
        pass


@pytest.mark.parametrize(("what", "kind"), [(b"raise", "error"), (b"hold", "time"), (b"none", "")])
def test_each_kind_of_harm_is_seen(what: bytes, kind: str) -> None:
    found = Judge(Harmful()).judge([what])
    assert (found.kind if found is not None else "") == kind


def test_what_ends_or_holds_a_child_is_found_and_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The input under way is known although the process that played it is gone."""
    monkeypatch.setattr("hostile.fuzzing.supervisor.HELD_S", 1.0)
    for what, kind in ((b"end", "crash"), (b"hold", "held"), (b"fill", "memory"), (b"take", "memory")):
        found = confirm("trial", [what])
        assert found is not None
        assert (found.kind, found.case) == (kind, [what])
    assert confirm("trial", [b"none"]) is None
    assert run_target("trial", "1", inputs=50).inputs == 50
