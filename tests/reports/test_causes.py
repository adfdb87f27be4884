"""The reasons that failure detectors record become plain sentences; others stay what they are."""

import pytest

from phalanx.reports.causes import cause_of, with_reason


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (
            "connection lost, and no process listens there on this machine: refused for 0 ms; the limit is 0 ms",
            "its process has ended: nobody listens at its address any more",
        ),
        (
            "connection lost, and no process listens there on this machine",
            "its process has ended: nobody listens at its address any more",
        ),
        (
            "connection lost, and refused for 2500 ms; the limit is 2000 ms",
            "its connection was lost, and new ones were refused for 2.5 s",
        ),
        ("no heartbeat for 10003 ms: phi is 8.1, the threshold 8", "it was silent for 10.0 s"),
        ("no master confirmation for 30000 ms; the limit is 30000 ms", "it did not follow the master for 30.0 s"),
        ("it and 10.0.0.3:5701 cannot reach each other", "it and 10.0.0.3:5701 cannot reach each other"),
        ("", ""),
    ],
)
def test_a_reason_becomes_a_cause(reason: str, cause: str) -> None:
    assert cause_of(reason) == cause
    assert with_reason(cause, reason) == ("" if reason == cause else f" ({reason})")
