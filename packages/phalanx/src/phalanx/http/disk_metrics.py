"""The metrics of a member's disk. A member without a folder has none of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from phalanx.http.served_member import ServedMember

STATES: Final = ("ok", "slow", "full", "failed")


def about_disk(member: ServedMember) -> Iterator[Metric]:
    """Yield what is written, what waits for a sync, how long syncs last, and how much room there is."""
    disk = member.disk
    if disk is None or (report := disk.report()) is None:
        return
    yield CounterMetricFamily("phalanx_disk_appended_bytes", "Bytes written to the log.", value=disk.appended_bytes)
    yield CounterMetricFamily("phalanx_disk_blocks", "Writes of the log: each is of one turn.", value=disk.blocks)
    yield CounterMetricFamily(
        "phalanx_disk_copies", "Replicas copied to the log, so that older files of it can go.", value=disk.copies
    )
    syncs = HistogramMetricFamily("phalanx_disk_sync_duration_seconds", "How long syncs of the log lasted.")
    ends = (*map(repr, disk.syncs.ends_s), "+Inf")
    syncs.add_metric([], list(zip(ends, accumulate(disk.syncs.classes), strict=True)), disk.syncs.total_s)
    yield syncs
    for name, said, value in (
        ("unsynced_bytes", "Bytes that were written, and that a power cut would take away.", report.unsynced_bytes),
        ("unsynced_seconds", "For how long the oldest of them has waited for a sync.", report.unsynced_ms / 1000),
        ("log_bytes", "The size of the files of the log.", report.log_bytes),
        ("segments", "How many files these are.", report.segments),
        ("free_bytes", "Room in the file system of the folder.", report.room_bytes),
    ):  # fmt: skip
        yield GaugeMetricFamily(f"phalanx_disk_{name}", said, value=value)
    states = GaugeMetricFamily("phalanx_disk_state", "1 for the state that the disk is in.", labels=["state"])
    for state in STATES:
        states.add_metric([state], report.state == state)
    yield states
