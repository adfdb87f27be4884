"""The commands of connections: greeting, token, database, names, and what clients ask of the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from phalanx.grid.serving.update_results import UpdateRefused
from phalanx_protocols.redis_functions import integer_of
from phalanx_protocols.resp.answers import Outcome
from phalanx_protocols.resp.connection import RespConnection
from phalanx_protocols.resp.framing import OK, array, bulk, error, integer, mapping, said
from phalanx_protocols.resp.table import Commands

VERSION = "7.2.0"
"""The release of Redis whose commands these are: clients choose by it what they send."""
WRONG_PASSWORD = "WRONGPASS invalid username-password pair or user is disabled."
DEFAULT_USER = b"default"


def ping(c: RespConnection, args: list[bytes]) -> Outcome:
    if len(args) > 2:
        return error("ERR wrong number of arguments for 'ping' command")
    return bulk(args[1]) if len(args) == 2 else b"+PONG\r\n"


def quit_(c: RespConnection, args: list[bytes]) -> Outcome:
    c.close_after(OK)
    return b""


def reset(c: RespConnection, args: list[bytes]) -> Outcome:
    c.reset()
    return b"+RESET\r\n"


def auth(c: RespConnection, args: list[bytes]) -> Outcome:
    if len(args) > 3:
        raise UpdateRefused("ERR syntax error")
    if c.server.credentials is None and len(args) == 2:
        return error("ERR AUTH <password> called without any password configured for the default user. Are you sure your "
                     "configuration is correct?")  # fmt: skip
    name, password = (args[1], args[2]) if len(args) == 3 else (DEFAULT_USER, args[1])
    return OK if is_shown(c, name, password) else error(WRONG_PASSWORD)


def is_shown(c: RespConnection, name: bytes, password: bytes) -> bool:
    """Return whether the client has shown the token, and admit it if so. Where there is none, the default user shows what it likes."""
    credentials = c.server.credentials
    if credentials is None:
        return name == DEFAULT_USER
    text = "" if name == DEFAULT_USER and not credentials.name else name.decode("utf-8", "replace")
    if credentials.are_shown(text, password):
        c.admit()
        return True
    c.failed_to_show()
    return False


def hello(c: RespConnection, args: list[bytes]) -> Outcome:
    protocol, name = c.protocol, None
    index = 1
    if len(args) > 1:
        if args[1] not in (b"2", b"3"):
            return error("NOPROTO unsupported protocol version")
        protocol, index = int(args[1]), 2
    while index < len(args):
        word = args[index].upper()
        if word == b"AUTH" and index + 2 < len(args):
            if not is_shown(c, args[index + 1], args[index + 2]):
                return error(WRONG_PASSWORD)
            index += 3
        elif word == b"SETNAME" and index + 1 < len(args):
            name = _checked_name(args[index + 1])
            index += 2
        else:
            return error(f"ERR Syntax error in HELLO option '{said(args[index])}'")
    if not c.is_admitted:
        return error("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> "
                     "<pass> option can be used to authenticate the client and select the RESP protocol version at the same time")  # fmt: skip
    c.protocol = protocol
    if name is not None:
        c.name = name
    answers: list[tuple[bytes, bytes]] = [
        (b"server", bulk(b"redis")), (b"version", bulk(VERSION.encode())), (b"proto", integer(protocol)), (b"id", integer(c.number)),
        (b"mode", bulk(b"standalone")), (b"role", bulk(b"master")), (b"modules", array([])),
    ]  # fmt: skip
    return mapping(protocol, [(bulk(each), answer) for each, answer in answers])


def select(c: RespConnection, args: list[bytes]) -> Outcome:
    number = integer_of(args[1], "ERR invalid DB index")
    if not 0 <= number < len(c.server.maps):
        return error("ERR DB index is out of range")
    c.select(number)
    return OK


# --- CLIENT ---------------------------------------------------------------------------------------------------------------


def _checked_name(name: bytes) -> bytes:
    if any(char < 33 or char > 126 for char in name) or len(name) > 256:
        raise UpdateRefused("ERR Client names cannot contain spaces, newlines or special characters.")
    return name


def _client_info(c: RespConnection) -> bytes:
    age, idle = ((c.now - at) // 1000 for at in (c.opened_at, c.used_at))
    library = c.library.get(b"LIB-NAME", b"").decode(), c.library.get(b"LIB-VER", b"").decode()
    queued = -1 if c.queue is None else len(c.queue.commands)
    return (
        f"id={c.number} addr={c.peer} laddr={c.local} fd=0 name={c.name.decode()} age={age} idle={idle} flags=N db={c.database} "
        f"sub=0 psub=0 ssub=0 multi={queued} watch=0 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 "
        f"tot-mem=0 events=r cmd={c.last_command} user=default redir=-1 resp={c.protocol} lib-name={library[0]} lib-ver={library[1]}"
    ).encode()


def _client_list(c: RespConnection, args: list[bytes]) -> Outcome:
    chosen: set[int] | None = None
    if len(args) > 2:
        if args[2].upper() == b"ID":
            chosen = {integer_of(word, "ERR Invalid client ID") for word in args[3:]}
        elif args[2].upper() == b"TYPE" and len(args) == 4:
            chosen = None if args[3].upper() == b"NORMAL" else set()
        else:
            raise UpdateRefused("ERR syntax error")
    found = [each for number, each in sorted(c.server.clients.items()) if chosen is None or number in chosen]
    for each in found:
        each.now = c.now
    return bulk(b"".join(_client_info(each) + b"\n" for each in found))


def _client_kill(c: RespConnection, args: list[bytes]) -> Outcome:
    is_old = len(args) == 3
    terms = [(b"ADDR", args[2])] if is_old else list(zip(args[2::2], args[3::2], strict=False))
    if not terms or (not is_old and len(args) % 2):
        raise UpdateRefused("ERR syntax error")
    found, skips_me = set(c.server.clients.values()), not is_old
    for given, word in terms:
        term = given.upper()
        if term == b"ID":
            number = integer_of(word, "ERR client-id should be greater than 0")
            found = {each for each in found if each.number == number}
        elif term in (b"ADDR", b"LADDR"):
            text = word.decode("utf-8", "replace")
            found = {each for each in found if (each.peer if term == b"ADDR" else each.local) == text}
        elif term == b"SKIPME" and word.upper() in (b"YES", b"NO"):
            skips_me = word.upper() == b"YES"
        elif term == b"TYPE":
            found = found if word.upper() == b"NORMAL" else set()
        elif term == b"USER":
            found = found if word == DEFAULT_USER else set()
        else:
            raise UpdateRefused("ERR syntax error")
    doomed = sorted(each.number for each in found if not (skips_me and each is c))
    if is_old and not doomed:
        return error("ERR No such client")
    for number in doomed:
        if number != c.number:
            c.close_other(number)
    answer = OK if is_old else integer(len(doomed))
    if c.number in doomed:
        c.close_after(answer)
        return b""
    return answer


def _client_setinfo(c: RespConnection, args: list[bytes]) -> Outcome:
    name = args[2].upper()
    if name not in (b"LIB-NAME", b"LIB-VER"):
        return error(f"ERR Unrecognized option '{said(args[2])}'")
    c.library[name] = _checked_name(args[3])
    return OK


def _client_setname(c: RespConnection, args: list[bytes]) -> Outcome:
    c.name = _checked_name(args[2])
    return OK


Part = tuple[int, Callable[[RespConnection, list[bytes]], Outcome]]
CLIENT: dict[bytes, Part] = {
    b"ID": (2, lambda c, args: integer(c.number)),
    b"GETNAME": (2, lambda c, args: c.text(c.name or None)),
    b"SETNAME": (3, _client_setname),
    b"SETINFO": (4, _client_setinfo),
    b"INFO": (2, lambda c, args: bulk(_client_info(c) + b"\n")),
    b"LIST": (-2, _client_list),
    b"KILL": (-3, _client_kill),
    b"GETREDIR": (2, lambda c, args: integer(-1)),
    b"NO-EVICT": (3, lambda c, args: OK),
    b"NO-TOUCH": (3, lambda c, args: OK),
}
"""Part of CLIENT to the number of its words (below 0: at least so many), and what carries it out."""


def parts(name: str, known: Mapping[bytes, Part]) -> Any:
    """Return the handler of a command with parts."""

    def refuses(args: list[bytes]) -> bytes | None:
        found = known.get(args[1].upper())
        if found is None:
            return error(f"ERR unknown subcommand or not served: '{said(args[1])}'. Served are {name} "
                         f"{', '.join(sorted(each.decode() for each in known))}")  # fmt: skip
        arity = found[0]
        if len(args) != arity if arity > 0 else len(args) < -arity:
            return error(
                f"ERR wrong number of arguments for '{name.lower()}|{args[1].decode('latin-1').lower()}' command"
            )
        return None

    def handle(c: RespConnection, args: list[bytes]) -> Outcome:
        return refuses(args) or known[args[1].upper()][1](c, args)

    handle.refuses = refuses  # type: ignore[attr-defined]  # read by `Commands.add`
    return handle


COMMANDS = Commands("connection")
_add = COMMANDS.add
_QUICK = "noscript loading stale fast"
_ALONE: dict[str, Any] = {"is_of_connection": True, "is_idempotent": True}
_add("ping", -1, "Returns PONG, or the word that it is given.", ping, "fast", is_short=True, **_ALONE)
_add("echo", 2, "Returns the word that it is given.", lambda c, args: bulk(args[1]), "loading stale fast", **_ALONE)
_add("auth", -2, "Shows the token.", auth, f"{_QUICK} no_auth", is_for_strangers=True, is_outside_transactions=True, is_idempotent=True,
     differs="One token, or name and password, for all clients (setting `serve_token_file`); there are no ACLs.")  # fmt: skip
_add(
    "hello",
    -1,
    "Chooses the version of the protocol.",
    hello,
    f"{_QUICK} no_auth",
    is_for_strangers=True,
    is_idempotent=True,
)
_add(
    "quit", -1, "Ends the connection.", quit_, f"{_QUICK} no_auth", is_for_strangers=True, is_outside_transactions=True
)
_add("reset", 1, "Makes the connection as it was when new.", reset, f"{_QUICK} no_auth", is_for_strangers=True,
     is_outside_transactions=True, is_idempotent=True, differs="The client needs not show its token again.")  # fmt: skip
_add("select", 2, "Uses another database.", select, "loading stale fast", is_idempotent=True,
     differs="A database is a map of the setting `redis_maps`.")  # fmt: skip
_add("client", -2, "CLIENT ID, GETNAME, SETNAME, SETINFO, INFO, LIST, KILL and some that change nothing.", parts("CLIENT", CLIENT),
     _QUICK, is_for_strangers=False, differs="About the connections of this member. No TRACKING, PAUSE, REPLY.")  # fmt: skip
for _name in (
    "subscribe",
    "psubscribe",
    "ssubscribe",
    "unsubscribe",
    "punsubscribe",
    "sunsubscribe",
    "publish",
    "spublish",
    "pubsub",
):
    _text = f"{_name.upper()} is not served: this release has no channels and no keyspace events; a journal tells what happens to a map"
    COMMANDS.refuse(_name, _text, "pubsub fast", "the grid has no channels.")
for _name in ("eval", "evalsha", "eval_ro", "evalsha_ro", "script", "function", "fcall", "fcall_ro"):
    _text = f"{_name.upper()} is not served: code never travels; functions of members change values where they live"
    COMMANDS.refuse(
        _name, _text, "noscript", "code never travels. So the `Lock` of redis-py cannot be released: see `SET`."
    )
