"""Which tests stay together, which begin first, and that `run` and this folder mean the same by pure code."""

import pytest

from support.distribution import PURE, SHARE_SPARK, arrange, find_group
from support.roots import ROOT, TESTS

pytest_plugins = ["pytester"]


def test_tests_of_pure_code_run_anywhere_and_those_of_a_file_or_a_spark_together() -> None:
    assert find_group("tests/grid/test_store.py::test_a[x@y]") is None
    assert find_group("tests/cli/test_member.py::test_a") == find_group("tests/cli/test_member.py::test_b")
    assert find_group("tests/cli/test_member.py::test_a") != find_group("tests/cli/test_losses.py::test_a")
    assert find_group("tests/spark/test_codec.py::test_a") == find_group("tests/audit/test_logs.py::test_a")
    assert find_group("tests/test_rows.py::test_a") == "tests/test_rows.py"


def test_what_keeps_a_core_busy_is_dealt_between_what_waits_and_what_is_short_comes_last() -> None:
    grid, net = [f"tests/grid/test_a.py::test_{n}" for n in "ab"], [f"tests/net/test_b.py::test_{n}" for n in "abcd"]
    sim, top = [f"tests/sim/test_c.py::test_{n}" for n in "abc"], ["tests/test_d.py::test_a", "tests/test_d.py::test_b"]
    tests = [*grid, *net, *sim, *top]
    order = arrange(tests)
    assert sorted(order) == list(range(len(tests)))
    assert [tests[place] for place in order] == [
        net[0], sim[0], net[1], net[2], sim[1], net[3], sim[2], *top, *grid,
    ]  # fmt: skip
    assert arrange(grid) == [0, 1]
    assert arrange(sim) == [0, 1, 2]


def test_every_folder_that_is_named_is_there_and_the_command_names_the_same() -> None:
    assert [name for name in (*PURE, *SHARE_SPARK) if not (TESTS / name).is_dir()] == []
    lines = (ROOT / "run").read_text(encoding="utf-8").splitlines()
    named = [line.split('"')[1] for line in lines if line.startswith(("pure_tests=", "simulations="))]
    assert " ".join(named).split() == [f"tests/{name}" for name in PURE]


def test_tests_of_a_group_run_in_one_process(pytester: pytest.Pytester) -> None:
    """One pair of versions of pytest and its plugin took no notice of groups: each process then made its own clusters."""
    pytester.makepyfile(
        """
        import os
        import time

        import pytest

        @pytest.mark.parametrize("number", range(8))
        @pytest.mark.parametrize("group", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in "ab"])
        def test_it(group, number):
            time.sleep(0.02)
            with open(f"{group}.{os.getpid()}", "a"):
                pass
        """
    )
    result = pytester.runpytest_subprocess("-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=16)
    assert sorted(path.name[0] for path in pytester.path.glob("[ab].*")) == ["a", "b"]
