"""What clients and tools ask of the server: CONFIG, COMMAND, CLUSTER and the like."""

from __future__ import annotations

from hashlib import sha1

from phalanx.common.ids import MemberId, address_of, host_and_port
from phalanx.grid.serving.update_results import UpdateRefused
from phalanx.maps.glob import Pattern
from phalanx_protocols.redis_functions import integer_of
from phalanx_protocols.resp.answers import Outcome
from phalanx_protocols.resp.connection import RespConnection
from phalanx_protocols.resp.framing import OK, array, bulk, bulks, error, integer, mapping, sequence
from phalanx_protocols.resp.session import VERSION, parts
from phalanx_protocols.resp.table import Command, Commands
from phalanx_protocols.resp.usage import Argument, arguments_of

SLOTS = 16_384
"""The hash slots of Redis Cluster."""

# --- CLUSTER --------------------------------------------------------------------------------------------------------------


def members_of(c: RespConnection) -> list[MemberId]:
    """Return the members at which clients can ask, the oldest first."""
    view = c.grid.view
    return list(view.members) if view is not None else []


def slot_ranges(count: int) -> list[tuple[int, int]]:
    """Return the first and the last slot of each of so many members. Any member forwards: this only spreads connections."""
    return [(SLOTS * index // count, SLOTS * (index + 1) // count - 1) for index in range(count)]


def node_id(member: MemberId) -> bytes:
    """Return the name of a member for cluster clients."""
    return sha1(member.encode(), usedforsecurity=False).hexdigest().encode()


def _slots(c: RespConnection, args: list[bytes]) -> Outcome:
    members = members_of(c)
    found = []
    for member, (first, last) in zip(members, slot_ranges(len(members)), strict=True):
        host, port = host_and_port(address_of(member))
        node = array([bulk(host.encode()), integer(port), bulk(node_id(member)), array([])])
        found.append(array([integer(first), integer(last), node]))
    return array(found)


def _shards(c: RespConnection, args: list[bytes]) -> Outcome:
    members, found = members_of(c), []
    for member, (first, last) in zip(members, slot_ranges(len(members)), strict=True):
        host, port = host_and_port(address_of(member))
        node = [
            (b"id", bulk(node_id(member))), (b"port", integer(port)), (b"ip", bulk(host.encode())),
            (b"endpoint", bulk(host.encode())), (b"role", bulk(b"master")), (b"replication-offset", integer(0)),
            (b"health", bulk(b"online")),
        ]  # fmt: skip
        pairs = [
            (bulk(b"slots"), array([integer(first), integer(last)])),
            (bulk(b"nodes"), array([mapping(c.protocol, [(bulk(name), answer) for name, answer in node])])),
        ]
        found.append(mapping(c.protocol, pairs))
    return array(found)


def _nodes(c: RespConnection, args: list[bytes]) -> Outcome:
    members, lines = members_of(c), []
    for member, (first, last) in zip(members, slot_ranges(len(members)), strict=True):
        host, port = host_and_port(address_of(member))
        flags = "myself,master" if member == c.grid.member else "master"
        lines.append(f"{node_id(member).decode()} {host}:{port}@{port} {flags} - 0 0 0 connected {first}-{last}\n")
    return bulk("".join(lines).encode())


def _cluster_info(c: RespConnection, args: list[bytes]) -> Outcome:
    view, count = c.grid.view, len(members_of(c))
    state = "ok" if c.grid.table is not None else "fail"
    known = {
        "cluster_enabled": 1, "cluster_state": state, "cluster_slots_assigned": SLOTS if count else 0,
        "cluster_slots_ok": SLOTS if count else 0, "cluster_slots_pfail": 0, "cluster_slots_fail": 0, "cluster_known_nodes": count,
        "cluster_size": count, "cluster_current_epoch": view.version if view is not None else 0, "cluster_my_epoch": 0,
    }  # fmt: skip
    return bulk("".join(f"{name}:{value}\r\n" for name, value in known.items()).encode())


def key_slot(key: bytes) -> int:
    """Return the slot in which a cluster client puts a key: CRC16 (XMODEM) of it, or of what is in its braces."""
    start = key.find(b"{")
    if start >= 0 and (end := key.find(b"}", start + 1)) > start + 1:
        key = key[start + 1 : end]
    crc = 0
    for byte in key:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc % SLOTS


CLUSTER = {
    b"SLOTS": (2, _slots),
    b"SHARDS": (2, _shards),
    b"NODES": (2, _nodes),
    b"INFO": (2, _cluster_info),
    b"MYID": (2, lambda c, args: bulk(node_id(c.grid.member))),
    b"KEYSLOT": (3, lambda c, args: integer(key_slot(args[2][:65_536]))),
}

# --- COMMAND --------------------------------------------------------------------------------------------------------------


def _described(c: RespConnection, command: Command) -> bytes:
    flags = [b"+%b\r\n" % flag.encode() for flag in command.flags]
    categories = [b"+@%b\r\n" % command.group.encode()]
    keys = [integer(place) for place in (command.first_key, command.last_key, command.step)]
    name, arity = bulk(command.name.encode()), integer(command.arity)
    empty = array([])
    return array(
        [name, arity, sequence(c.protocol, flags), *keys, sequence(c.protocol, categories), empty, empty, empty]
    )


def _chosen(c: RespConnection, words: list[bytes]) -> list[tuple[bytes, Command | None]]:
    if not words:
        return [(command.name.encode(), command) for command in c.server.table]
    return [(word.lower(), c.server.commands.get(word.upper())) for word in words]


def _command_info(c: RespConnection, args: list[bytes]) -> Outcome:
    return array([_described(c, found) if found is not None else c.nil_array for _, found in _chosen(c, args[2:])])


def _command_docs(c: RespConnection, args: list[bytes]) -> Outcome:
    pairs = []
    for name, command in _chosen(c, args[2:]):
        if command is not None:
            summary = f"{command.summary} {command.differs}".strip()
            known = [
                (bulk(b"summary"), bulk(summary.encode())),
                (bulk(b"since"), bulk(b"1.0.0")),
                (bulk(b"group"), bulk(command.group.encode())),
            ]
            if arguments := arguments_of(command.name):
                known.append((bulk(b"arguments"), array([_argument(c, each) for each in arguments])))
            pairs.append((bulk(name), mapping(c.protocol, known)))
    return mapping(c.protocol, pairs)


def _argument(c: RespConnection, argument: Argument) -> bytes:
    """Return what COMMAND DOCS answers about an argument."""
    name = bulk(argument.name.encode())
    pairs = [(bulk(b"name"), name), (bulk(b"type"), bulk(argument.kind.encode()))]
    if not argument.arguments and argument.kind != "pure-token":
        pairs.append((bulk(b"display_text"), name))
    if argument.kind == "key":
        pairs.append((bulk(b"key_spec_index"), integer(0)))
    if argument.token:
        pairs.append((bulk(b"token"), bulk(argument.token.encode())))
    flags = [(argument.is_optional, b"+optional\r\n"), (argument.is_multiple, b"+multiple\r\n")]
    if any(is_so for is_so, _ in flags):
        pairs.append((bulk(b"flags"), array([flag for is_so, flag in flags if is_so])))
    if argument.arguments:
        pairs.append((bulk(b"arguments"), array([_argument(c, each) for each in argument.arguments])))
    return mapping(c.protocol, pairs)


def _command_list(c: RespConnection, args: list[bytes]) -> Outcome:
    names = [command.name.encode() for command in c.server.table]
    if len(args) > 2:
        if len(args) != 5 or args[2].upper() != b"FILTERBY":
            raise UpdateRefused("ERR syntax error")
        pattern = Pattern(args[4].lower()) if args[3].upper() == b"PATTERN" else Pattern(b"")
        names = [name for name in names if pattern.matches(name)]
    return bulks(names)


def _command_keys(c: RespConnection, args: list[bytes]) -> Outcome:
    command = c.server.commands.get(args[2].upper())
    if command is None:
        return error("ERR Invalid command specified")
    words = args[2:]
    if len(words) != command.arity if command.arity > 0 else len(words) < -command.arity:
        return error("ERR Invalid number of arguments specified for command")
    keys = command.keys_in(words)
    return bulks(keys) if keys else error("ERR The command has no key arguments")


COMMAND = {
    b"COUNT": (2, lambda c, args: integer(len(c.server.table))),
    b"INFO": (-2, _command_info),
    b"DOCS": (-2, _command_docs),
    b"LIST": (-2, _command_list),
    b"GETKEYS": (-3, _command_keys),
}


_part_of_command = parts("COMMAND", COMMAND)


def command(c: RespConnection, args: list[bytes]) -> Outcome:
    if len(args) == 1:
        return _command_info(c, [b"COMMAND", b"INFO"])
    found: Outcome = _part_of_command(c, args)
    return found


def _refuses(args: list[bytes]) -> bytes | None:
    found: bytes | None = _part_of_command.refuses(args) if len(args) > 1 else None
    return found


# --- CONFIG ---------------------------------------------------------------------------------------------------------------


def _config(c: RespConnection) -> dict[bytes, bytes]:
    return {
        b"appendonly": b"no",
        b"databases": b"%d" % len(c.server.maps),
        b"maxmemory": b"0",
        b"proto-max-bulk-len": b"%d" % c.grid.max_frame_bytes,
        b"save": b"",
        b"timeout": b"0",
    }


def _config_get(c: RespConnection, args: list[bytes]) -> Outcome:
    patterns = [Pattern(word.lower()) for word in args[2:66]]
    found = {name: value for name, value in _config(c).items() if any(each.matches(name) for each in patterns)}
    return mapping(c.protocol, [(bulk(name), bulk(value)) for name, value in found.items()])


def _reset_statistics(c: RespConnection, args: list[bytes]) -> Outcome:
    c.server.connected = c.server.commands_done = 0
    return OK


CONFIG = {
    b"GET": (-3, _config_get),
    b"RESETSTAT": (2, _reset_statistics),
}


def time_(c: RespConnection, args: list[bytes]) -> Outcome:
    now_ms = c.grid.wall_ms()
    return bulks([b"%d" % (now_ms // 1000), b"%d" % (now_ms % 1000 * 1000)])


def wait(c: RespConnection, args: list[bytes]) -> Outcome:
    integer_of(args[1])
    integer_of(args[2])
    return integer(0)


def lolwut(c: RespConnection, args: list[bytes]) -> Outcome:
    return bulk(f"Redis ver. {VERSION}, as Phalanx speaks it\n".encode())


COMMANDS = Commands("server")
_add = COMMANDS.add
_add("config", -2, "CONFIG GET of a few settings.", parts("CONFIG", CONFIG), "admin noscript loading stale", is_idempotent=True,
     differs="SET is refused: settings of maps are changed by `phalanx map settings`.")  # fmt: skip
_add(
    "command",
    -1,
    "COMMAND COUNT, DOCS, GETKEYS, INFO, LIST.",
    command,
    "loading stale",
    is_idempotent=True,
    refuses=_refuses,
)
_add("time", 1, "Returns the time of this member.", time_, "loading stale fast", is_idempotent=True)
_add("wait", 3, "Returns 0.", wait, "fast", is_idempotent=True,
     differs="Returns 0 at once: a write is answered when the synchronous backups have it.")  # fmt: skip
_add("lolwut", -1, "Returns a line of text.", lolwut, "readonly fast", first_key=0, is_idempotent=True)
_add("cluster", -2, "CLUSTER SLOTS, SHARDS, NODES, INFO, MYID, KEYSLOT.", parts("CLUSTER", CLUSTER), "stale", is_idempotent=True,
     differs="Slots only spread connections over the members: any member serves any key, and nobody answers MOVED.")  # fmt: skip
_add("readonly", 1, "Does nothing.", lambda c, args: OK, "loading stale fast", is_idempotent=True)
_add("readwrite", 1, "Does nothing.", lambda c, args: OK, "loading stale fast", is_idempotent=True)
_add("asking", 1, "Does nothing.", lambda c, args: OK, "fast", is_idempotent=True)
for _name in ("save", "bgsave", "bgrewriteaof", "lastsave", "shutdown", "slaveof", "replicaof", "failover", "monitor", "slowlog", "latency",
              "acl", "module", "psync", "sync", "role", "swapdb"):  # fmt: skip
    _text = f"{_name.upper()} is not served: members are operated by the command phalanx and the HTTP port"
    COMMANDS.refuse(
        _name, _text, "admin noscript loading stale", "members are operated by `phalanx` and the HTTP port."
    )
