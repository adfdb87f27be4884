"""`./run bench compiled`: every function that is said to have a native version is measured, and no other."""

import re

import pytest

from benchmarks import compiled as study
from phalanx.codec import native
from support.roots import NATIVE

PAGE = NATIVE / "README.md"


@pytest.mark.skipif(native.NATIVE is None, reason="phalanx-native is not built: that needs a C compiler and Python.h")
def test_each_function_that_the_page_names_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """But those of `phalanx_spark`, which are loops within other functions, and reading a log back, which `bench durable` measures."""
    monkeypatch.setattr(study, "CALLS", 1)
    measured = {each.function.partition(",")[0] for each in study.measure_compiled(1)}
    rows = re.findall(r"^\| (.+) \| `(phalanx[\w.]+)` \|$", PAGE.read_text(), re.M)
    named = {
        name
        for names, module in rows
        if not module.startswith(("phalanx_spark", "phalanx.disk"))
        for name in re.findall(r"`(\w+)`", names)
    }
    assert measured == named
