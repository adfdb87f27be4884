"""What clients ask of the cluster itself: proxies, lists of maps, views, pings."""

from __future__ import annotations

from typing import Any, Final

from phalanx.codec.values import from_data, to_data
from phalanx.common.errors import CorruptDataError, UsageError
from phalanx.maps.call_plans import FIND_TABLE, CallPlan
from phalanx.maps.own_maps import OURS, check_not_ours
from phalanx.maps.requests import check_map_name
from phalanx.wire.messages import ErrorReply, GetMapNames, NamesReply, PutIfAbsent, Remove
from phalanx_protocols.hazelcast.answers import done, flag
from phalanx_protocols.hazelcast.bulk_calls import nothing_to_do
from phalanx_protocols.hazelcast.errors import Code, RefusedCall
from phalanx_protocols.hazelcast.fields import Fields
from phalanx_protocols.hazelcast.frames import (
    BEGIN_FRAME,
    END_FRAME,
    LAST_END_FRAME,
    answer_head,
    text_frame,
    uuid_field,
)
from phalanx_protocols.hazelcast.serving import Connection, Handler
from phalanx_protocols.hazelcast.views import uuid_from

MAP_SERVICE: Final = "hz:impl:mapService"
PROXIES: Final = "phalanx.hazelcast.maps"
"""The map whose keys are the names of the maps that clients have made, also of those without entries."""
_ENTRY: Final = to_data(True)


def create_proxy(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Note that there is a map of this name."""
    name, service = fields.text(), fields.text()
    _check_service(service)
    key = to_data(check_not_ours(check_map_name(name)))
    request = PutIfAbsent(connection.next_id(), PROXIES, key, _ENTRY, 0, 0, connection.grid.open_from)
    # The map is there as soon as something is stored; without the note it is only missing in lists while it is empty.
    return connection.ask(key, request, kind, number, lambda kind, number, reply: done(kind, number))


def create_proxies(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Answer at once: a client names its maps again after it has lost the cluster, and they are there."""
    texts = fields.many(fields.text)
    for service in texts[1::2]:
        _check_service(service)
    return done(kind, number)


def destroy_proxy(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Remove all entries of a map, and forget its name."""
    name, service = fields.text(), fields.text()
    _check_service(service)
    key = to_data(check_not_ours(check_map_name(name)))

    def forget(kind: int, number: int, outcome: Any) -> bytes | None:
        request = Remove(connection.next_id(), PROXIES, key, 0, connection.grid.open_from)
        return connection.ask(key, request, kind, number, lambda kind, number, reply: done(kind, number))

    return connection.perform(connection.plans(name).clear(), kind, number, forget)


def _check_service(service: str) -> None:
    if service != MAP_SERVICE:
        raise RefusedCall(Code.UNSUPPORTED, f"{service[:100]} is not supported by Phalanx, which serves key-value maps")


def get_distributed_objects(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Answer with the names of all maps: those that clients have made, and those that have entries."""

    def take_noted(kind: int, number: int, noted: set[str]) -> bytes | None:
        view = connection.grid.view
        members = view.members if view is not None else ()
        left = len(members)
        found = noted

        def take_names(kind: int, number: int, reply: Any) -> bytes | None:
            nonlocal left
            left -= 1
            if isinstance(reply, NamesReply):
                found.update(reply.names)
            elif not isinstance(reply, ErrorReply):
                raise UsageError(f"a member answered with {type(reply).__name__}")
            return None if left else _objects(kind, number, sorted(found))

        for member in members:
            connection.ask_member(member, GetMapNames(connection.next_id()), kind, number, take_names)
        return None if members else _objects(kind, number, sorted(found))

    return connection.perform(_noted_maps(connection), kind, number, take_noted)


def _noted_maps(connection: Connection) -> CallPlan[set[str]]:
    table = yield FIND_TABLE
    found: set[str] = set()
    scan = connection.plans(PROXIES).scan_data(range(table.partition_count), table.partition_count)
    while (pages := (yield from scan.next_pages())) is not None:
        for page in pages:
            for key in page.keys:
                try:
                    found.add(str(from_data(key)))
                except CorruptDataError:  # somebody else wrote into this map
                    continue
    return found


def _objects(kind: int, number: int, names: list[str]) -> bytes:
    made = [answer_head(kind + 1, number, is_last=False), BEGIN_FRAME]
    for name in names:
        if not name.startswith(OURS):
            made += (BEGIN_FRAME, text_frame(MAP_SERVICE), text_frame(name), END_FRAME)
    made.append(LAST_END_FRAME)
    return b"".join(made)


def add_cluster_view_listener(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Tell this connection the members and the partitions, now and whenever they change."""
    connection.watch_cluster(number)
    return done(kind, number)


def add_backup_listener(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Answer with the name of a listener that is never told anything: answers come when the backups have the write."""
    name = uuid_field(uuid_from(f"{connection.grid.member} {connection.number} backups"))
    return answer_head(kind + 1, number, name, is_last=True)


def remove_listener(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Answer that there was none: none can be added."""
    return flag(kind, number, False)


CLIENT_CALLS: Final[dict[int, Handler]] = {
    0x000300: add_cluster_view_listener,
    0x000400: create_proxy,
    0x000500: destroy_proxy,
    0x000800: get_distributed_objects,
    0x000A00: remove_listener,
    0x000B00: nothing_to_do,  # ping
    0x000C00: nothing_to_do,  # statistics of the client
    0x000E00: create_proxies,
    0x000F00: add_backup_listener,
    0x001000: nothing_to_do,  # triggerPartitionAssignment: partitions are assigned before a client is let in
    0x011A00: remove_listener,
}
"""The type of a request to what serves it."""
