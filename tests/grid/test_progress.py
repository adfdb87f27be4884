"""The table by which an owner's knowledge of a replica changes."""

from itertools import product

import pytest

from phalanx.common.errors import InvariantViolation
from phalanx.grid.replication.progress import STREAM_CHANGES, Stream, StreamEvent, StreamState
from support.harness import lone_id


def stream_in(state: StreamState) -> Stream:
    stream = Stream(lone_id("B"), 1, 0, 0, None)
    stream.state = state
    return stream


@pytest.mark.parametrize(("state", "event"), list(product(StreamState, StreamEvent)))
def test_a_stream_changes_as_its_table_says_and_in_no_other_way(state: StreamState, event: StreamEvent) -> None:
    stream = stream_in(state)
    if (state, event) in STREAM_CHANGES:
        stream.transition(event)
        assert stream.state is STREAM_CHANGES[state, event]
    else:
        with pytest.raises(InvariantViolation, match="as its table says"):
            stream.transition(event)
        assert stream.state is state


def test_every_state_can_be_doubted_and_leads_back_to_being_in_sync() -> None:
    for state in StreamState:
        assert STREAM_CHANGES[state, StreamEvent.DOUBTED] is StreamState.PROBING
    found = {StreamState.IN_SYNC}
    for _ in StreamState:
        found |= {before for (before, _), after in STREAM_CHANGES.items() if after in found}
    assert found == set(StreamState)


@pytest.mark.parametrize("event", StreamEvent)
def test_every_event_is_one_of_some_state(event: StreamEvent) -> None:
    assert any(event is each for _, each in STREAM_CHANGES)
