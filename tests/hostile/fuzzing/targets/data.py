"""What is stored and sent: serialised values, packed rows, Compact objects. The native functions do what the functions in Python do."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import ModuleType
from typing import Any
from unittest import mock

from hostile.fuzzing import values
from hostile.fuzzing.target import MIB, Case, Target, Turns, Wrong
from phalanx.codec import json_dicts, rows
from phalanx.codec import values as codec
from phalanx.codec.compact import COMPACT_READERS
from phalanx.codec.compact_schemas import stored_schema
from phalanx.codec.fields import UNREADABLE, fields_of, key_of
from phalanx.codec.native import NATIVE
from phalanx.common.errors import PhalanxError

READ_BYTES = 16 * 1024
"""Whoever reads a longer value takes its own time for it: dicts can have keys of one hash. Members look into it without building any."""
_read_any = codec.reader_of(COMPACT_READERS)


def outcome(function: Callable[..., Any], *arguments: Any) -> tuple[str, Any]:
    """Return what a function returns, or which error it ends with: `PhalanxError` and `ValueError` are right answers."""
    try:
        return "", function(*arguments)
    except (PhalanxError, ValueError) as error:
        return type(error).__name__, str(error)


def both(module: ModuleType, name: str, *arguments: Any) -> Any:
    """Return the outcome of a function that has a native version, if both have the same. Raises `Wrong`."""
    function = getattr(module, name)
    native = outcome(function, *arguments)
    if NATIVE is None:
        return native
    with mock.patch.object(module, "NATIVE", None):
        pure = outcome(function, *arguments)
    # Which of two faults is told can depend on how deep the stack is: the class of the error is compared, and not its text.
    if native[0] != pure[0] or (not native[0] and shown(native) != shown(pure)):
        raise Wrong(f"{name}: in native code {shown(native)[:300]}, in Python {shown(pure)[:300]}")
    return native


def shown(value: Any, depth: int = 0) -> str:
    """Return a text that tells values apart by type, also NaN and ints of any length, and not what is nested too deeply to tell."""
    if depth > 100:
        return "..."
    depth += 1
    if type(value) is int:
        return hex(value)
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(shown(each, depth) for each in value)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{shown(name, depth)}: {shown(each, depth)}' for name, each in value.items())}}}"
    return repr(value)


class Codec(Target):
    """Serialised values, read as programs and owners read them, and written again."""

    name = "codec"
    answer_bytes = MIB

    def make(self, rng: Random) -> Case:
        return [values.data(rng) for _ in range(rng.choice((1, 1, 1, 2, 4)))]

    def play(self, case: Case, turns: Turns) -> None:
        case = case[:8]
        if sum(map(len, case)) > 2 * MIB:
            return
        for data in case:
            turns.run(self._look, data)
            if len(data) <= READ_BYTES:
                turns.run(self._read, data)
        if len(case) > 1 and sum(map(len, case)) < 4_096:
            both(codec, "values_from_data", case)
            both(codec, "entries_from_data", list(range(len(case))), case)

    def _look(self, data: bytes) -> None:
        try:
            key_of(data)
            fields_of(data[4:], {"a", "f"})
        except (PhalanxError, *UNREADABLE):
            pass

    def _read(self, data: bytes) -> None:
        why, found = outcome(codec.from_data, data)
        if why not in ("", "CorruptDataError"):
            raise Wrong(f"from_data ended with {why}: {found}")
        outcome(json_dicts.rows_data, data)
        outcome(json_dicts.json_data, data)
        if why:
            return
        why, again = outcome(codec.to_data, found)
        if why not in ("", "SerializationError"):
            raise Wrong(f"to_data ended with {why}: {again}")
        if not why and shown(outcome(codec.from_data, again)[1]) != shown(found):
            raise Wrong("a value comes back as another one")


class Rows(Target):
    """The bytes of packed rows."""

    name = "rows"
    answer_bytes = MIB

    def make(self, rng: Random) -> Case:
        many = rng.choice((0, 1, 2, 3, 10))
        keys = [rng.randbytes(rng.randrange(12)) for _ in range(many)]
        return [rows.pack_rows(keys, [rng.randbytes(rng.randrange(30)) for _ in range(many)])]

    def play(self, case: Case, turns: Turns) -> None:
        data = b"".join(case)
        if len(data) > 4 * MIB:
            return
        turns.run(self._read, data)

    def _read(self, data: bytes) -> None:
        why, extents = outcome(rows.extents_of, data)
        why_count, count = outcome(rows.row_count, data)
        if why or why_count:
            if why not in ("", "BadRows"):
                raise Wrong(f"extents_of ended with {why}: {extents}")
            return
        if count > 20_000:
            return  # refused by its count
        why, found = both(rows, "unpack_rows", data)
        if why:
            if why != "BadRows":
                raise Wrong(f"unpack_rows ended with {why}: {found}")
            return
        keys, stored = found
        if len(keys) != len(stored) or len(keys) != count:
            raise Wrong(f"{len(keys)} keys, {len(stored)} values, {count} rows")
        both(rows, "pack_rows", keys, stored)
        if all(len(each) >= 8 for each in stored):
            both(rows, "greatest_head", data, 8)
        before: dict[bytes, bytes] = {}
        why, _ = outcome(rows.add_rows, before, data)
        if not why and before != dict(zip(keys, stored, strict=True)):
            raise Wrong("add_rows stored something else")
        outcome(rows.cut_rows, data, 64, 2)


class Compact(Target):
    """A schema as it is stored, and an object of it."""

    name = "compact"
    answer_bytes = MIB

    def make(self, rng: Random) -> Case:
        object_ = codec.prefix_of(-55) + rng.randbytes(8) + rng.randbytes(rng.choice((0, 4, 20, 60)))
        if rng.random() < 0.3:
            object_ = codec.prefix_of(rng.choice(range(-60, 0))) + rng.randbytes(rng.choice((0, 1, 4, 8, 30)))
        return [object_, values.data(rng)]

    def play(self, case: Case, turns: Turns) -> None:
        for data in case[:8]:
            outcome(stored_schema, data[:READ_BYTES])
            outcome(_read_any, data[:READ_BYTES])


TARGETS: dict[str, type[Target]] = {each.name: each for each in (Codec, Rows, Compact)}
