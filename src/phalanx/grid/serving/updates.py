"""What an `UpdateValue` does to the value of a key: the functions that every member has, by name.

A function gets the serialised value (None: the key has none) and the serialised arguments. It is pure: it runs once for
each call, at the owner, and backups get the value that came out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

from phalanx.codec.json_dicts import json_data, rows_data
from phalanx.codec.messagepack import Json
from phalanx.codec.values import from_data, to_data
from phalanx.common.config import NodeConfig
from phalanx.common.errors import PhalanxError
from phalanx.common.updates import ABSENT, REMOVE, NoValue, Update, UpdateFunction
from phalanx.common.updates import UNCHANGED as UNCHANGED_VALUE
from phalanx.common.words import quoted
from phalanx.grid.serving.redis_updates import HASHES, REDIS, json_of_hash
from phalanx.grid.serving.update_results import REMOVED, UNCHANGED, Updated, UpdateRefused, refusal_of

Function: TypeAlias = Callable[..., Updated]
"""A function of the serialised value (None: there is none) and the serialised arguments."""

ZERO: Final = to_data(0)
_NONE: Final = to_data(None)
INT_PREFIX: Final = ZERO[:4]
"""The type id of an int of 64 bits."""
INT_BYTES: Final = 12
_TRUE: Final = to_data(True)
_FALSE: Final = to_data(False)


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
        made = functions[name](None if value is None else rows_data(value), *arguments)
        if not isinstance(made.then, bytes):
            return made
        return Updated((json_of_hash if name in HASHES else json_data)(made.then), made.result)
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
            f"there is no function {quoted(name)} here; there are {', '.join(sorted(each for each in functions if each not in REDIS))}"
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
    number = from_data(data)
    if type(number) not in (int, float, Decimal):
        raise UpdateRefused(f"{what} is of type {type(number).__name__}: give an int, float or Decimal")
    return number  # type: ignore[no-any-return]  # its type is one of these


def _sum(one: Any, other: Any) -> Any:
    try:
        return one + other
    except TypeError:
        raise UpdateRefused(f"{type(one).__name__} and {type(other).__name__} have no sum: convert one") from None
    except ArithmeticError as error:
        raise UpdateRefused(f"the sum cannot be told ({type(error).__name__})") from None


def greatest(value: bytes | None, other: bytes) -> Updated:
    """Store the argument if there is no value, or a smaller one; return the value then."""
    return _extreme(value, other, lambda present, given: bool(given > present))


def smallest(value: bytes | None, other: bytes) -> Updated:
    """Store the argument if there is no value, or a greater one; return the value then."""
    return _extreme(value, other, lambda present, given: bool(given < present))


def _extreme(value: bytes | None, other: bytes, is_better: Callable[[Any, Any], bool]) -> Updated:
    if value is None:
        return Updated(other, other)
    present, given = from_data(value), from_data(other)
    try:
        better = is_better(present, given)
    except (TypeError, ArithmeticError):  # a Decimal can be no number
        kinds = f"{type(present).__name__} and {type(given).__name__}"
        raise UpdateRefused(f"the value and the argument ({kinds}) have no order") from None
    return Updated(other, other) if better else Updated(UNCHANGED, value)


# --- lists and dicts --------------------------------------------------------------------------------------------------


def append(value: bytes | None, *items: bytes) -> Updated:
    """Add items to a list, or to an empty one if there is none; return its length."""
    return _lengthened(value, [from_data(item) for item in items])


def extend(value: bytes | None, items: bytes) -> Updated:
    """Add the items of a list to a list, or to an empty one if there is none; return its length."""
    return _lengthened(value, _list(items, "the argument"))


def add_to_set(value: bytes | None, item: bytes) -> Updated:
    """Add an item to a list unless it is there, as serialised; return whether it was added."""
    present, wanted = _list(value, "the value"), from_data(item)
    if any(_is_same(each, wanted, item) for each in present):
        return Updated(UNCHANGED, _FALSE)
    return Updated(to_data([*present, wanted]), _TRUE)


def discard(value: bytes | None, item: bytes) -> Updated:
    """Remove an item from a list wherever it is, as serialised; return whether it was there."""
    present, wanted = _list(value, "the value"), from_data(item)
    left = [each for each in present if not _is_same(each, wanted, item)]
    return Updated(UNCHANGED, _FALSE) if len(left) == len(present) else Updated(to_data(left), _TRUE)


def _is_same(each: Any, wanted: Any, item: bytes) -> bool:
    """Whether an item of a list is the wanted one, as serialised: 1 is not True, and NaN is NaN. Values are not compared: some raise
    then."""
    return type(each) is type(wanted) and to_data(each) == item


def _lengthened(value: bytes | None, items: list[Any]) -> Updated:
    after = [*_list(value, "the value"), *items]
    return Updated(to_data(after) if items or value is None else UNCHANGED, to_data(len(after)))


def _list(data: bytes | None, what: str) -> list[Any]:
    found = [] if data is None else from_data(data)
    if type(found) is not list:
        raise UpdateRefused(f"{what} is of type {type(found).__name__}: it must be a list")
    return found


def merge(value: bytes | None, patch: bytes) -> Updated:
    """Merge a dict into a dict by the rules of JSON merge patch (RFC 7396): None removes a field, dicts are merged
    inside, anything else replaces what is there. Return the value then."""
    present, given = None if value is None else from_data(value), from_data(patch)
    if type(given) is not dict or isinstance(present, Json):
        which, found = ("the patch", given) if type(given) is not dict else ("the value", present)
        raise UpdateRefused(f"{which} is of type {type(found).__name__}: it must be a dict")
    after = to_data(_merged(present, given))
    return Updated(UNCHANGED if after == value else after, after)


def _merged(present: Any, patch: Any) -> Any:
    if type(patch) is not dict:
        return patch
    after = dict(present) if type(present) is dict else {}
    for name, given in patch.items():
        if given is None:
            after.pop(name, None)
        else:
            after[name] = _merged(after.get(name), given)
    return after


def of_program(name: str, function: UpdateFunction) -> Function:
    """Return a function of the program as one of serialised values."""

    def apply(value: bytes | None, *arguments: bytes) -> Updated:
        given = [from_data(argument) for argument in arguments]
        try:
            made = function(ABSENT if value is None else from_data(value), *given)
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
    return BUILT_IN | {name: of_program(name, function) for name, function in config.functions.items()}


AS_STORED: Final = frozenset({"get_and_put", "get_and_replace", "remove_if", "touch", *REDIS}) - HASHES
"""The functions that look at no dict, and those of the strings of Redis clients, to which JSON is a text."""
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
    **{name: function for name, (function, _) in REDIS.items()},
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
    **{name: (count, count) for name, (_, count) in REDIS.items()},
}
"""How many arguments each takes, at least and at most."""
