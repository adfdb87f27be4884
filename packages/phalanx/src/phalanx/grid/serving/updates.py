"""What an `UpdateValue` does to the value of a key: the functions that every member has, by name.

A function gets the serialised value (None: the key has none) and the serialised arguments. It is pure: it runs once for
each call, at the owner, and backups get the value that came out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeAlias

from phalanx.codec.bounds import MAX_COMPARED_BYTES, MAX_EDITED_BYTES
from phalanx.codec.containers import (
    DICT_BYTES,
    PackedList,
    check_json,
    check_parts,
    checked_items,
    checked_part,
    is_dict,
    is_list,
    merged,
    operand,
    packed_of,
)
from phalanx.codec.json_dicts import json_data, rows_data
from phalanx.codec.values import JSON_PREFIX, MSGPACK_PREFIX, from_checked_data, from_data, to_data
from phalanx.common.config import NodeConfig
from phalanx.common.errors import PhalanxError
from phalanx.common.updates import ABSENT, REMOVE, NoValue, Update, UpdateFunction
from phalanx.common.updates import UNCHANGED as UNCHANGED_VALUE
from phalanx.common.words import quoted
from phalanx.grid.serving.update_results import REMOVED, UNCHANGED, BroughtFunction, Updated, UpdateRefused, refusal_of

Function: TypeAlias = Callable[..., Updated]
"""A function of the serialised value (None: there is none) and the serialised arguments."""

ZERO: Final = to_data(0)
_NONE: Final = to_data(None)
INT_PREFIX: Final = ZERO[:4]
"""The type id of an int of 64 bits."""
INT_BYTES: Final = 12
_TRUE: Final = to_data(True)
_FALSE: Final = to_data(False)
_SUMS: Final = Context(prec=28, traps=[InvalidOperation, DivisionByZero, Overflow])
"""As Python's own: what a thread has set for itself must not change a sum."""
MAX_MERGED_BYTES: Final = 4 * MAX_EDITED_BYTES
"""The most bytes of dicts that one merge goes through: a dict within a dict is gone through with each of them."""


def apply_function(
    functions: Mapping[str, Function],
    name: str,
    value: bytes | None,
    arguments: list[bytes],
    *,
    json_dicts: bool = False,
) -> Updated:
    """Return what the function of that name makes of a value. `json_dicts`: the map stores dicts as JSON, so functions are
    given objects of JSON as dicts, and the dicts that they make are stored as JSON. Raises `UpdateRefused`, also if there is no
    such function or it takes other arguments."""
    check_call(functions, name, arguments)
    try:
        if not json_dicts or name in AS_STORED:
            return functions[name](value, *arguments)
        if value is not None and (name in READS_DICTS or name not in BUILT_IN):
            if name in READS_DICTS:
                check_json(value)
            value = rows_data(value)
        made = functions[name](value, *arguments)
        if not isinstance(made.then, bytes):
            return made
        if name in READS_DICTS:
            check_parts(made.then)
        brought = BROUGHT.get(name)
        json_of = (brought and brought.json_of) or json_data
        return Updated(json_of(made.then), made.result)
    except UpdateRefused:
        raise
    except PhalanxError as error:  # what is stored, or an argument, is not what `codec.values` writes
        raise UpdateRefused(str(error)) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a program's function can raise SystemExit, too
        raise refusal_of(UpdateRefused, name, error) from None


def check_call(functions: Mapping[str, Function], name: str, arguments: list[bytes]) -> None:
    """Raise `UpdateRefused` if there is no function of that name, or it takes another number of arguments."""
    if name not in functions:
        raise UpdateRefused(
            f"there is no function {quoted(name)} here; there are {', '.join(sorted(each for each in functions if each not in BROUGHT))}"
        )
    least, most = ARGUMENTS.get(name, (0, len(arguments)))
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise UpdateRefused(f"{name} was given {len(arguments)} arguments: it takes {wanted}")


# --- values as they are -----------------------------------------------------------------------------------------------


def get_and_put(value: bytes | None, new: bytes) -> Updated:
    """Store a value; return the one before."""
    return Updated(new, value)


def get_and_replace(value: bytes | None, new: bytes) -> Updated:
    """Store a value if the key has one; return the one before."""
    return Updated(UNCHANGED if value is None else new, value)


def remove_if(value: bytes | None, expected: bytes) -> Updated:
    """Remove the key if it has exactly the expected value; return whether it had."""
    return Updated(REMOVED, _TRUE) if value == expected else Updated(UNCHANGED, _FALSE)


def touch(value: bytes | None) -> Updated:
    """Write the value again, for the time to live of the request; return whether there is one."""
    return Updated(UNCHANGED, _FALSE) if value is None else Updated(value, _TRUE)


# --- numbers ----------------------------------------------------------------------------------------------------------


def increment(value: bytes | None, by: bytes, initial: bytes = ZERO) -> Updated:
    """Add a number to the value, or to the initial one (0) if there is none; return the sum. An initial None begins no number:
    nothing is stored then, and None is returned.

    The sum is as in Python: of int and float a float, of int and Decimal a Decimal, beyond 64 bits a longer int.
    """
    if value is None and initial == _NONE:
        return Updated(UNCHANGED, None)
    present = initial if value is None else value
    if present[:4] == by[:4] == INT_PREFIX and len(present) == len(by) == INT_BYTES:  # most numbers, and fast
        number = int.from_bytes(present[4:], "big", signed=True) + int.from_bytes(by[4:], "big", signed=True)
        if -(2**63) <= number < 2**63:
            total = INT_PREFIX + number.to_bytes(8, "big", signed=True)
            return Updated(total, total)
    total = to_data(_sum(_number(present, "the value"), _number(by, "by")))
    return Updated(total, total)


def _number(data: bytes, what: str) -> int | float | Decimal:
    number = operand(data, what)
    if type(number) not in (int, float, Decimal):
        raise UpdateRefused(f"{what} is of type {type(number).__name__}: give an int, float or Decimal")
    return number  # type: ignore[no-any-return]  # its type is one of these


def _sum(one: Any, other: Any) -> Any:
    _check_decimals(one, other)
    try:
        return _SUMS.add(one, other) if Decimal in (type(one), type(other)) else one + other
    except TypeError:
        raise UpdateRefused(f"{type(one).__name__} and {type(other).__name__} have no sum: convert one") from None
    except ArithmeticError as error:
        raise UpdateRefused(f"the sum cannot be told ({type(error).__name__})") from None


def _check_decimals(one: Any, other: Any) -> None:
    """Raise `UpdateRefused` for a Decimal and an int that becomes one in time by the square of its length."""
    if Decimal not in (type(one), type(other)):
        return
    longest = max(each.bit_length() for each in (one, other, 0) if type(each) is int)
    if longest > 8 * MAX_COMPARED_BYTES:
        raise UpdateRefused(
            f"an int of {longest // 8:,} bytes and a Decimal: up to {MAX_COMPARED_BYTES:,} are compared and added"
        )


def greatest(value: bytes | None, other: bytes) -> Updated:
    """Store the argument if there is no value, or a smaller one; return the value then."""
    return _extreme(value, other, lambda present, given: bool(given > present))


def smallest(value: bytes | None, other: bytes) -> Updated:
    """Store the argument if there is no value, or a greater one; return the value then."""
    return _extreme(value, other, lambda present, given: bool(given < present))


def _extreme(value: bytes | None, other: bytes, is_better: Callable[[Any, Any], bool]) -> Updated:
    given = operand(other, "the argument")
    if value is None:
        return Updated(other, other)
    present = operand(value, "the value")
    _check_decimals(present, given)
    try:
        better = is_better(present, given)
    except (TypeError, ArithmeticError):  # a Decimal can be no number
        kinds = f"{type(present).__name__} and {type(given).__name__}"
        raise UpdateRefused(f"the value and the argument ({kinds}) have no order") from None
    return Updated(other, other) if better else Updated(UNCHANGED, value)


# --- lists and dicts --------------------------------------------------------------------------------------------------


def append(value: bytes | None, *items: bytes) -> Updated:
    """Add items to a list, or to an empty one if there is none; return its length."""
    present = _list(value, "the value")
    what = "an item" if len(items) == 1 else "the items"
    return _lengthened(value, present.with_items(len(items), checked_items(items, what)))


def extend(value: bytes | None, items: bytes) -> Updated:
    """Add the items of a list to a list, or to an empty one if there is none; return its length."""
    present, given = _list(value, "the value"), _list(items, "the argument")
    checked_part(items, "the argument", 0)
    after = present.with_items(given.count, [given.body])
    return _lengthened(value, after) if given.count or value is None else Updated(UNCHANGED, to_data(present.count))


def add_to_set(value: bytes | None, item: bytes) -> Updated:
    """Add an item to a list unless it is there, as serialised: 1 is not True. Return whether it was added."""
    present, wanted = _list(value, "the value"), checked_part(item, "the item", 1)
    if present.has(wanted):
        return Updated(UNCHANGED, _FALSE)
    return Updated(present.with_items(1, [wanted]).data("the list"), _TRUE)


def discard(value: bytes | None, item: bytes) -> Updated:
    """Remove an item from a list wherever it is, as serialised; return whether it was there."""
    present = _list(value, "the value")
    left = present.without(packed_of(item, "the item"))
    return Updated(UNCHANGED, _FALSE) if left.count == present.count else Updated(left.data("the list"), _TRUE)


def _lengthened(value: bytes | None, after: PackedList) -> Updated:
    return Updated(after.data("the list"), to_data(after.count))


def _list(data: bytes | None, what: str) -> PackedList:
    found = PackedList(0, b"") if data is None else PackedList.of(packed_of(data, what), what)
    if found is None:
        raise UpdateRefused(f"{what} is of type {_type_of(data)}: it must be a list")
    return found


def _type_of(data: bytes | None) -> str:
    """Return the type of a value, which is not read if it is a list or a dict."""
    if data is not None and data[:4] == MSGPACK_PREFIX and (is_dict(data[4:5]) or is_list(data[4:5])):
        return "dict" if is_dict(data[4:5]) else "list"
    return type(None if data is None else from_data(data)).__name__


def merge(value: bytes | None, patch: bytes) -> Updated:
    """Merge a dict into a dict by the rules of JSON merge patch (RFC 7396): None removes a field, dicts are merged
    inside, anything else replaces what is there. Return the value then."""
    given = checked_part(patch, "the patch", 0)
    if not is_dict(given):
        raise UpdateRefused(f"the patch is of type {_type_of(patch)}: it must be a dict")
    if value is not None and value[:4] == JSON_PREFIX:
        raise UpdateRefused("the value is of type Json: it must be a dict")
    left = MAX_MERGED_BYTES

    def spend(many: int) -> None:
        nonlocal left
        left -= many
        if left < 0:
            raise UpdateRefused(
                f"to merge the dicts within these, more than {MAX_MERGED_BYTES:,} bytes are to be gone through (each dict counts as "
                f"{DICT_BYTES} at least): merge fewer at once, or into flatter ones"
            )

    present = None if value is None else packed_of(value, "the value")
    after = merged(present, given, spend).data("the dict")
    return Updated(UNCHANGED if after == value else after, after)


def of_program(name: str, function: UpdateFunction) -> Function:
    """Return a function of the program as one of serialised values."""

    def apply(value: bytes | None, *arguments: bytes) -> Updated:
        given = [from_checked_data(argument) for argument in arguments]
        present = ABSENT if value is None else from_checked_data(value)
        try:
            made = function(present, *given)
        except (Exception, SystemExit) as error:
            raise UpdateRefused(f"{name} raised {type(error).__name__}{_said(error)}") from None
        if isinstance(made, NoValue):
            made = Update(made)
        if not isinstance(made, Update):
            kind = type(made).__name__
            raise UpdateRefused(f"{name} returned {kind}: it must return phalanx.Update, REMOVE or UNCHANGED")
        result = None if made.result is None else to_data(made.result)
        is_gone = made.value is REMOVE or made.value is ABSENT
        if made.value is UNCHANGED_VALUE or (is_gone and value is None):
            return Updated(UNCHANGED, result)
        return Updated(REMOVED if is_gone else to_data(made.value), result)

    return apply


def _said(error: BaseException) -> str:
    try:
        return f": {quoted(str(error))}"
    except Exception:  # its text is made by a program, too
        return ""


def functions_of(config: NodeConfig) -> Mapping[str, Function]:
    """Return the functions that a member has: those of every member, and its own."""
    limit = config.max_value_bytes
    limited = {name: partial(each.apply, max_value_bytes=limit) for name, each in BROUGHT.items() if each.is_limited}
    own = {name: of_program(name, function) for name, function in config.functions.items()}
    return BUILT_IN | limited | own


def _brought() -> dict[str, BroughtFunction]:
    """Return the functions of other packages, as far as these are installed."""
    found: dict[str, BroughtFunction] = {}
    for module in BRINGING:
        if find_spec(module.partition(".")[0]) is not None:
            found |= import_module(module).FUNCTIONS
    return found


BRINGING: Final = ("phalanx_protocols.redis_functions",)
"""Modules that bring functions for clients of other systems."""
BROUGHT: Final = _brought()
"""Their functions, by name. Every member that owns entries needs them, if clients of that system are served by any: so these packages
are installed at all members, or at none."""
AS_STORED: Final = frozenset(
    {
        "get_and_put",
        "get_and_replace",
        "remove_if",
        "touch",
        *(name for name, each in BROUGHT.items() if each.json_of is None),
    }
)
"""The functions that look at no dict; to them, JSON is a text."""
READS_DICTS: Final = frozenset({"merge", *BROUGHT}) - AS_STORED
"""The functions that look into dicts, so that objects of JSON are dicts to them."""
CONTAINER_FUNCTIONS: Final = frozenset({"add_to_set", "append", "discard", "extend", *READS_DICTS})
"""The functions that go through a list or a dict: of those here they take longest."""
BUILT_IN: Final[dict[str, Function]] = {
    "add_to_set": add_to_set,
    "append": append,
    "discard": discard,
    "extend": extend,
    "get_and_put": get_and_put,
    "get_and_replace": get_and_replace,
    "increment": increment,
    "max": greatest,
    "merge": merge,
    "min": smallest,
    "remove_if": remove_if,
    "touch": touch,
    **{name: each.apply for name, each in BROUGHT.items()},
}
"""The functions that every member has."""
ARGUMENTS: Final[Mapping[str, tuple[int, int]]] = {
    "add_to_set": (1, 1),
    "append": (1, 64),
    "discard": (1, 1),
    "extend": (1, 1),
    "get_and_put": (1, 1),
    "get_and_replace": (1, 1),
    "increment": (1, 2),
    "max": (1, 1),
    "merge": (1, 1),
    "min": (1, 1),
    "remove_if": (1, 1),
    "touch": (0, 0),
    **{name: (each.arguments, each.arguments) for name, each in BROUGHT.items()},
}
"""How many arguments each takes, at least and at most."""
