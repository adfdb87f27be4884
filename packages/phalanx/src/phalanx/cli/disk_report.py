"""What a data folder has, as an object for programs and as lines for people."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from phalanx.common.hidden_maps import is_hidden
from phalanx.common.memory import format_bytes
from phalanx.common.words import counted, quoted
from phalanx.disk.replay import Replay
from phalanx.disk.scanning import LogDamage, LogScan, TornTail
from phalanx.runtime.disk.failure_file import why_failed
from phalanx.runtime.disk.stored_log import RecordInLog, StoredLog, why_not_replayed
from phalanx.wire.disk_records import KnownCluster

_MOST_ITEMS: Final = 8
"""How many items of a list in a record are shown."""
_MOST_BYTES: Final = 32


def describe_log(log: StoredLog) -> dict[str, Any]:
    """Return everything that `phalanx disk` tells of a folder."""
    found, replay, why = log.found, *why_not_replayed(log)
    newest = found.newest
    return {
        "data_dir": log.path,
        "store": log.store.store,
        "created": log.store.created,
        "start": log.store.start,
        "used_by": None if log.user is None else {"pid": log.user.pid, "host": log.user.host, "since": log.user.since},
        "generation": log.generations[-1].name if log.generations else None,
        "older_generations": [each.name for each in log.generations[:-1]],
        "cluster": newest.cluster if newest is not None else None,
        "member": newest.member if newest is not None else None,
        "release": newest.release if newest is not None else None,
        "written": _as_time(found.times.wall_ms) if found.times is not None else None,
        "written_ms_ago": max(0, log.wall_ms - found.times.wall_ms) if found.times is not None else None,
        "segments": list(_segments(log)),
        "log_bytes": sum(extent.end - extent.start for extent in found.extents),
        "records": sum(extent.next_lsn - extent.first_lsn for extent in found.extents),
        "last_lsn": found.end.lsn - 1 if found.end is not None else None,
        "synced_lsn": found.synced_lsn,
        "is_clean": found.is_clean,
        "has_vote": newest is not None and newest.start > log.store.cut,
        "torn": _torn(found.torn),
        "damages": [_damage(each) for each in found.damages],
        "failure": None if log.failure is None else {"why": log.failure.why, "when": log.failure.when},
        "refused": why or (why_failed(log.failure, log.path) if log.failure is not None else ""),
        **_content(replay, newest.state if newest is not None else KnownCluster(), log.now_ms),
    }  # fmt: skip


def _segments(log: StoredLog) -> Iterator[dict[str, Any]]:
    """Describe each file: its size, and how much of it is used."""
    found = log.found
    used = {extent.segment: 0 for extent in found.extents}
    for extent in found.extents:
        used[extent.segment] += extent.end - extent.start
    for number, content in sorted(log.segments.items()):
        state = "unused" if number in found.unused else "replayed" if number in used else "outside"
        size = len(content) if content is not None else None
        yield {"segment": number, "bytes": size, "log_bytes": used.get(number, 0), "state": state}


def _torn(torn: TornTail | None) -> dict[str, Any] | None:
    if torn is None:
        return None
    place = {"segment": torn.segment, "offset": torn.offset, "record": torn.lsn}
    return place | {"bytes": torn.bytes, "blocks": torn.blocks}


def _damage(damage: LogDamage) -> dict[str, Any]:
    place = {"segment": damage.segment, "offset": damage.offset, "reason": damage.reason, "record": damage.lsn}
    return place | {"readable_from": damage.until}


def _content(replay: Replay | None, at_least: KnownCluster, now: int) -> dict[str, Any]:
    """Describe what a member would begin with. `at_least`: what is known of the cluster where the log cannot be replayed."""
    replicas = replay.replicas if replay is not None else {}
    began = replay.index.began if replay is not None else {}
    sums: dict[str, list[int]] = {}
    for replica in replicas.values():
        for name, store in replica.maps.items():
            if entries := store.size(now):
                of_map = sums.setdefault(name, [0, 0])
                of_map[0] += entries
                of_map[1] += store.count_bytes()
    return {
        **_cluster(replay.index.cluster if replay is not None else at_least),
        "maps": [
            {"map": name, "entries": entries, "bytes": size}
            for name, (entries, size) in sorted(sums.items())
            if not is_hidden(name)
        ],
        "hidden_maps": sum(is_hidden(name) for name in sums),
        "replicas": [
            {"partition": partition, "epoch": replica.epoch, "leader": replica.leader, "seq": replica.seq}
            | {"entries": replica.entry_count(), "begins_at_record": began[partition]}
            for partition, replica in sorted(replicas.items())
        ],
        "arriving": sorted(replay.arriving) if replay is not None else [],
    }


def _cluster(known: KnownCluster) -> dict[str, Any]:
    view, table, footing = known.view, known.table, known.footing
    return {
        "view": None if view is None else {"version": view.version, "maker": view.maker, "members": list(view.members)},
        "voter": known.voter,
        "stable_voters": None if footing is None else list(footing.stable.voters),
        "table": None
        if table is None
        else {"version": table.version, "of": list(known.members), "partitions": table.partition_count},
    }


# --- for people ---------------------------------------------------------------------------------------------------------


def damages_in_words(found: LogScan) -> list[str]:
    """Say of each damage where it is, why it is one, and what can be lost."""
    lines = []
    for damage in found.damages:
        until = f"{damage.until - 1}" if damage.until is not None else "the end"
        lines.append(
            f"segment {damage.segment} is damaged at byte {damage.offset}: {damage.reason}; records from {damage.lsn} to {until} can be lost"
        )
    return lines


def torn_in_words(torn: TornTail) -> str:
    """Say what a start would cut off."""
    return (
        f"the end of the log is torn: from byte {torn.offset} of segment {torn.segment} on, {format_bytes(torn.bytes)} in "
        f"{counted(torn.blocks, 'whole block')} were written and never known to be synced; a start cuts them off at record {torn.lsn}"
    )


def log_in_words(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is known of a folder but its maps and replicas, each with its name."""
    yield "folder", report["data_dir"]
    yield "store", f"{report['store']}, made {report['created']}, {counted(report['start'], 'start')}"
    if (user := report["used_by"]) is not None:
        yield "used by", f"pid {user['pid']} on host {user['host']}: this is the state of a moment ago"
    if report["generation"] is None or not report["segments"]:
        yield "log", "nothing was ever written"
        return
    older = f"; older: {', '.join(report['older_generations'])}" if report["older_generations"] else ""
    yield "generation", f"{report['generation']}{older}"
    for each in report["segments"]:
        size = format_bytes(each["bytes"]) if each["bytes"] is not None else "what cannot be read"
        yield f"segment {each['segment']}", f"{format_bytes(each['log_bytes'])} of {size}, {each['state']}"
    records = counted(report["records"], "record")
    yield "log", f"{format_bytes(report['log_bytes'])} in {records}, synced up to {report['synced_lsn']}"
    if report["cluster"] is not None:
        yield "cluster", quoted(report["cluster"])
        yield "member", f"{report['member']}, release {report['release']}"
        clean = "; stopped in good order" if report["is_clean"] else ""
        yield "last written", f"{report['written']}, {report['written_ms_ago'] / 1000:,.1f} s ago{clean}"
    if (view := report["view"]) is not None:
        yield "view", f"ver {view['version']}: {', '.join(view['members'])}"
    if (table := report["table"]) is not None:
        partitions = counted(table["partitions"], "partition")
        yield "table", f"ver {table['version']}, {partitions}, installed by {', '.join(table['of'])}"


def restart_in_words(report: dict[str, Any]) -> str:
    """Say what a member would begin with."""
    entries = sum(each["entries"] for each in report["maps"])
    maps, replicas = counted(len(report["maps"]), "map"), counted(len(report["replicas"]), "replica")
    if report["table"] is None or not report["replicas"]:
        return "a start brings back no data"
    members = counted(len(report["stable_voters"] or ()), "member")
    vote = "a vote" if report["has_vote"] else "no vote"
    return (
        f"a start brings back {replicas} of {counted(report['table']['partitions'], 'partition')} with {counted(entries, 'entry', 'entries')} "
        f"in {maps}, and {vote} in the last stable list, of {members}"
    )


def _as_time(wall_ms: int) -> str:
    try:
        return dt.datetime.fromtimestamp(wall_ms / 1000, dt.UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):  # a clock that showed nonsense
        return f"{wall_ms} ms after 1970"


# --- records ------------------------------------------------------------------------------------------------------------


def describe_record(each: RecordInLog) -> dict[str, Any]:
    """Return one record with its place. Keys, values and long lists are shortened."""
    body = each.record.body
    place = {"lsn": each.lsn, "segment": each.segment, "block": each.block, "written": _as_time(each.wall_ms)}
    return place | {"kind": type(body).__name__, "to_copy": each.record.to_copy, "record": _brief(body)}


def _brief(value: Any) -> Any:
    """Return a value of a record in a form that JSON can have, and that is not long."""
    if isinstance(value, msgspec.Struct):
        return {name: _brief(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, bytes):
        rest = f"… ({counted(len(value), 'byte')})" if len(value) > _MOST_BYTES else ""
        return value[:_MOST_BYTES].hex() + rest
    if isinstance(value, (tuple, list, set, frozenset)):
        return _brief_items(value, len(value))
    if isinstance(value, dict):
        return {str(_brief(key)): _brief(item) for key, item in list(value.items())[:_MOST_ITEMS]}
    return value if value is None or isinstance(value, (bool, int, float, str)) else quoted(value)


def _brief_items(items: Iterable[Any], count: int) -> list[Any]:
    some = [_brief(item) for item, _ in zip(items, range(_MOST_ITEMS), strict=False)]
    return some if count <= _MOST_ITEMS else [*some, f"… ({count:,})"]
