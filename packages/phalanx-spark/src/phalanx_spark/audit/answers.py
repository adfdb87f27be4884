"""Answer what an operator asks first, from the verdicts: was anything lost, was anybody removed alive, who waited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.common.words import counted
from phalanx_spark.audit.verdicts import AuditVerdict, OperatorAnswer, Status


def answers_of(verdicts: Sequence[AuditVerdict]) -> tuple[OperatorAnswer, ...]:
    """Return the answers, in the order in which they are asked."""
    by_name = {each.property: each for each in verdicts}
    lost, removed, waited = by_name["no_loss"], by_name["detector"], by_name["writes"]
    return (
        _answer("Was anything lost?", lost, _of_losses(lost.figures)),
        _answer("Was anybody removed alive?", removed, "No."),
        _answer("Who waited?", waited, _of_waits(waited.figures)),
    )


def _answer(question: str, verdict: AuditVerdict, if_it_holds: str) -> OperatorAnswer:
    match verdict.status:
        case Status.HOLDS:
            said = if_it_holds
        case Status.BROKEN:
            said = f"YES: {verdict.said}."
        case Status.UNTOLD:
            said = f"It cannot be waits. {verdict.said}."
    return OperatorAnswer(question, said, verdict.status)


def _of_losses(figures: dict[str, Any]) -> str:
    back = figures.get("came_back") or 0
    if not back:
        return "No."
    longest_s = (figures.get("longest_ms") or 0) / 1000
    partitions = counted(back, "partition was", "partitions were")
    return f"Not for good: {partitions} empty for {longest_s:.1f} s at most, until members came back with the data."


def _of_waits(figures: dict[str, Any]) -> str:
    """Say how long partitions had no owner, or took no writes, and how often maps were refused."""
    waits = []
    if partitions := figures.get("partitions_without_owner"):
        longest_s = (figures.get("longest_without_owner_ms") or 0) / 1000
        owners = counted(figures["owners_lost"], "owner")
        waits.append(
            f"callers of {counted(partitions, 'partition')}, for {longest_s:.1f} s at most, after {owners} had gone"
        )
    if seals := figures.get("seals"):
        longest_ms = figures.get("longest_sealed_ms") or 0
        waits.append(f"writes to partitions that moved, {seals} times, for {longest_ms} ms at most")
    if refusals := figures.get("refusals"):
        waits.append(f"callers of protected maps, which were refused {refusals} times")
    said = "; ".join(waits)
    return f"{said[0].upper()}{said[1:]}." if said else "Nobody."
