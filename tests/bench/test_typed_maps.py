"""`./run bench typed`: every kind is measured, and costs something."""

import pytest

from benchmarks import typed_maps as study


def test_each_kind_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "CALLS", 1)
    measured = study.measure_typed(1)
    assert [each.kind for each in measured] == list(study.CASES)
    assert all(each.plain_us > 0 and each.ratio > 0 and each.of_comparing > 0 for each in measured)
