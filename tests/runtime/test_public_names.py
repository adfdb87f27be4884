"""`import phalanx` imports little, and gives each public name when it is asked for."""

import json
import pickle
import subprocess
import sys

import pytest

import phalanx

FRESH = [sys.executable, "-c"]
TOLD = "import json, sys; print(json.dumps(sorted(sys.modules)))"


def modules_after(program: str) -> set[str]:
    """All that is imported in a new process after this."""
    done = subprocess.run([*FRESH, f"{program}\n{TOLD}"], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_package_itself_loads_neither_a_client_nor_a_member() -> None:
    """Each new worker of Spark, each command and each member would load it."""
    loaded = modules_after("import phalanx; phalanx.MapConfig(); phalanx.UsageError")
    assert {name.split(".")[1] for name in loaded if name.startswith("phalanx.")} == {"common"}
    assert not loaded & {"asyncio", "socket", "ssl", "logging", "typer", "rich", "pydantic", "pyarrow", "numpy"}


def test_a_client_loads_no_member() -> None:
    loaded = modules_after("from phalanx import Client")
    assert "phalanx.client.sync" in loaded
    assert not {
        name
        for name in loaded
        if name.startswith(("phalanx.node.", "phalanx.membership.", "phalanx.runtime.", "phalanx.cli."))
    }


def test_all_names_are_there_listed_and_taken_by_a_star() -> None:
    program = (
        "from phalanx import *\n"
        "import phalanx\n"
        "names = dir()\n"
        "assert set(phalanx.__all__) <= set(names), set(phalanx.__all__) - set(names)\n"
        "assert set(phalanx.__all__) <= set(dir(phalanx))\n"
        "assert Client is phalanx.Client is phalanx.client.sync.Client\n"
        "assert Member is phalanx.runtime.member.Member\n"
    )
    modules_after(program)
    assert len(set(phalanx.__all__)) == len(phalanx.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'phalanx' has no attribute 'Clinet'"):
        phalanx.Clinet  # type: ignore[attr-defined]  # noqa: B018


def test_public_classes_and_errors_are_pickled_by_where_they_are() -> None:
    kept = [getattr(phalanx, name) for name in phalanx.__all__]
    assert pickle.loads(pickle.dumps(kept)) == kept
    program = f"import pickle; assert len(pickle.loads({pickle.dumps(kept)!r})) == {len(kept)}"
    assert "phalanx.client.sync" in modules_after(program)
