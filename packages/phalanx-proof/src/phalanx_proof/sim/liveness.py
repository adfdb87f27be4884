"""What a healed cluster still lacks: in the liveness phase the list must become empty by a deadline.

All members that run have one view and one master; there is no suspicion, no claim, nobody leaves. There is one table, with all
the replicas that the number of members allows. Nothing waits for a replica, or to be merged; every call is answered. Where the map asks for
the majority, every member has it, and a lease, unless votes are gone for good.
"""

from __future__ import annotations

from phalanx.common.ids import Millis
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.world import World
from phalanx_proof.sim.workload.calls import Workload


def find_unmet(world: World, workload: Workload, *, needs_majority: bool) -> list[str]:
    """List what is not as it should be at rest, in words; empty: all is.

    `needs_majority`: the map asks for the majority, and no vote is gone for good.
    """
    running = [host for host in world.hosts if host.node is not None]
    unmet = [f"{host} will start" for host in world.hosts if host.node is None and host.comes_back is not None]
    unmet += [
        f"{host} has not left" for host in running if host.is_leaving and not _has_only_disk(host, running, world)
    ]
    unmet += [f"{host.member} has not joined" for host in running if not host.has_joined]
    joined = [host for host in running if host.has_joined]
    if not any(world.holds_data(host) for host in joined):
        return [*unmet, "nobody that holds data is in a cluster"]
    unmet += _unmet_membership(joined)
    unmet += _unmet_replication(joined, world)
    if needs_majority:
        unmet += [f"{host.member} must not serve" for host in joined if not _may_serve(host, world.now)]
    unmet += [f"no answer to {operation}" for operation in workload.pending.values()]
    return unmet


def _has_only_disk(host: Host, running: list[Host], world: World) -> bool:
    """Tell whether a member keeps what it holds, until another one comes, because the disks of all others have failed (DU-41)."""
    others = [other for other in running if other is not host and other.has_joined and world.holds_data(other)]
    have_failed = [other.has_failed_disk for other in others]
    return world.holds_data(host) and bool(others) and all(have_failed)


def _unmet_membership(joined: list[Host]) -> list[str]:
    unmet = []
    views = {}
    for host in joined:
        membership = host.running_node.membership
        view = membership.view
        views[host.number] = view
        if membership.master != view.members[0]:  # type: ignore[union-attr]  # it has joined
            unmet.append(f"{host.member} follows {membership.master}, the oldest is {view.members[0]}")  # type: ignore[union-attr]
        if membership.is_claiming:
            unmet.append(f"{host.member} claims the mastership")
        if membership.suspicions.suspected:
            unmet.append(f"{host.member} suspects {membership.suspicions.suspected}")
    first = views[joined[0].number]
    unmet += [
        f"{h.member} has {views[h.number]}, {joined[0].member} has {first}" for h in joined if views[h.number] != first
    ]
    if first is not None and set(first.members) != {host.member for host in joined}:
        unmet.append(f"the view of {joined[0].member} is {first}; running: {[host.member for host in joined]}")
    return unmet


def _may_serve(host: Host, now: Millis) -> bool:
    """Tell whether the member serves maps that ask for the majority, by its own clock."""
    return host.running_node.membership.majority.may_acknowledge(host.clock(now))


def _unmet_replication(joined: list[Host], world: World) -> list[str]:
    unmet = []
    for host in joined if world.options.restarts else ():
        if (restarting := host.running_node.coordinator.restarting).wait is not None:
            unmet.append(f"{host.member} waits for {', '.join(restarting.waits_for)} before the cluster goes on")
    table = joined[0].table
    for host in joined:
        if host.table != table and table is not None and host.table is not None:
            unmet.append(f"{host.member} has table {host.table.version}, {joined[0].member} has {table.version}")
        waiting = list(host.running_node.grid.leader.unsettled.values())
        if waiting:
            unmet.append(f"{host.member} waits for replicas: {waiting[:3]}")
        if host.running_node.data_merging:
            unmet.append(f"{host.member} merges what it kept of other sides")
        if not host.running_node.coordinator.migrations.is_idle:
            unmet.append(f"{host.member} has migrations to do: {host.running_node.coordinator.migrations}")
    if table is not None and table.is_assigned:
        holding = [host for host in joined if world.holds_data(host)]
        works = [host for host in holding if not host.has_failed_disk]
        wanted = min(world.options.backups + 1, len(works or holding))
        # It leaves by itself, and callers that ask it then have no answer.
        unmet += [
            f"the disk of {host.member} has failed, and it has yet to leave"
            for host in holding
            if works and host not in works and not table.loads().get(host.running_node.this)
        ]
        lacking = [p for p in range(table.partition_count) if table.replica_count(p) < wanted]
        if lacking:
            unmet.append(f"partitions {lacking} of table {table.version} have fewer than {wanted} replicas")
    return unmet
