"""The results of the audit: verdicts with the smallest evidence, figures beside them, and whether all of it holds."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from phalanx_spark.audit.reading import BadLine

MOST_FINDINGS = 5
"""The most findings that are listed for each property. All are counted."""


class Status(enum.StrEnum):
    """Whether a property holds."""

    HOLDS = "holds"
    BROKEN = "broken"
    UNTOLD = "cannot be told"
    """Events that would show it are missing."""


class Line(msgspec.Struct, frozen=True):
    """One line of evidence."""

    log: str
    line: int
    at: int
    member: str
    event: str
    told: str


class Finding(msgspec.Struct, frozen=True):
    """One break of a property: the lines that together show it, and no others."""

    history: str
    at: int
    what: str
    lines: tuple[Line, ...]


class AuditVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one property."""

    property: str
    title: str
    rule: str
    """Ids of rules of the protocol."""
    status: Status
    said: str
    """One sentence."""
    findings: tuple[Finding, ...] = ()
    """The earliest."""
    found: int = 0
    """The number of all findings."""
    missing: tuple[str, ...] = ()
    """What is missing to judge it."""
    with_skew: str = ""
    """What a difference of the members' clocks does to it."""
    figures: dict[str, Any] = {}
    rules: str = ""
    """The same rules in words, each with its id behind it."""


class OperatorAnswer(msgspec.Struct, frozen=True):
    """What an operator asks first, and what the logs say."""

    question: str
    answer: str
    status: Status
    """Whether that is as it should be."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole audit."""

    ok: bool
    """Nothing is broken."""
    folder: str
    files: int
    events: int
    members: int
    histories: int
    begins: int
    ends: int
    answers: tuple[OperatorAnswer, ...] = ()
    verdicts: tuple[AuditVerdict, ...]
    bad_lines: int
    bad: tuple[BadLine, ...]
    empty_logs: tuple[str, ...]
    notes: tuple[str, ...]
    took_s: float
    charts: dict[str, Any] = {}
    """The data of the charts, aggregated; of one history if there are several (`charts.history`)."""


class Property(msgspec.Struct, frozen=True):
    """One that is judged: what it is called, which rules it is, and what clocks do to it."""

    name: str
    title: str
    rule: str
    promise: str
    """The property in words."""
    with_skew: str
    holds_despite_gaps: bool = False
    """Whether the lines that are there prove a break, whatever is missing in logs; else a missing line can be the one that
    says why all is right."""


ORDER_ONLY = "Nothing: only the order of lines within one member's own log counts."

PROPERTIES = (
    Property("view_order", "M1 view order", "CS-21", "No two members installed two views in opposite orders.", ORDER_ONLY, True),
    Property(
        "view_agreement", "M2 view agreement", "CS-22",
        "Each member in the last list of a running member has that list or a newer one.",
        "Lists of the last seconds are judged by the newest time in any log: a clock that is ahead by more than the patience "
        "can call a list late that was on its way.",
    ),
    Property("view_integrity", "M3 view integrity", "CS-24", "Every list that a member installed contains it.", ORDER_ONLY, True),
    Property(
        "one_list", "One list for a view", "CS-05 CS-06",
        "A version and its maker mean one list everywhere, and the first of it is the master.", ORDER_ONLY,
        True,
    ),
    Property(
        "versions", "Versions only grow", "CS-14 CS-25",
        "No member went back to an older member list or partition table, also when the master changed.", ORDER_ONLY,
        True,
    ),
    Property(
        "masters", "Mastership passes by rule", "CS-13 CS-55 CS-63",
        "Every new master had claimed with the agreement of those in its list, or was handed the mastership; nobody had two.",
        ORDER_ONLY,
    ),
    Property(
        "one_result", "One result for each migration", "DL-17 DL-22",
        "No migration was both committed and rolled back, or ended twice.",
        "Nothing for two results of one master. Whether a participant was still a member is judged by times: a difference "
        "of clocks near a removal can hide a result, and never makes one.",
    ),
    Property(
        "replicas", "Migrations keep replicas", "DL-58",
        "No committed migration left a partition with fewer replicas than it had.",
        "Nothing within one master's time. The chart's steps near a change of master shift by the difference.",
    ),
    Property(
        "no_loss", "No partition lost", "DL-05",
        "No partition of the cluster that went on lost all its replicas for good.",
        "The length of a window in which data was away is off by the difference of two masters' clocks.",
    ),
    Property(
        "writes", "Writes go on", "EL-48 DL-16",
        "Every time in which writes had to wait or were refused was over when the logs end.",
        "From the last sign of life of a crashed owner to its master's repair two clocks count: lengths are off by their difference.",
    ),
    Property(
        "detector", "No live member removed", "CS-33 CS-34",
        "Nobody was removed that ran and could be reached.",
        "Detection times and false alarms compare two members' clocks: a difference of a second is a second of error.",
    ),
)  # fmt: skip
