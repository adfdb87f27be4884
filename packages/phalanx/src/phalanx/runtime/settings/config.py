"""The settings of a member process: its address, its seeds, and what its machines need (`NodeConfig`)."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from inspect import isfunction
from typing import Annotated, Any

import msgspec

from phalanx.common.config import NodeConfig, NotNegative, NumberBounds, Positive
from phalanx.common.errors import UsageError
from phalanx.common.ids import MAX_PORT_DIGITS, Address, Millis, host_and_port, parse_address
from phalanx.common.seeds import DEFAULT_PORT, GivenMembers, parse_members
from phalanx.common.updates import named_functions
from phalanx.common.words import quoted
from phalanx.grid.serving.updates import BUILT_IN
from phalanx.net.addresses import is_loopback, is_wildcard, normalise
from phalanx.net.flow import MIB, Limits
from phalanx.net.secret import Secret, find_secret, secret_file_of
from phalanx.runtime.settings.endpoint_settings import check_served
from phalanx.runtime.settings.http_settings import check_http, check_http_changes
from phalanx.runtime.settings.memory_limit import DEFAULT as DEFAULT_MEMORY_LIMIT
from phalanx.runtime.settings.memory_limit import check_memory_limit
from phalanx.wire.codec import DEFAULT_MAX_FRAME_BYTES

MOST_PORTS = 256
"""How many ports a range can have."""
DISK_LAG_MS: Millis = 1_000
DEFAULT_EVENT_LOG_BUFFER_BYTES = 8 * 1024 * 1024
DEFAULT_EVENT_LOG_MAX_BYTES = 64 * 1024 * 1024


class Config(NodeConfig, frozen=True, kw_only=True):
    """Settings of one member. Every field has a default: `Config()` forms a cluster of one on 127.0.0.1:5701.

    docs/configuration.md says of each setting what it does, its unit, and what more and less of it cost. Raises `UsageError` for a value that
    cannot be used.
    """

    host: str = "127.0.0.1"
    """The host or address at which to listen (0.0.0.0: all). Beyond loopback the cluster needs a secret."""

    port: int | str = DEFAULT_PORT
    """The port at which to listen; 0: any free port, which `Member.address` tells. A range such as "5701-5720": the first
    free port of it; without seeds, members of one user on one host then find each other through the range."""

    advertise: str | None = None
    """The host under which others reach this member; None: `host`. Required if that is 0.0.0.0 or ::."""

    also_known_as: Sequence[str] = ()
    """Further addresses under which others connect to this member: mapped ports of a container, virtual addresses,
    names. In a cluster with a secret a member refuses connections that were dialled to an address which is not its
    own."""

    secret_file: str | None = None
    """A file with the cluster's secret, the same on every member and client: peers with another secret, or none, are
    refused. If the file belongs to the user of this process, no other user must be able to open it (`chmod 600`). None: the file that
    the variable PHALANX_SECRET_FILE names; without that variable the cluster has no secret."""

    secret: str | None = None
    """The secret itself, for programs that do not read it from a file; a file is the better place."""

    data_dir: str | None = None
    """A folder for this member's data: what is written is on the disk within a fifth of a second, and comes back when the
    member, or the whole cluster, is started again (docs/durability.md). None: all is in memory. Experimental."""

    data_dir_is_lasting: bool = False
    """Whether the folder may be on a file system that is known to lose files, or that is not known: a volume that lasts all the same."""

    disk_lag_ms: Positive = DISK_LAG_MS
    """If what was written to the folder waits for its sync for longer than this, all further writes wait for theirs."""

    event_log: str | None = None
    """A folder for this member's events, one JSON object per line; None: only log lines."""

    event_log_buffer_bytes: Positive = DEFAULT_EVENT_LOG_BUFFER_BYTES
    """How many bytes of events wait in memory while the disk accepts nothing. Further events are lost, and counted."""

    event_log_max_bytes: Annotated[int, NumberBounds(0, zero="0: no limit")] = DEFAULT_EVENT_LOG_MAX_BYTES
    """After this many bytes, a new part of the event log begins, and the old one is compressed. 0: never."""

    event_log_max_age_ms: Annotated[int, NumberBounds(0, zero="0: no limit")] = 86_400_000
    """So does one of this age, at the next event. 0: never."""

    event_log_keep: Annotated[int, NumberBounds(0, zero="0: no limit")] = 0
    """How many earlier parts of the event log of this incarnation are kept; older ones are removed. 0: all."""

    legacy_member_list_format: bool = False
    """Log member lists without size and version."""

    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    """The longest message that is sent or accepted. Must exceed the largest value; the same everywhere."""

    max_backlog_bytes: Positive = 128 * MIB
    """If more bytes of replies wait to be written to one client, its further requests wait until it has read them. A
    bulk call of a client has up to 16 replies of 8 MiB under way from one member."""

    max_total_backlog_bytes: Positive = 512 * MIB
    """The limit for the replies to all clients together. Over half of it the requests of each client that does not read
    wait, however little waits for it; over all of it the client with the largest backlog is dropped."""

    max_member_backlog_bytes: Positive = 256 * MIB
    """If more bytes of messages wait to be written to one member, the connection to it is broken off."""

    max_partial_frame_bytes: Positive = 256 * MIB
    """The limit for messages of clients above 64 KiB that have arrived in part, counted by their whole lengths: further
    ones wait. A longer message is accepted alone."""

    max_answer_bytes: int = 64 * MIB
    """What one list that a Redis or Hazelcast client asks for can have: values of many keys, the answers of a transaction, keys that
    match. Longer ones are refused, and nothing of them is sent. An entry of any size that is allowed is answered in any case."""

    slow_peer_timeout_ms: Positive = 30_000
    """Within this time a client must read 64 KiB of what waits for it, or all of it; and it must send as much of a
    message that it has begun to send."""

    tcp_keepalive_ms: Millis = 60_000
    """How long a connection can be idle before the kernel asks whether the peer's host is there; if nobody answers for as long
    again, the connection ends. 0: the kernel does not ask, and a connection of a host that has vanished stays."""

    client_idle_timeout_ms: Millis = 0
    """How long a client's connection can be at rest before it is closed, of any protocol; 0: without end. Clients of Phalanx
    connect again by themselves when they make a call."""

    max_clients: NotNegative = 0
    """How many clients can be connected at a time; further ones are refused. 0: as many as the limit of open files
    leaves beside the places of members, but 10,000 at most."""

    memory_limit: int | str = DEFAULT_MEMORY_LIMIT
    """How much memory this process can use: bytes, a size ("2GiB", "500MB"), or a part ("80%") of what its control group,
    or else its machine, allows. From there on the member refuses what grows it (`GridFull`). What is left of the
    machine is for copies of others' data, merges, and buffers. 0: there is no limit."""

    slow_turn_warning_ms: Annotated[int, NumberBounds(0, zero="0 turns it off")] = 100
    """A member that works at one input for longer logs a warning, at most every ten seconds: meanwhile it handles
    nothing else. 0: never."""

    update_warning_ms: Annotated[int, NumberBounds(0, zero="0 turns it off")] = 20
    """A function of the program (`functions`) that runs for longer in one call is told by name, in an event
    (`UpdateWasSlow`) and in the log, at most every ten seconds. 0: never."""

    serve: Sequence[str] = ()
    """Protocols of other systems that this member speaks at its port besides its own: "redis" (docs/redis.md), "hazelcast"
    (docs/hazelcast.md). Their clients show a token of their own (`serve_token_file`), never the cluster's secret."""

    serve_token_file: str | None = None
    """A file with the token that clients of served protocols show as their password, or with `name:password`. If it belongs to
    the user of this process, no other user must be able to open it. None: anybody who reaches the port can read and write; only on loopback."""

    redis_maps: Sequence[str] = ()
    """The maps that Redis clients see as databases: `SELECT 0` uses the first, and so do clients without SELECT. Empty: sixteen,
    `redis0` to `redis15`."""

    redis_loose_transactions: bool = False
    """Whether MULTI and EXEC of Redis clients take keys of several owners. Commands then run as they would without MULTI, and
    nothing holds them together. False: EXEC refuses such keys."""

    http_port: int | str | None = None
    """The port of metrics, probes and the HTTP interface (docs/how-to/monitor.md), or a range, as for `port`; None: there is
    none. Needs the extra `phalanx[http]`."""

    http_host: str = "127.0.0.1"
    """The host or address at which to listen for HTTP. Beyond loopback it needs a token."""

    http_token_file: str | None = None
    """A file with the token that all requests but probes must bear (`Authorization: Bearer ...`, or as the password of
    Basic). If it belongs to the user of this process, no other user must be able to open it. None: anybody who reaches the port can read."""

    http_allow_changes: bool = False
    """Whether the console can change the settings of maps (docs/how-to/console.md). Needs `http_token_file`."""

    http_certificate_file: str | None = None
    """A file with the certificate chain, and perhaps the key, in PEM: the HTTP port speaks TLS. None: it does not."""

    http_key_file: str | None = None
    """The key of the certificate, if it is in a file of its own."""

    tracing: bool = False
    """Whether the calls that this program makes on the member's maps are spans of OpenTelemetry (docs/how-to/monitor.md). Needs
    the extra `phalanx[tracing]`."""

    def __post_init__(self) -> None:
        for name in (
            "secret_file",
            "data_dir",
            "event_log",
            "http_token_file",
            "http_certificate_file",
            "http_key_file",
            "serve_token_file",
        ):
            if isinstance(getattr(self, name), os.PathLike):
                msgspec.structs.force_setattr(self, name, os.fspath(getattr(self, name)))
        super().__post_init__()
        check_memory_limit(self.memory_limit)
        seeds = tuple(_texts("seeds", self.seeds))
        members = parse_members(seeds) if seeds else GivenMembers([])
        msgspec.structs.force_setattr(self, "seeds", tuple(map(str, members.seeds)))
        msgspec.structs.force_setattr(self, "cluster", members.cluster_or(self.cluster))
        also_known_as = tuple(map(parse_address, _texts("also_known_as", self.also_known_as)))
        msgspec.structs.force_setattr(self, "also_known_as", also_known_as)
        msgspec.structs.force_setattr(self, "functions", named_functions(with_modules(self.functions), BUILT_IN))
        msgspec.structs.force_setattr(self, "port", _port_or_range("port", self.port))
        self._check_reach()
        if self.http_port is not None:
            msgspec.structs.force_setattr(self, "http_port", _port_or_range("http_port", self.http_port))
        served, redis_maps = check_served(self)
        msgspec.structs.force_setattr(self, "serve", served)
        msgspec.structs.force_setattr(self, "redis_maps", redis_maps)
        check_http(self.http_host, self.http_port, self.http_token_file, self.http_certificate_file, self.http_key_file)
        check_http_changes(self.http_allow_changes, self.http_token_file)
        self._check_data_dir()
        if self.tcp_keepalive_ms and self.tcp_keepalive_ms < 1000:
            raise UsageError(f"tcp_keepalive_ms: {self.tcp_keepalive_ms} must be at least 1000, or 0: no keepalive")
        if self.client_idle_timeout_ms and self.client_idle_timeout_ms < self.call_timeout_ms:
            raise UsageError(
                f"client_idle_timeout_ms: {self.client_idle_timeout_ms} must be at least call_timeout_ms "
                f"({self.call_timeout_ms}), because a client that waits for an answer is idle; or 0: no limit"
            )
        if self.max_total_backlog_bytes < self.max_backlog_bytes:
            raise UsageError(
                f"max_total_backlog_bytes: {self.max_total_backlog_bytes} must be at least max_backlog_bytes "
                f"({self.max_backlog_bytes})"
            )
        if self.copy_chunk_bytes > self.max_bulk_bytes:
            raise UsageError(
                f"copy_chunk_bytes: {self.copy_chunk_bytes} is more than the {self.max_bulk_bytes} bytes of keys and values "
                f"that one message may have; give less, or raise max_value_bytes"
            )
        if self.max_frame_bytes < self.max_bulk_bytes + 65_536:
            raise UsageError(
                f"max_frame_bytes: {self.max_frame_bytes} is too small: give at least {self.max_bulk_bytes + 65_536}, "
                f"for the largest entry (max_value_bytes {self.max_value_bytes} and max_key_bytes "
                f"{self.max_key_bytes}) and for requests with many entries"
            )

    def _check_data_dir(self) -> None:
        """Raise `UsageError` if settings about the folder contradict each other."""
        if self.data_dir == "":  # else that is the folder in which the process runs
            raise UsageError("data_dir: it is empty: name a folder, or leave it out to keep all in memory")
        if self.data_dir is not None:
            return
        if not self.lite and self.map_plan.has_always:
            raise UsageError("maps: durability 'always' needs a folder of this member: set data_dir")
        # Whoever gives these believes that the data is on a disk.
        if self.data_dir_is_lasting:
            raise UsageError("data_dir_is_lasting: it is about data_dir, which is not given: name the folder there")
        if self.disk_lag_ms != DISK_LAG_MS:
            raise UsageError("disk_lag_ms: it is about data_dir, which is not given: name the folder there")

    def address(self, port: int) -> Address:
        """Return this member's address, given the port at which it listens."""
        host = self.advertise or self.host
        return Address(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")

    def own_addresses(self, port: int) -> frozenset[Address]:
        """Return all addresses under which others can dial this member, normalised, given the port at which it listens.

        A wildcard host is not one of them: with it, each connection knows at which address of the machine it arrived.
        """
        listens_at = () if is_wildcard(self.host) else (Address(f"{self.host}:{port}"),)
        return frozenset(map(normalise, (*listens_at, *self.also_known_as)))

    @property
    def ports(self) -> range:
        """Return the ports at which this member can listen; the first free one is taken."""
        return _range_of(self.port)

    @property
    def http_ports(self) -> range:
        """Return the ports at which this member can listen for HTTP; empty: at none."""
        return range(0) if self.http_port is None else _range_of(self.http_port)

    @property
    def limits(self) -> Limits:
        """Return the limits of this member's connections."""
        return Limits(
            self.max_backlog_bytes,
            self.max_total_backlog_bytes,
            self.max_member_backlog_bytes,
            self.max_partial_frame_bytes,
            self.slow_peer_timeout_ms,
            self.tcp_keepalive_ms,
            self.client_idle_timeout_ms,
        )

    @property
    def answer_bytes(self) -> int:
        """Return what one list of answers can have: `max_answer_bytes`, and never less than one entry."""
        return max(self.max_answer_bytes, self.max_value_bytes + self.max_key_bytes + 65_536)

    def find_secret(self) -> Secret | None:
        """Return the cluster's secret; None: it has none. Raises `UsageError` if the file is bad."""
        return find_secret(self.secret, self.secret_file)

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        if self.secret is not None:
            shown["secret"] = "(not shown)"
        return f"Config({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def _check_reach(self) -> None:
        """Raise `UsageError` if a member listens beyond this machine without a secret or a reachable address."""
        has_secret = secret_file_of(self.secret, self.secret_file) is not None or self.secret is not None
        if not has_secret and not is_loopback(self.host):
            raise UsageError(
                f"host: {self.host!r} is not a loopback address, and without a secret anybody who reaches it could read "
                f"and write: give every member and client the same secret_file (--secret-file), or listen on 127.0.0.1"
            )
        known_as = self.advertise or self.host
        elsewhere = [seed for seed in self.seed_addresses if _is_other_machine(host_and_port(seed)[0])]
        if elsewhere and is_loopback(known_as):
            raise UsageError(
                f"host: others would know this member as {known_as!r}, but on each machine this is the machine itself, and the seed "
                f"{elsewhere[0]} is not on loopback: listen on an address of this machine (--host)"
            )
        if self.advertise is None and is_wildcard(self.host):
            raise UsageError(
                f"host: others cannot connect to {self.host!r}: give the address under which they reach this member as "
                f"advertise (--advertise), or listen on that one"
            )
        nowhere = [address for address in self.also_known_as if is_wildcard(host_and_port(Address(address))[0])]
        if nowhere:
            raise UsageError(
                f"also_known_as: nobody can connect to {nowhere[0]!r}; give the addresses that others dial"
            )
        if self.advertise is not None and (not self.advertise or is_wildcard(self.advertise)):
            raise UsageError(f"advertise: others cannot connect to {self.advertise!r}; give an address of this machine")


def given_config(config: object) -> Config:
    """Return the settings that a program has given, or the default ones for None. Raises `UsageError` for anything else."""
    if config is None:
        return Config()
    if not isinstance(config, Config):
        raise UsageError(
            f"{quoted(config)} is not a configuration: give phalanx.Config(port=5701), or what phalanx.load_config returns"
        )
    return config


def _range_of(port: int | str) -> range:
    first, _, last = str(port).partition("-")
    return range(int(first), int(last or first) + 1)


def _port_or_range(name: str, given: int | str) -> int | str:
    """Return the port, or the range as "first-last". Raises `UsageError`."""
    parts = [part.strip() for part in str(given).split("-")]
    if not 1 <= len(parts) <= 2 or not all(
        part.isascii() and part.isdecimal() and len(part) <= MAX_PORT_DIGITS for part in parts
    ):
        raise UsageError(f'{name}: {quoted(given)} is not a port: give a number, or a range such as "5701-5720"')
    first, last = int(parts[0]), int(parts[-1])
    if last > 65535:
        raise UsageError(f"{name}: {given} is not between 0 and 65535")
    if len(parts) == 1:
        return first
    if not 0 < first <= last < first + MOST_PORTS:
        raise UsageError(
            f"{name}: {given} is not a range: give the lower port first, above 0, and {MOST_PORTS} ports at most"
        )
    return f"{first}-{last}"


def with_modules(given: Any) -> Any:
    """Return the functions; a module's name stands for all functions that it defines, but those with an underscore.

    Raises `UsageError` if there is no such module, or it cannot be imported, or has none.
    """
    if isinstance(given, Mapping | str) or not isinstance(given, Iterable):
        return given
    return [function for each in given for function in (_functions_in(each) if isinstance(each, str) else [each])]


def _functions_in(name: str) -> list[Any]:
    try:
        module = import_module(name)
    except Exception as error:
        raise UsageError(
            f"functions: module {quoted(name)} cannot be imported: {type(error).__name__}: {error}"
        ) from None
    found = [
        each
        for each in vars(module).values()
        if isfunction(each) and each.__module__ == module.__name__ and not each.__name__.startswith("_")
    ]
    if not found:
        raise UsageError(f"functions: module {quoted(name)} defines no function")
    return found


def _texts(name: str, texts: Sequence[str]) -> Sequence[str]:
    if isinstance(texts, str):
        raise UsageError(f"{name}: {texts!r} is one text; give a list of addresses, such as ['127.0.0.1:5701']")
    if not isinstance(texts, Iterable):
        raise UsageError(f"{name}: {quoted(texts)} is not a list; give a list of addresses, such as ['127.0.0.1:5701']")
    return texts


def _is_other_machine(host: str) -> bool:
    """Return whether the host is an address beyond loopback; names are not looked up."""
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
