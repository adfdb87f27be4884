"""The messages that the grid takes: requests of callers, and messages between owners and replicas."""

from __future__ import annotations

from phalanx.grid.merge.receiver import MergeReceiver, SweepRequests, VersionWriter, WriteLookups
from phalanx.grid.requests.bulk import BulkReads, BulkRequests, BulkWrites
from phalanx.grid.requests.clear import Clears
from phalanx.grid.requests.locks import FencedWrites, LockRequests
from phalanx.grid.requests.scans import Scans
from phalanx.grid.requests.single import KeyOperations, KeyReads, KeyRequests, KeyUpdates, KeyWrites
from phalanx.grid.requests.staged import PageStager, StagedRequests, StagedSteps
from phalanx.grid.requests.update_where import SliceMaker, SliceUpdates, SliceWriter
from phalanx.grid.service import GridService
from phalanx.grid.serving.bulk_writer import BulkWriter
from phalanx.grid.serving.entry_writer import EntryWriter
from phalanx.grid.serving.idempotency import Idempotency
from phalanx.grid.serving.memory_admission import MemoryAdmission
from phalanx.machine.routes import Routes, route, route_each, route_untimed
from phalanx.wire import messages as m


def grid_routes(grid: GridService) -> Routes:
    """Make the handlers of the requests to one member, each of the parts of the grid that it depends on."""
    followed = grid.follower
    idempotency = Idempotency(grid.leader, grid.ownership, grid.replies)
    memory_admission = MemoryAdmission(grid.memory, grid.disks, grid.evictor, grid.replies)
    versions = VersionWriter(grid.leader, grid.reads, grid.locks, grid.evictor)
    merges = MergeReceiver(grid.ownership, grid.admission, versions, grid.copies.out)
    sweeps = SweepRequests(grid.admission, grid.leader, grid.scans, grid.copies.chunk_bytes)
    return (
        *route_each(m.KeyRequest, _key_requests(grid, idempotency, memory_admission).serve),
        *route_each(m.ClientBulkRequest, _bulk_requests(grid, idempotency, memory_admission).serve),
        route(m.MergeEntries, merges.serve),
        route(m.FindWrittenBefore, sweeps.serve),
        route(m.FindWrite, WriteLookups(grid.ownership, grid.replies).serve),
        *route_each(m.Mutation, followed.on_replicate),
        route(m.ReplicateAck, grid.on_replicate_ack),
        route(m.ReplicateAcks, grid.on_replicate_acks),
        route_untimed(m.Probe, grid.on_probe),
        route(m.ProbeAnswer, grid.on_probe_answer),
        route(m.CopyStart, followed.on_copy_start),
        route(m.CopyChunk, followed.on_copy_chunk),
        route(m.CopyAck, grid.on_copy_ack),
        route(m.CopyRefused, grid.on_copy_refused),
        route(m.MemoryReport, grid.on_memory_report),
        route(m.DiskReport, grid.on_disk_report),
    )


def _key_requests(grid: GridService, idempotency: Idempotency, memory_admission: MemoryAdmission) -> KeyRequests:
    admission = grid.admission
    writer = EntryWriter(grid.leader, grid.evictor, memory_admission, idempotency)
    reads = KeyReads(grid.ownership, grid.reads, grid.replies)
    writes = KeyWrites(grid.ownership, admission, idempotency, writer)
    locks = LockRequests(admission, idempotency, memory_admission, grid.locks)
    operations = KeyOperations(
        plain={m.Get: reads.get, m.Put: writes.put},
        others={
            m.Contains: reads.contains,
            m.GetTimeToLive: reads.get_time_to_live,
            m.PutIfAbsent: writes.put_if_absent,
            m.Replace: writes.replace,
            m.Remove: writes.remove,
            m.UpdateValue: KeyUpdates(admission, idempotency, writer, grid.evaluator).update,
            m.WriteFenced: FencedWrites(admission, idempotency, writer, grid.locks).write,
            m.AcquireLock: locks.acquire,
            m.RenewLock: locks.renew,
            m.ReleaseLock: locks.release,
            m.GetLock: locks.describe,
        },
    )
    return KeyRequests(grid.ownership, admission, grid.traffic, operations)


def _bulk_requests(grid: GridService, idempotency: Idempotency, memory_admission: MemoryAdmission) -> BulkRequests:
    admission, leader = grid.admission, grid.leader
    writer = BulkWriter(leader, grid.evictor)
    reads = BulkReads(grid.ownership, admission, grid.reads, grid.replies)
    writes = BulkWrites(admission, memory_admission, writer, PageStager(admission, grid.staging, writer))
    scans = Scans(admission, grid.scans, grid.staging, grid.evaluator)
    slices = SliceUpdates(
        admission,
        idempotency,
        SliceMaker(grid.evaluator, grid.ownership, grid.scans),
        SliceWriter(leader, grid.evictor, memory_admission, idempotency),
    )
    steps = StagedSteps(grid.ownership, leader, grid.staging, grid.turns)
    return BulkRequests(
        grid.traffic,
        {
            m.GetAll: reads.get_all,
            m.PutAll: writes.put_all,
            m.PutPacked: writes.put_packed,
            m.UpdateWhere: slices.update,
            m.SizeOf: reads.size_of,
            m.ClearPartitions: Clears(admission, leader, grid.turns).clear,
            m.ScanPartition: scans.scan,
            m.ScanPacked: scans.scan_packed,
            m.ReadJournal: reads.read_journal,
            m.ChangeStaged: StagedRequests(admission, memory_admission, steps).change,
        },
    )
