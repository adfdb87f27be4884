"""The handlers of scans: a page of one partition, in the order of the keys' hashes."""

from __future__ import annotations

from phalanx.common.clock import STAMP_BYTES
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import HiddenKind, is_hidden, job_of, kind_of, target_of
from phalanx.common.ids import Millis
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replica.staged import JobStage
from phalanx.grid.replication.call import GridCall
from phalanx.grid.serving.admission import RequestAdmission
from phalanx.grid.serving.conditions import BadCondition, wanted_by
from phalanx.grid.serving.evaluation import Evaluator
from phalanx.grid.serving.packing import NOTHING, PackedPage, PageSpec, examined_at_most, packed_page
from phalanx.grid.serving.scanning import WaitingScans
from phalanx.grid.staging.staged_rows import OwnerStaging
from phalanx.wire.messages import PackedReply, PageReply, ScanPacked, ScanPartition

REPLY_BYTES = 8 * 1024 * 1024
"""The most bytes of values in one reply; the caller requests the rest."""
PAGE_ENTRIES = 4_096
"""The most entries on one page without conditions, and the most that are examined for it."""


class Scans:
    """The requests for a page."""

    def __init__(
        self, admission: RequestAdmission, scans: WaitingScans, staging: OwnerStaging, evaluator: Evaluator
    ) -> None:
        self._admission = admission
        self._scans = scans
        self._staging = staging
        self._evaluator = evaluator

    def scan(self, call: GridCall[ScanPartition]) -> None:
        """Answer with keys and values."""
        request, now = call.request, call.now
        if not self._admission.check_ownership(call, (request.partition,), request.of):
            return
        store = self._admission.owned_at(request.partition).replica.maps.get(request.map)
        if store is not None and is_hidden(request.map):
            self._staging.touch(request.map, now)
        max_bytes = min(max(request.max_bytes, 1), REPLY_BYTES)
        page = page_of(store, request.after_key, max_bytes, now) if store is not None else ([], [], b"")
        if store is not None and page is None:
            self._scans.hold(call, request.partition, store)
        elif page is not None:
            keys, values, after_key = page
            self._scans.answer(call, store, PageReply(request.id, keys, values, bool(after_key), after_key))

    def scan_packed(self, call: GridCall[ScanPacked]) -> None:
        """Answer with the wanted ones of the keys and values, each one run of bytes."""
        request, now = call.request, call.now
        if not self._admission.check_ownership(call, (request.partition,), request.of):
            return
        try:
            wanted = wanted_by(request.conditions, request.key_parts) if request.conditions else None
        except BadCondition as refusal:
            self._evaluator.refuse(call, refusal, "a condition of the scan means nothing: ")
            return
        replica = self._admission.owned_at(request.partition).replica
        store = replica.maps.get(request.map)
        if is_hidden(request.map) and not self._is_there(replica, request.map, now):
            text = f"the snapshot of map {target_of(request.map)!r} is gone: nobody had read it for the members' staging_ms"
            text = f"{text}, or all replicas of a partition were lost; make another"
            self._admission.refuse(call, ErrorCode.INVALID, text)
            return
        max_bytes = min(max(request.max_bytes, 1), REPLY_BYTES)
        page: PackedPage | None = NOTHING
        if store is not None:
            spec = PageSpec(request.after_key, max_bytes, wanted, examined_at_most(len(request.conditions)))
            page = packed_page(store, spec, now, with_ttls=request.with_ttls)
            if page is None:
                self._scans.hold(call, request.partition, store)
                return
        self._scans.answer(call, store, PackedReply(request.id, *(page or NOTHING)))

    def _is_there(self, replica: Replica, name: str, now: Millis) -> bool:
        """Return whether a hidden map is still complete: a snapshot without entries has no store, but its job knows it. Note the
        use."""
        if name in replica.maps:
            self._staging.touch(name, now)
            return True
        return (
            kind_of(name) is not HiddenKind.SNAPSHOT
            or replica.staged.stage_of(target_of(name), job_of(name)) is JobStage.SNAPSHOT_KEPT
        )


def page_of(
    store: MapStore, after_key: bytes, max_bytes: int, now: Millis
) -> tuple[list[bytes], list[bytes], bytes] | None:
    """Return a page: the keys and values of entries after a key in scan order, and the key after which the next
    page begins (empty: this is the last page). None: the keys are not sorted yet.

    A page has at most `PAGE_ENTRIES` entries and about `max_bytes`, but at least one entry. If one page holds all
    entries, no page follows, so they come in any order.
    """
    entries = store.entries
    if not after_key and not store.expires_at and len(entries) <= PAGE_ENTRIES:
        size = sum(map(len, entries)) + sum(map(len, entries.values())) - STAMP_BYTES * len(entries)
        if size <= max_bytes:
            return list(entries), [stored[STAMP_BYTES:] for stored in entries.values()], b""
    order = store.ordered()
    if order is None:
        return None
    keys: list[bytes] = []
    values: list[bytes] = []
    size, last = 0, after_key
    for looked_at, key in enumerate(order.behind(after_key)):
        if looked_at == PAGE_ENTRIES:
            return keys, values, last
        value = store.get(key, now)
        if value is not None:
            size += len(key) + len(value)
            if size > max_bytes and keys:
                return keys, values, last
            keys.append(key)
            values.append(value)
        last = key
    return keys, values, b""
