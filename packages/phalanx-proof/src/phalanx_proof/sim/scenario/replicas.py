"""What scenarios show of replicas: who holds what of each partition, and what is known of it beside its entries."""

from __future__ import annotations

from phalanx.codec.hashing import partition_of
from phalanx.common.clock import value_of
from phalanx.common.hidden_maps import has_locks, is_hidden, lock_map, target_of
from phalanx.common.ids import Millis
from phalanx.common.words import counted
from phalanx.grid.replica.journal import ADDED, EVICTED, EXPIRED, MERGED, REMOVED, UPDATED
from phalanx.grid.replica.lock_state import LockState, decode_state
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.replica import Replica
from phalanx.node.node import Node
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.options import MAP
from phalanx_proof.sim.scenario.entries import decode, encode, shown
from phalanx_proof.sim.scenario.facts import Names
from phalanx_proof.sim.scenario.stage import Stage

_EVENTS = {
    ADDED: "added", UPDATED: "updated", REMOVED: "removed", EXPIRED: "expired", EVICTED: "evicted", MERGED: "merged",
}  # fmt: skip


def replica_at(node: Node, partition: int) -> Replica | None:
    """Return a member's replica of a partition, whatever its role."""
    owned = node.grid.ownership.find_owned(partition)
    return owned.replica if owned is not None else node.grid.follower.replicas.get(partition)


def replicas(stage: Stage) -> list[str]:
    """Return who holds what of each partition, by the tables of those that have the same one."""
    by_table: dict[tuple[object, ...], list[Host]] = {}
    for host in stage.running():
        table = host.running_node.installed_table.table
        by_table.setdefault((table.versions, table.rows), []).append(host)
    lines: list[str] = []
    for hosts in by_table.values():
        at = "" if len(by_table) == 1 else f" at {' '.join(stage.name(host) for host in hosts)}"
        for partition in range(hosts[0].running_node.installed_table.table.partition_count):
            lines += _partition(stage, hosts, partition, at)
    return lines + _kept(stage)


def _partition(stage: Stage, hosts: list[Host], partition: int, at: str) -> list[str]:
    table = hosts[0].running_node.installed_table.table
    row = table.slots(partition)
    held: dict[str, list[str]] = {}
    for host in sorted(hosts, key=lambda host: row.index(host.member) if host.member in row else len(row)):
        replica = replica_at(host.running_node, partition)
        if replica is not None:
            held.setdefault(f"(write {replica.seq}): {content(stage, replica)}", []).append(stage.name(host))
    lines = [f"partition {partition} v{table.versions[partition]} {row_text(stage.names, row)}{at}"]
    return lines + [f"  {' '.join(names)} {text}" for text, names in held.items()]


def row_text(names: Names, row: tuple[str | None, ...]) -> str:
    """Return the replicas by index, owner first; `-`: nobody has this index."""
    return f"[{','.join('-' if member is None else names[member] for member in row)}]"


def _kept(stage: Stage) -> list[str]:
    """Return what members keep of clusters that they have left, and have not merged yet."""
    return [
        f"{stage.name(host)} keeps {counted(side.entries, 'entry', 'entries')} of {stage.names[side.former]}"
        for host in stage.running()
        for side in host.running_node.data_merging.orphaned.unmerged()
    ]


# --- one replica ------------------------------------------------------------------------------------------------------


def content(stage: Stage, replica: Replica) -> str:
    """Return all that a replica knows of keys: entries, removals and locks; maps but the usual one by their names."""
    texts: list[str] = []
    for name in sorted(replica.maps, key=lambda name: (name != MAP, is_hidden(name), name)):
        store = replica.maps[name]
        if has_locks(name):
            of = target_of(name)
            texts += [each if of == MAP else f"{of}: {each}" for each in _locks(stage, store)]
        elif not is_hidden(name):
            known = shown([*_entries(store, stage.now), *((decode(key), " removed") for key in store.tombstones)])
            texts.append(known if name == MAP else f"{name}: {known}")
    return ", ".join(texts) or "nothing"


def _entries(store: MapStore, now: Millis) -> list[tuple[str, str]]:
    return [
        (decode(key), f"={decode(value_of(stored))}{_life(store, key, now)}") for key, stored in store.entries.items()
    ]


def _life(store: MapStore, key: bytes, now: Millis) -> str:
    ends = store.end_of(key)
    return "" if ends is None else f" for {max(round((ends - now) / 1_000), 0)}s"


def _locks(stage: Stage, store: MapStore) -> list[str]:
    return [
        f"{decode(key)} {lock_text(stage, decode_state(value_of(stored)))}"
        for key, stored in sorted(store.entries.items())
    ]


def lock_text(stage: Stage, state: LockState) -> str:
    """Return who holds a lock or semaphore, with tokens."""
    if not state.holders:
        return f"unlocked, {stage.programs.name_of(state.token)} was the last token"
    held = ", ".join(f"{holder.id} ({stage.programs.name_of(holder.token)})" for holder in state.holders)
    return f"locked by {held}" + (f" of {state.permits}" if state.permits > 1 else "")


# --- what conditions look at ------------------------------------------------------------------------------------------


def entries_at(host: Host, now: Millis) -> str:
    """Return the entries of the usual map in all replicas of a member; those whose time is over are none."""
    found: list[tuple[str, str]] = []
    for replica in _replicas_of(host):
        store = replica.maps.get(MAP)
        found += [
            (decode(key), f"={decode(value_of(stored))}")
            for key, stored in (store.entries if store is not None else {}).items()
            if store is not None and not store.is_over(key, now)
        ]
    return shown(found)


def holders_at(host: Host, key: str, *, is_semaphore: bool) -> list[str] | None:
    """Return who holds the lock or semaphore of a key by a member's replica; None: it has none."""
    data = encode(key)
    count = host.running_node.installed_table.table.partition_count
    replica = replica_at(host.running_node, partition_of(data, count))
    if replica is None:
        return None
    store = replica.maps.get(lock_map(MAP, is_semaphore=is_semaphore))
    stored = store.entries.get(data) if store is not None else None
    return [] if stored is None else [holder.id for holder in decode_state(value_of(stored)).holders]


def value_by_table(stage: Stage, host: Host, key: str) -> str:
    """Return the value that the owner of a key holds, by a member's table; `none`: there is none."""
    data = encode(key)
    table = host.running_node.installed_table.table
    partition = partition_of(data, table.partition_count)
    owner = next((each for each in stage.running() if each.member == table.owner(partition)), None)
    replica = replica_at(owner.running_node, partition) if owner is not None else None
    store = replica.maps.get(MAP) if replica is not None else None
    value = store.get(data, stage.now) if store is not None else None
    return "none" if value is None else decode(value)


def _replicas_of(host: Host) -> list[Replica]:
    grid = host.running_node.grid
    return [*(owned.replica for owned in grid.ownership.all_owned()), *grid.follower.replicas.values()]


def lacking(stage: Stage) -> str:
    """Return what is missing until all replicas are where they should be, equal, and nothing is left to merge."""
    present = {host.member for host in stage.running()}
    for host in stage.running():
        node = host.running_node
        view = node.membership.view
        if view is None or not present.issuperset(view.members):
            return f"{stage.name(host)} has members in its view that do not run"
        if node.data_merging.orphaned.unmerged():
            return f"{stage.name(host)} keeps what it has not merged"
        if node.grid.follower.copies or (node.coordinator.decides and not node.coordinator.is_at_rest()):
            return f"{stage.name(host)} is moving replicas"
        if node.coordinator.decides and node.coordinator.redundancy.lacking():
            return f"{node.coordinator.redundancy.lacking()} partitions miss replicas"
    return _different(stage)


def _different(stage: Stage) -> str:
    for host in stage.running():
        for owned in host.running_node.grid.ownership.all_owned():
            for other in stage.running():
                backup = other.running_node.grid.follower.replicas.get(owned.number)
                if backup is None or other.view is None or host.member not in other.view:
                    continue
                if (backup.seq, content(stage, backup)) != (owned.replica.seq, content(stage, owned.replica)):
                    return f"{stage.name(other)} differs from {stage.name(host)} in partition {owned.number}"
    return ""


# --- journals ---------------------------------------------------------------------------------------------------------


class JournalReader:
    """Reads the journals of replicas on from where it was."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._read: dict[tuple[str, int], int] = {}
        """Member and partition to the number of the next event."""

    def read(self) -> list[str]:
        """Return the new events of each replica, those alike once."""
        alike: dict[str, list[str]] = {}
        for host in self._stage.running():
            node = host.running_node
            for partition in range(node.installed_table.table.partition_count):
                replica = replica_at(node, partition)
                if replica is not None and MAP in replica.journals:
                    text = self._new_events(self._stage.name(host), partition, replica)
                    alike.setdefault(text, []).append(self._stage.name(host))
        return [f"{' '.join(names)}: {text}" for text, names in alike.items() if text] or ["nothing"]

    def _new_events(self, name: str, partition: int, replica: Replica) -> str:
        journal = replica.journals[MAP]
        since = self._read.get((name, partition), 0)
        self._read[name, partition] = journal.next
        events = list(journal.events)[max(since - journal.first, 0) :]
        return ", ".join(
            f"{_EVENTS[kind]} {decode(key)}={decode(value_of(stored))}"
            for kind, key, new, old, _ in events
            if (stored := new or old) is not None
        )
