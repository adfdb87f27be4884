"""What owners and doors evaluate for callers: functions of updates, conditions on the wire and as text, patterns of keys."""

from __future__ import annotations

import string
from random import Random
from typing import ClassVar

import msgspec

from hostile.fuzzing import values
from hostile.fuzzing.changes import ODD_NUMBERS
from hostile.fuzzing.target import MIB, Case, Target, Turns, Wrong
from phalanx.codec.values import to_data
from phalanx.common.clock import STAMP_BYTES
from phalanx.common.errors import PhalanxError, UsageError
from phalanx.grid.serving.conditions import BadCondition, wanted_by
from phalanx.grid.serving.update_results import UpdateRefused
from phalanx.grid.serving.updates import ARGUMENTS, BUILT_IN, apply_function
from phalanx.maps.glob import Pattern
from phalanx.maps.where import conditions_of
from phalanx.wire.conditions import Condition, Kind, Relation

_condition = msgspec.msgpack.Decoder(Condition)
_conditions = msgspec.msgpack.Encoder()
STAMP = bytes(STAMP_BYTES)


class Functions(Target):
    """The function, whether there is a value, the value, and the arguments."""

    name = "functions"
    answer_bytes: ClassVar[int] = MIB
    _names = tuple(sorted(BUILT_IN))
    _plain = tuple(name for name in _names if not name.startswith("redis"))

    def make(self, rng: Random) -> Case:
        name = rng.choice(self._plain if rng.random() < 0.7 else self._names)
        least, most = ARGUMENTS[name]
        count = rng.randrange(least, min(most, least + 3) + 1)
        return [
            name.encode(),
            rng.choice((b"", b"", b"j")),
            self._data(rng, name),
            *(values.argument(rng, name) for _ in range(count)),
        ]

    def answer_bytes_of(self, case: Case) -> int:
        # As in Redis, SETRANGE makes a value as long as its offset says; the owner refuses one over `max_value_bytes`.
        return 64 * MIB if case[:1] == [b"redis.set_range"] else self.answer_bytes

    def _data(self, rng: Random, name: str) -> bytes:
        if rng.random() < 0.1:
            return b""
        kind = values.FUNCTION_KINDS.get(name)
        if kind is None or rng.random() < 0.3:
            return values.data(rng)
        return to_data(values.of_kind(rng, kind))

    def play(self, case: Case, turns: Turns) -> None:
        if len(case) < 3:
            return
        name, mark, present, *arguments = case
        if len(arguments) > 64 or sum(map(len, case)) > 3 * MIB:
            return
        value = present or None
        try:
            made = apply_function(BUILT_IN, name.decode("latin-1"), value, arguments, json_dicts=mark == b"j")
        except UpdateRefused:
            return
        if not (made.result is None or type(made.result) is bytes):
            raise Wrong(f"{name!r} answered {type(made.result).__name__}")


class Conditions(Target):
    """A key, a value, and conditions as members get them; the first byte says how they are judged."""

    name = "conditions"
    answer_bytes: ClassVar[int] = MIB
    _kinds = tuple(int(kind) for kind in Kind)
    _relations = tuple(int(relation) for relation in Relation)

    def make(self, rng: Random) -> Case:
        how = bytes([rng.randrange(12)])
        key = to_data(values.scalar(rng)) if rng.random() < 0.9 else values.data(rng)
        return [how, key, values.data(rng), *(self._condition(rng) for _ in range(rng.choice((1, 1, 1, 2, 5))))]

    def _condition(self, rng: Random) -> bytes:
        part = rng.choice((-1, -1, -1, 0, 1))
        path = (
            ()
            if part >= 0
            else tuple(rng.choice(("value", "a", "f", "é", "")) for _ in range(rng.choice((1, 1, 2, 3))))
        )
        many = rng.choice((0, 1, 1, 1, 1, 2, 5))
        literals = tuple(values.data(rng) for _ in range(many))
        made = (part, path, rng.choice(self._kinds), rng.choice(self._relations), literals, rng.random() < 0.3)
        return _conditions.encode(made)

    def play(self, case: Case, turns: Turns) -> None:
        if len(case) < 3 or not case[0]:
            return
        how, key, value, *written = case
        if len(value) > MIB:
            return
        found: list[Condition] = []
        for each in written:
            try:
                found.append(_condition.decode(each))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                return  # the decoder of a frame refuses it
        how_byte = how[0]
        try:
            wanted = turns.run(
                lambda: wanted_by(found, 1 + how_byte % 3, judge_all=bool(how_byte & 4), surely=bool(how_byte & 8))
            )
        except BadCondition:
            return
        answer = turns.run(wanted, key, STAMP + value)
        if type(answer) is not bool:
            raise Wrong(f"a condition answered {answer!r}")


class Where(Target):
    """A condition as text."""

    name = "where"
    answer_bytes: ClassVar[int] = MIB
    _pieces = (
        "price", "key", "value", "a.b", '"a b"', '"', "'", "'Oslo'", "''", "10", "-1.5e3", "1e", "1e400", ".5", "5.", "+", "-", "and", "AND",
        "not", "in", "is", "null", "starts", "with", "true", "false", "=", "==", "!=", "<>", "<", "<=", ">", ">=", "(", ")", ",", ".", "\\",
        "é", "\0", "\u2028", "\u0663", "_", "1_000",
    )  # fmt: skip
    _runs = (
        "1",
        "a",
        "'",
        '"',
        "''",
        '""',
        ".",
        "a.",
        " ",
        "\t",
        "(",
        "1,",
        "a=1 and ",
        "1.",
        "1e1",
        "-",
        "\u0663",
        "\u3000",
    )

    def make(self, rng: Random) -> Case:
        if rng.random() < 0.02:
            return [
                (rng.choice(self._runs) * rng.choice((100, 2_000, 4_095, 16_000)) + rng.choice(self._pieces)).encode()
            ]
        if rng.random() < 0.3:
            return [self._sensible(rng).encode()]
        space = rng.choice((" ", " ", "", "\n"))
        return [space.join(rng.choice(self._pieces) for _ in range(rng.randrange(1, 12))).encode()]

    def _sensible(self, rng: Random) -> str:
        name = rng.choice(("price", "a.b.c", "key", "value", '"odd name"'))
        literal = rng.choice(("1", "'text'", "true", "1.5", "-3", "1e9", str(rng.choice(ODD_NUMBERS))))
        end = rng.choice(
            (f"= {literal}", f"<> {literal}", f"not in ({literal}, {literal})", "is not null", "starts with 'x'")
        )
        more = " and " + self._sensible(rng) if rng.random() < 0.3 else ""
        return f"{name} {end}{more}"

    def play(self, case: Case, turns: Turns) -> None:
        text = b" ".join(case).decode("utf-8", "surrogateescape" if len(case) % 2 else "replace")
        try:
            found = conditions_of(text)
        except UsageError:
            return
        for each in found:
            if _condition.decode(_conditions.encode(each)) != each:
                raise Wrong(f"{text!r}: what is sent of it is read as something else")

    def change(self, rng: Random, case: Case) -> Case | None:
        words = b" ".join(case).split(b" ")
        words[rng.randrange(len(words))] = rng.choice(self._pieces).encode()
        return [b" ".join(words)]


class Glob(Target):
    """A pattern of Redis, and a text."""

    name = "glob"
    answer_bytes: ClassVar[int] = MIB
    _pieces = (
        b"*",
        b"?",
        b"a",
        b"b",
        b"[a-c]",
        b"[^a]",
        b"[",
        b"]",
        b"\\",
        b"\\*",
        b"[^",
        b"[]",
        b"[a-",
        b"-",
        b"ab",
        b"\xff",
        b"\n",
    )

    def make(self, rng: Random) -> Case:
        many = rng.choice((1, 2, 4, 8, 16))
        pattern = b"".join(rng.choice(self._pieces) for _ in range(many))
        letters = rng.choice((b"ab", string.printable.encode(), bytes(range(256))))
        text = bytes(rng.choice(letters) for _ in range(rng.choice((0, 1, 4, 16))))
        if rng.random() < 0.01:
            unit = rng.choice((pattern, rng.choice(self._pieces)))
            pattern = (
                rng.choice((b"", b"*"))
                + unit * (rng.choice((500, 2_000, 4_090)) // len(unit))
                + rng.choice((b"", b"*", b"c", b"c*"))
            )
            text = rng.choice((b"a", b"ab", b"b", b"aaab", text or b"a")) * rng.choice((100, 1_000, 10_000))
        return [pattern[: rng.choice((4_096, 4_096, 4_097))], text]

    def play(self, case: Case, turns: Turns) -> None:
        pattern, text = (*case, b"", b"")[:2]
        if len(text) > 64 * 1024:  # a key is no longer
            return
        try:
            compiled = turns.run(Pattern, pattern)
        except PhalanxError:
            return
        found = turns.run(compiled.matches, text)
        if len(pattern) + len(text) <= 40 and found != fits(pattern, text):
            raise Wrong(f"{pattern!r} and {text!r}: {found}")


def fits(pattern: bytes, text: bytes) -> bool:
    """The slow twin: does a text fit a pattern?"""
    places = {0}
    at = 0
    while at < len(pattern):
        char = pattern[at : at + 1]
        at += 1
        if char == b"*":
            places = set(range(min(places), len(text) + 1)) if places else places
            continue
        members: set[int] | None = None
        is_not = False
        if char == b"[":
            members, is_not, at = _class(pattern, at)
        elif char != b"?":
            if char == b"\\" and at < len(pattern):
                char = pattern[at : at + 1]
                at += 1
            members = {char[0]}
        places = {
            place + 1
            for place in places
            if place < len(text) and (members is None or (text[place] in members) is not is_not)
        }
    return len(text) in places


def _class(pattern: bytes, at: int) -> tuple[set[int], bool, int]:
    is_not = pattern[at : at + 1] == b"^"
    at += is_not
    members: set[int] = set()
    while at < len(pattern) and pattern[at] != ord("]"):
        if pattern[at] == ord("\\") and at + 1 < len(pattern):
            at += 1
        first = last = pattern[at]
        if pattern[at + 1 : at + 2] == b"-" and at + 2 < len(pattern):
            last = pattern[at + 2]
            at += 2
        members |= set(range(min(first, last), max(first, last) + 1))
        at += 1
    return members, is_not, at + 1


TARGETS: dict[str, type[Target]] = {each.name: each for each in (Functions, Conditions, Where, Glob)}
