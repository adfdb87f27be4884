"""Record a frame of every type of message of this tree's protocol: `./run python -m tests.support.record_frames`.

The frames of a protocol are recorded when it is first released, into tests/releases/frames/N.json, and never again: what
differs later is another protocol. Every field has a value that is not its default, so that none can change unnoticed.
`tests/wire/test_frames.py` holds that later builds read them all, and write them as they are.
"""

from __future__ import annotations

import enum
import json
import sys
import types
import typing
from pathlib import Path
from typing import Any, get_args

import msgspec

from phalanx.wire.messages import PROTOCOL_VERSION, Handshake, Message

from .roots import TESTS

FRAMES = TESTS / "releases" / "frames"
MAX_DEPTH = 6


def example(kind: Any, depth: int = 0) -> Any:
    """Return a value of a type; the same one each time, and no default."""
    origin, arguments = typing.get_origin(kind), get_args(kind)
    if hasattr(kind, "__supertype__"):
        return example(kind.__supertype__, depth)
    if origin is typing.Annotated:
        return example(arguments[0], depth)
    if origin in (typing.Union, types.UnionType):
        return example(next(each for each in arguments if each is not type(None)), depth)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return (example(arguments[0], depth + 1),) if depth < MAX_DEPTH else ()
        return tuple(example(each, depth + 1) for each in arguments)
    if origin in (list, set, frozenset):
        return [example(arguments[0], depth + 1)] if depth < MAX_DEPTH else []
    if origin is dict:
        return {example(arguments[0], depth + 1): example(arguments[1], depth + 1)}
    if isinstance(origin or kind, type) and issubclass(origin or kind, msgspec.Struct):
        return struct(kind, depth)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return list(kind)[-1]
    if isinstance(kind, type) and issubclass(kind, tuple):
        hints = typing.get_type_hints(kind)
        return kind(*(example(hints[name], depth + 1) for name in kind._fields))  # type: ignore[attr-defined]  # a named tuple
    plain: dict[Any, Any] = {int: 3, str: "text", bytes: b"bytes", bool: True, float: 1.5, Any: 5, object: 5}
    return plain[kind]


def struct(kind: type[msgspec.Struct], depth: int = 0) -> Any:
    """Return a struct with a value of each field; a flag is the opposite of its default."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        is_flag = field.type is bool and isinstance(field.default, bool)
        values[field.name] = not field.default if is_flag else example(field.type, depth + 1)
    return kind(**values)


def frames(union: Any = Handshake | Message) -> dict[str, str]:
    """Return a frame of each type of message, by its name: MessagePack in hexadecimal digits."""
    kinds = sorted(set(get_args(union)), key=lambda kind: int(kind.__struct_config__.tag))
    return {kind.__name__: msgspec.msgpack.encode(struct(kind)).hex() for kind in kinds}


def keep(path: Path, text: str, what: str, number: str) -> int:
    """Write what is recorded of a version, and refuse to change it. Return the status. `what`: it has; `number`: is raised for another one."""
    if path.exists() and path.read_text() != text and "--again" not in sys.argv:
        print(f"{path} is recorded and differs: raise {number}; not released yet: --again", file=sys.stderr)
        return 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(f"{path}: {what}")
    return 0


def main() -> int:
    """Write the frames of this tree's protocol; refuse to change recorded ones."""
    found = frames()
    text = json.dumps(found, indent=1) + "\n"
    path = FRAMES / f"{PROTOCOL_VERSION}.json"
    return keep(path, text, f"{len(found)} types of messages", "PROTOCOL_VERSION (HACKING.md)")


if __name__ == "__main__":
    sys.exit(main())
