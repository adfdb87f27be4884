"""The checker of event logs finds what it is there for."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.views_on_disk import ViewsOnDisk


def judge(folder: Path, running: str, *installed: tuple[str, int, str, str]) -> str:
    """What is found when members installed these views: installer, version, maker, members."""
    for this, version, maker, members in installed:
        event = {"event": "ViewInstalled", "member": this, "view_version": version, "maker": maker}
        with (folder / f"{this}.jsonl").open("a") as file:
            file.write(json.dumps({**event, "members": list(members)}) + "\n")
    return "\n".join(ViewsOnDisk(folder).judge(running))


def test_a_good_history_is_good_also_with_a_line_cut_short_and_a_view_missed(tmp_path: Path) -> None:
    (tmp_path / "C.jsonl").write_text('{"event": "View')
    views = [("A", 1, "A", "A"), ("A", 2, "A", "AB"), ("B", 2, "A", "AB"), ("A", 3, "A", "AB"), ("A", 4, "A", "AB")]
    assert judge(tmp_path, "AB", *views, ("B", 4, "A", "AB")) == ""


@pytest.mark.parametrize(
    ("installed", "found"),
    [
        ([("A", 1, "B", "B")], "M3: A installed"),
        ([("A", 1, "A", "AB"), ("B", 1, "A", "BA")], "two meanings"),
        ([("A", 2, "A", "A"), ("A", 1, "A", "A")], "went back"),
        ([("A", 2, "A", "AB"), ("A", 3, "B", "AB"), ("B", 3, "B", "AB"), ("B", 2, "A", "AB")], "M1: "),
        ([("A", 1, "A", "A"), ("A", 2, "A", "AB")], "M2: A installed"),
    ],
)
def test_a_broken_history_is_told(tmp_path: Path, installed: list[Any], found: str) -> None:
    assert found in judge(tmp_path, "AB", *installed)
