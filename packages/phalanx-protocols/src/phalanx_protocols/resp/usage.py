"""The words that commands take, as COMMAND DOCS describes them: redis-cli makes its hints of it.

A usage is written as people know it: `key` is a word, `[...]` is optional, `a|b` one of several, `...` once or more, and a word in capital
letters is said as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

_LIFE: Final = "EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds"
_RULE: Final = "[NX|XX|GT|LT]"
USAGE: Final[dict[str, str]] = {
    "append": "key value", "asking": "", "auth": "[username] password", "client": "subcommand [argument ...]", "cluster": "subcommand [argument ...]",
    "command": "[subcommand [argument ...]]", "config": "subcommand [argument ...]", "dbsize": "", "decr": "key", "decrby": "key decrement",
    "del": "key ...", "discard": "", "echo": "message", "exec": "", "exists": "key ...", "expire": f"key seconds {_RULE}",
    "expireat": f"key unix-time-seconds {_RULE}", "expiretime": "key", "flushall": "[ASYNC|SYNC]", "flushdb": "[ASYNC|SYNC]", "get": "key",
    "getdel": "key", "getex": f"key [{_LIFE}|PERSIST]", "getrange": "key start end", "getset": "key value", "hdel": "key field ...",
    "hello": "[protover [AUTH username password] [SETNAME clientname]]", "hexists": "key field", "hget": "key field", "hgetall": "key",
    "hincrby": "key field increment", "hincrbyfloat": "key field increment", "hkeys": "key", "hlen": "key", "hmget": "key field ...",
    "hmset": "key (field value) ...", "hscan": "key cursor [MATCH pattern] [COUNT count] [NOVALUES]", "hset": "key (field value) ...",
    "hsetnx": "key field value", "hstrlen": "key field", "hvals": "key", "incr": "key", "incrby": "key increment", "incrbyfloat": "key increment",
    "info": "[section ...]", "keys": "pattern", "lolwut": "[VERSION version]", "mget": "key ...", "mset": "(key value) ...",
    "msetnx": "key value", "multi": "", "persist": "key", "pexpire": f"key milliseconds {_RULE}",
    "pexpireat": f"key unix-time-milliseconds {_RULE}", "pexpiretime": "key", "ping": "[message]", "psetex": "key milliseconds value",
    "pttl": "key", "quit": "", "randomkey": "", "readonly": "", "readwrite": "", "reset": "",
    "scan": "cursor [MATCH pattern] [COUNT count] [TYPE type]", "select": "index", "set": f"key value [NX|XX] [GET] [{_LIFE}|KEEPTTL]",
    "setex": "key seconds value", "setnx": "key value", "setrange": "key offset value", "strlen": "key", "substr": "key start end", "time": "",
    "touch": "key ...", "ttl": "key", "type": "key", "unlink": "key ...", "unwatch": "", "wait": "numreplicas timeout",
}  # fmt: skip
"""Name of a command that is served to its usage."""

_PART: Final = re.compile(r"\.\.\.|[\[\]()|]|[^\s\[\]()|]+")
_INTEGERS: Final = frozenset(
    ["seconds", "milliseconds", "count", "cursor", "decrement", "increment", "start", "end", "offset", "index", "numreplicas", "timeout", "protover"]
)  # fmt: skip


class Argument(msgspec.Struct):
    """One argument as COMMAND DOCS describes it."""

    name: str
    kind: str
    """`key`, `string`, `integer`, `pattern`, `unix-time`, `pure-token`, `oneof` or `block`."""
    token: str = ""
    """The word before it, or that it is; empty: none."""
    is_optional: bool = False
    is_multiple: bool = False
    arguments: list[Argument] = []
    """What it consists of, or of which it is one."""


def arguments_of(name: str) -> list[Argument]:
    """Return the arguments of a command; of one without a usage none."""
    return _sequence(iter(_PART.findall(USAGE.get(name, ""))), "")


def _sequence(parts: Iterator[str], closes: str) -> list[Argument]:
    """Return the arguments up to a bracket that closes; where they are alternatives, the one argument that is one of them."""
    alternatives: list[list[Argument]] = [[]]
    token = ""
    for part in parts:
        found = alternatives[-1]
        if part == closes:
            break
        if part == "...":
            found[-1].is_multiple = True
        elif part == "|":
            token = _end_token(found, token)
            alternatives.append([])
        elif part.isupper():
            token = _end_token(found, token)
            token = part
        elif part in ("[", "("):
            token = _end_token(found, token)
            inner = _sequence(parts, "]" if part == "[" else ")")
            one = inner[0] if len(inner) == 1 else Argument(inner[0].name, "block", arguments=inner)
            one.is_optional = part == "["
            found.append(one)
        else:
            found.append(Argument(part, _kind_of(part), token))
            token = ""
    _end_token(alternatives[-1], token)
    if len(alternatives) == 1:
        return alternatives[0]
    ones = [some[0] if len(some) == 1 else Argument(some[0].name, "block", arguments=some) for some in alternatives]
    return [Argument(ones[0].name, "oneof", arguments=ones)]


def _end_token(found: list[Argument], token: str) -> str:
    """Add a word that stands for itself, if there is one."""
    if token:
        found.append(Argument(token.lower(), "pure-token", token))
    return ""


def _kind_of(name: str) -> str:
    if name in ("key", "pattern"):
        return name
    return "unix-time" if name.startswith("unix-time") else "integer" if name in _INTEGERS else "string"
