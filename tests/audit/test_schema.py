"""Rows of simulated histories: every event of every member, and what became of processes, in the order of time."""

from __future__ import annotations

from collections import Counter

import msgspec

from phalanx.common.ids import address_of
from phalanx.reports.trace_rows import PROCESS_EVENT, TRACE_COLUMNS, TraceRow, TraceWriter
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.run import run


def test_a_history_becomes_one_row_for_each_event() -> None:
    writer = TraceWriter("membership/3")
    told = run(draw_options(3, Profile.MEMBERSHIP), trace=writer)

    own = [row for row in writer.rows if row.event != PROCESS_EVENT]
    assert Counter(row.event for row in own) == told.events
    assert told.digest == run(draw_options(3, Profile.MEMBERSHIP)).digest, "to look at a history does not change it"
    assert [row.line for row in writer.rows] == list(range(1, len(writer.rows) + 1))
    assert [row.at for row in writer.rows] == sorted(row.at for row in writer.rows)
    assert {row.history for row in writer.rows} == {"membership/3"}


def test_fields_of_a_row_hold_what_the_event_says_besides_the_columns() -> None:
    writer = TraceWriter("membership/3")
    run(draw_options(3, Profile.MEMBERSHIP), trace=writer)

    view = next(row for row in writer.rows if row.event == "ViewInstalled")
    fields = msgspec.json.decode(view.fields)
    assert fields["members"] == [view.member], "whoever is first installs a view of itself"
    assert set(fields) == {"view_version", "maker", "master", "members", "rule"}
    assert view.address == address_of(fields["maker"])


def test_ends_of_processes_are_told_beside_the_events() -> None:
    writer = TraceWriter("membership/3")
    told = run(draw_options(3, Profile.MEMBERSHIP), trace=writer)

    what = Counter(msgspec.json.decode(row.fields)["what"] for row in writer.rows if row.event == PROCESS_EVENT)
    assert what["started"] == len({row.member for row in writer.rows})
    assert what["crashed"] > 0, told.faults


def test_a_row_has_the_columns_in_their_order() -> None:
    assert TraceRow.__struct_fields__ == tuple(TRACE_COLUMNS)
