"""What is done to members stands beside their logs, as events that the audit reads."""

from pathlib import Path

import msgspec

from phalanx.common.ids import MemberId
from phalanx.reports.trace_rows import PROCESS_EVENT
from phalanx_proof.chaos.marks import NAME, Marks


def test_a_mark_is_an_event_about_the_one_that_was_struck(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "events", "chaos-1")
    marks.note(MemberId("127.0.0.1:5701/a"), "crashed")
    marks.note(MemberId("127.0.0.1:5702/b"), "paused")
    marks.note(None, "crashed")

    told = [msgspec.json.decode(line) for line in (tmp_path / "events" / NAME).read_bytes().splitlines()]
    assert [(each["member"], each["what"]) for each in told] == [
        ("127.0.0.1:5701/a", "crashed"),
        ("127.0.0.1:5702/b", "paused"),
    ]
    assert {(each["event"], each["cluster"]) for each in told} == {(PROCESS_EVENT, "chaos-1")}
    assert [each["at"] for each in told] == sorted(each["at"] for each in told)
