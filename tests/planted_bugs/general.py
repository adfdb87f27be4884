"""Bugs of writes, tables and views to plant: each takes one rule out of every member of a history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.grid.replication.call import PartitionCall
from phalanx.grid.replication.progress import StreamState
from phalanx.machine.routes import route
from phalanx.membership.role import Role
from phalanx.membership.state import Installed
from phalanx.node.node import Node
from phalanx.wire import messages as m

from .replacing import replace


def acknowledge_early(node: Node) -> None:
    """A write is confirmed when the owner has it, before its backups have."""
    leader = node.grid.leader

    def write(call: PartitionCall[Any], kind: Any, reply: m.Reply, *fields: Any, **named: Any) -> None:
        leader.commit(call.owned, kind, None, call.now, *fields, **named)
        leader.answer(call.caller, reply)

    replace(leader, "write", write)


def install_older_views(node: Node) -> None:
    """A published view is installed whatever its version is, and whoever sends it."""
    membership, original = node.membership, node.membership.view_acceptance.on_members_update

    def on_members_update(sender: MemberId, message: m.MembersUpdate, now: Millis) -> None:
        view, current = message.view, membership.view
        if current is None or view == current or node.this not in view or membership.is_claiming:
            original(sender, message, now)
            return
        state = membership.state
        state.installed = Installed(has_started=state.has_started)
        membership.suspicions.suspected.clear()
        state.role = Role.MASTER if view.master == node.this else Role.SLAVE
        state.follow(view.master)
        membership.installation.install(view, "planted", now)

    node._handlers.update([route(m.MembersUpdate, on_members_update)])


def keep_own_settings(node: Node) -> None:
    """A table that assigns nothing is not looked at, whatever it says of the maps."""
    installed_table = node.installed_table
    original = installed_table.on_table_update

    def on_table_update(sender: MemberId, message: m.TableUpdate, now: Millis) -> None:
        own = (
            installed_table.table.maps
            if not installed_table.table.version and not message.table.version
            else message.table.maps
        )
        original(sender, structs.replace(message, table=structs.replace(message.table, maps=own)), now)

    replace(installed_table, "on_table_update", on_table_update)
    node._handlers.update([route(m.TableUpdate, on_table_update)])


def promote_without_table(node: Node) -> None:
    """The first backup takes over when it loses the owner, and does not wait for the master's table."""
    grid, original = node.grid, node.grid.on_link_lost

    def on_link_lost(peer: MemberId, now: Millis, *, is_refused: bool = False) -> None:
        original(peer, now, is_refused=is_refused)
        for partition, row in enumerate(grid.table.rows):
            replicas = grid.table.replicas(partition)
            if row and replicas[0] == peer and node.this in replicas[1:2] and grid.ownership.owned[partition] is None:
                grid._take_over(partition, grid.table.versions[partition] + 1)

    replace(grid, "on_link_lost", on_link_lost)


def drop_replica_early(node: Node) -> None:
    """A backup clears its replica when it hears of any newer table for the partition, and comes back empty."""
    followed, original = node.grid.follower, node.grid.follower.follow_table
    seen: dict[int, int] = {}

    def follow_table(table: PartitionTable, outcomes: Any, *, reconfirmed: bool) -> None:
        original(table, outcomes, reconfirmed=reconfirmed)
        for partition, replica in followed.replicas.items():
            version = table.versions[partition]
            if seen.get(partition, version) != version:
                replica.maps.clear()
            seen[partition] = version

    replace(followed, "follow_table", follow_table)


def skip_table_search(node: Node) -> None:
    """A new master goes on with its own table and asks nobody for a newer one."""
    coordinator, original = node.coordinator, node.coordinator._start_search

    def start_search(view: Any, now: Millis) -> None:
        original(view, now)
        if coordinator._search is not None:
            coordinator._search.waiting_for.clear()

    replace(coordinator, "_start_search", start_search)


def forget_outcomes(node: Node) -> None:
    """A write that is asked for again is applied again: no owner looks at what became of it."""
    for kind in m.OPERATIONS:
        handler = node._handlers[kind]

        def on_write(caller: Any, request: Any, now: Millis, handler: Any = handler) -> None:
            # Without a number, for ids of later tries are below zero.
            handler(caller, structs.replace(request, op=0), now)

        node._handlers[kind] = on_write


def repeat_slices(node: Node) -> None:
    """A slice of an update of many entries that is asked for again is done again."""
    handler = node._handlers[m.UpdateWhere]

    def on_update_where(caller: Any, request: m.UpdateWhere, now: Millis) -> None:
        handler(caller, structs.replace(request, op=0), now)

    node._handlers.update([route(m.UpdateWhere, on_update_where)])


def give_up_early(node: Node) -> None:
    """A write whose owner was lost is reported as unknown, and the next owner is not asked."""
    calls, original = node.calls, node.calls._on_target_lost

    def on_target_lost(pending: Any, reason: str, now: Millis, *, has_left: bool) -> None:
        if isinstance(pending.call.request, m.OPERATIONS):
            calls._fail(pending, ErrorCode.INDETERMINATE, reason)
        else:
            original(pending, reason, now, has_left=has_left)

    replace(calls, "_on_target_lost", on_target_lost)


def deny_what_was_sent(node: Node) -> None:
    """A write whose owner was lost is reported as not done, though it had been sent."""
    replace(node.calls, "_may_have_left", lambda target: False)


def resend_nothing(node: Node) -> None:
    """What a broken connection lost is not sent again: the stream is taken for acknowledged."""
    grid, original = node.grid, node.grid.on_link_lost

    def on_link_lost(peer: MemberId, now: Millis, *, is_refused: bool = False) -> None:
        in_sync = []
        for number, owned in list(grid.leader.unsettled.items()):
            stream = owned.streams.get(peer)
            if stream is not None and stream.state is StreamState.IN_SYNC:
                stream.acked = owned.replica.seq
                owned._confirm(now)
                in_sync.append((number, grid.leader.unsettled.pop(number)))
        original(peer, now, is_refused=is_refused)
        grid.leader.unsettled.update(in_sync)

    replace(grid, "on_link_lost", on_link_lost)


def claim_too_soon(node: Node) -> None:
    """A member claims the mastership when it suspects the master alone, and everybody agrees at once."""
    membership = node.membership

    def claim_if_due(now: Millis) -> None:
        state = membership.state
        if state.role is Role.SLAVE and state.master in membership.suspicions.suspected:
            membership.succession._start(state.joined(), now)

    def on_claim(sender: MemberId, message: m.MastershipClaim, now: Millis) -> None:
        if membership.view is not None:
            membership.state.role = Role.SLAVE
            membership.state.follow(sender)
            membership.succession.claim = None
            node._out.send(sender, m.ClaimAnswer(message.claim_id, True, membership.view))

    replace(membership.succession, "claim_if_due", claim_if_due)
    node._handlers.update([route(m.MastershipClaim, on_claim)])


def serve_when_too_small(node: Node) -> None:
    """Requests for a protected map are served, and confirmed, however few members there are."""
    replace(node.grid.guard, "why_refused", lambda name, *, is_write, now: "")


def confirm_when_too_small(node: Node) -> None:
    """Protection is looked at when a write comes, and not when it is acknowledged."""
    replace(node.grid.guard, "find_withheld", lambda name, now: None)


GENERAL_CANARIES: dict[str, Callable[[Node], None]] = {
    "acknowledge-early": acknowledge_early,
    "install-older-views": install_older_views,
    "keep-own-settings": keep_own_settings,
    "promote-without-table": promote_without_table,
    "drop-replica-early": drop_replica_early,
    "skip-table-search": skip_table_search,
    "forget-outcomes": forget_outcomes,
    "repeat-slices": repeat_slices,
    "give-up-early": give_up_early,
    "deny-what-was-sent": deny_what_was_sent,
    "resend-nothing": resend_nothing,
    "claim-too-soon": claim_too_soon,
    "serve-when-too-small": serve_when_too_small,
    "confirm-when-too-small": confirm_when_too_small,
}
"""Name to what takes the rule out."""
