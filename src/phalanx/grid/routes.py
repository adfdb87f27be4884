"""The messages that the grid takes: requests of callers, and messages between owners and replicas."""

from __future__ import annotations

from functools import partial

from phalanx.grid.merge.receiver import on_merge_request
from phalanx.grid.requests.bulk import on_bulk_request
from phalanx.grid.requests.single import on_key_request
from phalanx.grid.service import GridService
from phalanx.machine.routes import Routes, route, route_each, route_untimed
from phalanx.wire.messages import (
    ClientBulkRequest,
    CopyAck,
    CopyChunk,
    CopyRefused,
    CopyStart,
    KeyRequest,
    MemoryReport,
    MergeRequest,
    Mutation,
    Probe,
    ProbeAnswer,
    ReplicateAck,
    ReplicateAcks,
)


def grid_routes(grid: GridService) -> Routes:
    followed = grid.follower
    return (
        *route_each(KeyRequest, partial(on_key_request, grid)),
        *route_each(ClientBulkRequest, partial(on_bulk_request, grid)),
        *route_each(MergeRequest, partial(on_merge_request, grid)),
        *route_each(Mutation, followed.on_replicate),
        route(ReplicateAck, grid.on_replicate_ack),
        route(ReplicateAcks, grid.on_replicate_acks),
        route_untimed(Probe, grid.on_probe),
        route(ProbeAnswer, grid.on_probe_answer),
        route_untimed(CopyStart, followed.on_copy_start),
        route(CopyChunk, followed.on_copy_chunk),
        route(CopyAck, grid.on_copy_ack),
        route(CopyRefused, grid.on_copy_refused),
        route(MemoryReport, grid.on_memory_report),
    )
