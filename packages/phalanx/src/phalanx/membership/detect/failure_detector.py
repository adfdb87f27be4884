"""Failure detectors: which members have been silent for too long, by when their heartbeats arrived.

There are two, and a setting chooses: `PhiFailureDetector` and `DeadlineFailureDetector`. Silence is one of four sources
of a suspicion, each of which is enough (`suspicion`): the others are connections that stay refused after one was lost
(`connection_evidence`), confirmations of the master that are missing (`master_confirmations`), and a question whether a
member lives that it does not answer.

A slow observer distrusts itself first: when this member's own tick came late, this member was away, so the time that it
missed counts as no silence of others.
"""

from __future__ import annotations

from typing import Protocol

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, Millis
from phalanx.membership.detect.deadline_detector import DeadlineFailureDetector
from phalanx.membership.detect.phi_detector import PhiFailureDetector
from phalanx.membership.detect.silence_limits import SilenceLimits, Silent


class FailureDetector(Protocol):
    """Judges members by when their heartbeats arrived. Deterministic; reads no clock."""

    silence: SilenceLimits
    """When each watched member was heard, and how long it can be silent."""

    def watch(self, member: MemberId, now: Millis) -> None:
        """Expect heartbeats from now on. Nothing changes for a member that is watched already."""

    def forget(self, member: MemberId) -> None:
        """Expect nothing of the member any more."""

    def heartbeat(self, member: MemberId, now: Millis) -> None:
        """Note that a heartbeat arrived."""

    def observer_was_away(self, missed_ms: Millis, now: Millis) -> None:
        """Do not count the time in which this member itself did not run: it heard nobody."""

    def silent(self, now: Millis) -> list[Silent]:
        """Return the watched members that seem to be gone."""


def make_failure_detector(config: NodeConfig) -> FailureDetector:
    """Make the detector that the settings ask for."""
    if config.failure_detector == "deadline":
        return DeadlineFailureDetector(config.heartbeat_timeout_ms)
    return PhiFailureDetector(config)
