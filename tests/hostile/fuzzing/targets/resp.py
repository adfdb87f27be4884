"""What a Redis client sends: commands, whole and broken, with and without a token."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from hostile.fuzzing.changes import ODD_NUMBERS, changed_bytes
from hostile.fuzzing.target import Case, Target, Turns
from hostile.fuzzing.targets.member import MAX_FRAME_BYTES, Conversation, HeldMember
from phalanx.common.ids import Address
from phalanx.endpoints.protocol import Credentials
from phalanx_protocols.resp.framing import command
from phalanx_protocols.resp.server import TABLE, RespServer

STRANGER, APART, MANY_KEYS = 1, 2, 4
"""Flags of the first part: a token is wanted and not shown; each command comes by itself; the database with many keys is used."""
RECYCLED = 4_000
"""Inputs after which the member is made anew."""


class Resp(Target):
    """A byte of flags, then commands."""

    name = "resp"
    answer_bytes: ClassVar[int] = 4 * MAX_FRAME_BYTES
    _names = tuple(each.name.encode() for each in TABLE)
    _arities: ClassVar[dict[bytes, int]] = {each.name.encode(): each.arity for each in TABLE}
    _common = (
        b"get", b"set", b"mget", b"mset", b"hset", b"hget", b"hmget", b"hgetall", b"hscan", b"scan", b"keys", b"incrbyfloat", b"hincrbyfloat",
        b"multi", b"exec", b"append", b"setrange", b"getrange", b"del", b"exists", b"type", b"dbsize", b"object", b"copy", b"rename",
    )  # fmt: skip
    _keys = (b"n", b"t", b"f", b"h", b"big", b"bighash", b"wide", b"long", b"none", b"key:1", b"new", b"l", b"d")
    _fields = (b"f", b"g", b"n", b"l", b"field:1", b"none")
    _words = (
        b"MATCH", b"COUNT", b"TYPE", b"string", b"hash", b"NX", b"XX", b"GT", b"LT", b"EX", b"PX", b"EXAT", b"PXAT", b"KEEPTTL", b"GET", b"ABSTTL",
        b"REPLACE", b"ASYNC", b"ID", b"LIST", b"KILL", b"SETNAME", b"HELP", b"DOCS", b"INFO", b"NOVALUES", b"WITHVALUES", b"AUTH", b"2", b"3", b"*",
    )  # fmt: skip

    def __init__(self) -> None:
        self._member = HeldMember()
        self._played = 0

    def make(self, rng: Random) -> Case:
        flags = rng.choice((0, 0, 0, APART, MANY_KEYS, STRANGER, STRANGER | APART))
        made: Case = [bytes([flags])]
        for _ in range(rng.choice((1, 1, 2, 3, 6))):
            one = self._command(rng)
            times = rng.choice((8, 64, 300, 3_000)) if rng.random() < 0.02 else 1
            made += [one] * min(times, max(1, 2**20 // max(1, len(one))))
        if rng.random() < 0.1:
            made = [made[0], command(b"MULTI"), *made[1:], command(b"EXEC")]
        if flags & STRANGER and rng.random() < 0.05:
            made += [
                rng.choice((b"\r\n", b"PING\r\n", b"*1\r\n$4\r\nPING\r\n", b"*0\r\n", b"a b c d\r\n"))
                * rng.choice((100, 5_000, 40_000))
            ]
        return made

    def _command(self, rng: Random) -> bytes:
        if rng.random() < 0.05:
            return rng.choice(
                (
                    b"PING\r\n",
                    b"GET t\r\n",
                    b"\r\n",
                    b"*-1\r\n",
                    b"*3\r\n$3\r\n",
                    b"SET \"a\\x00\" 'b'\r\n",
                    b"*1000000\r\n",
                    b"$9\r\n",
                )
            )
        if rng.random() < 0.1:
            return self._scan(rng)
        name = rng.choice(self._common if rng.random() < 0.6 else self._names)
        arity = self._arities.get(name, -1)
        count = abs(arity) - 1 + (rng.choice((0, 0, 1, 2, 3)) if arity < 0 else 0)
        words = [self._word(rng, place) for place in range(count)]
        if words and rng.random() < (0.1 if name in (b"mget", b"hmget") else 0.02):
            words += [rng.choice((*words, b"big", b"f"))] * rng.choice((30, 300, 3_000))
        made = command(name, *words)
        return changed_bytes(rng, made) if rng.random() < 0.05 else made

    def _scan(self, rng: Random) -> bytes:
        pattern = self._pattern(rng)
        if rng.random() < 0.3:
            return command(b"KEYS", pattern)
        count = rng.choice((b"1", b"10", b"1000", b"100000"))
        key = rng.choice(((b"SCAN",), (b"HSCAN", rng.choice((b"wide", b"h", b"bighash", b"long")))))
        return command(*key, b"0", b"MATCH", pattern, b"COUNT", count)

    def _word(self, rng: Random, place: int) -> bytes:
        chance = rng.random()
        if place == 0 and chance < 0.8:
            return rng.choice(self._keys)
        if chance < 0.3:
            return rng.choice(self._fields)
        if chance < 0.55:
            return rng.choice(self._words)
        if chance < 0.7:
            return rng.choice(
                (b"0", b"1", b"-1", b"10", b"1e400", b"nan", b"inf", b"1.5", b"0x10", b"1_0", b" 1", b"\xd9\xa3")
            )
        if chance < 0.8:
            return str(rng.choice(ODD_NUMBERS)).encode()
        if chance < 0.9:
            return self._pattern(rng)
        if chance < 0.905:
            return rng.choice((b"9" * 5_000, b"x" * 60_000, b"v" * 1_000_000))
        return rng.choice((b"v", b"", b"\0\xff", b"text with spaces", rng.randbytes(4)))

    def _pattern(self, rng: Random) -> bytes:
        piece = rng.choice((b"?", b"?", b"a", b"*a", b"[a-z]", b"*", b"f", b"\\", b"[^:]"))
        return rng.choice((b"", b"*")) + piece * rng.choice((1, 1, 3, 3, 60, 4_000)) + rng.choice((b"", b"*", b"x*"))

    def play(self, case: Case, turns: Turns) -> None:
        self._played += 1
        if self._played % RECYCLED == 0:
            self._member = HeldMember()
        member = self._member
        member.begin(turns)
        flags = case[0][0] if case and case[0] else 0
        credentials = Credentials("a token of sixteen bytes", "") if flags & STRANGER else None
        server = RespServer(member.grid, credentials, ("redis0", "redis1"))
        talk = Conversation(member, server.connect(1, "127.0.0.1:9", Address("127.0.0.1:6379"), member.now))
        pieces = case[1:] if flags & APART else [b"".join(case[1:])]
        if flags & MANY_KEYS:
            talk.send(command(b"SELECT", b"1"))
        if flags & STRANGER:
            turns.run(talk.send_all, pieces)  # all that it may cost before it has shown who it is
        else:
            talk.send_all(pieces)
        talk.end()


TARGETS: dict[str, type[Target]] = {Resp.name: Resp}
