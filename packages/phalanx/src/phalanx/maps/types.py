"""Maps that know the types of their keys and values: what a program gives is stored as plain values, and comes back as it was.

Types are the caller's affair: members, other programs and Spark see plain values (a dict for a dataclass). Here, at the edge,

* a value to be stored is validated and made plain (`declared_types`): by msgspec, a Pydantic model by itself. What would not come back as it was
  is refused (`sameness`). What is equal is stored as equal bytes: numbers get the type of their field, and sets are sorted.
* a stored value is validated and made an object of the type. One that does not fit is an error, never another type.

Without types nothing of this happens (`UNTYPED`): then the functions are those of `codec.values`. Where dicts are stored as JSON
(`dict_formats`), a value is made of what JSON has, with types and without (`codec.json_dicts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from phalanx.codec.compact import COMPACT_READERS, from_any_data
from phalanx.codec.json_dicts import STAY, from_json, json_reader, json_writer
from phalanx.codec.messagepack import Json
from phalanx.codec.values import (
    READERS,
    entries_from_data,
    from_key_data,
    keys_to_data,
    plain_keys_to_data,
    reader_of,
    to_data,
    to_key_data,
    values_to_data,
)
from phalanx.common.errors import StoredTypeError, UnknownSchema
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_schema import MapSchema, read_schema
from phalanx.common.words import quoted
from phalanx.maps.declared_types import DeclaredType, argument_to_plain
from phalanx.maps.dict_formats import DictChoice
from phalanx.maps.equal_keys import check_fit_in_dict, check_stored_apart

K = TypeVar("K")
V = TypeVar("V")

REMEMBERED_MAPS: Final = 1_000
"""The most maps without types that a client or member remembers."""


class MapTypes(Generic[K, V]):
    """How the keys and values of one map are serialised, and restored."""

    def __init__(self) -> None:
        self.key_data: Callable[[object], bytes] = to_key_data
        """Serialise a key. Raises `UsageError`."""
        self.value_data: Callable[[object], bytes] = to_data
        """Serialise a value. Raises `UsageError`."""
        self.argument_data: Callable[[object], bytes] = to_data
        """Serialise an argument of a function. Raises `UsageError`."""
        self.plain_key: Callable[[Any], Any] = _same
        """Make a key as it is stored. Raises `UsageError`."""
        self.key_of: Callable[[bytes], K] = from_key_data
        """Restore a key. Raises `StoredTypeError`."""
        self.value_of: Callable[[bytes], V] = from_any_data
        """Restore a value. Raises `StoredTypeError`, and `UnknownSchema` if a Compact object cannot be read yet."""
        self.from_plain: Callable[[Any], V] = _same
        """Make a value of what is stored. Raises `StoredTypeError`."""
        self.entries_of: Callable[[Sequence[Any], Sequence[bytes | None]], dict[Any, Any]] = _entries_of
        """Return the keys that have data, and their values. Raises what `value_of` raises."""
        self.plain_of: Callable[[bytes], Any] = from_any_data
        """Restore a value without its type."""
        self.stored_of: Callable[[bytes], Any] = from_any_data
        """Restore a value as it is stored: JSON stays JSON."""
        self.knows_settings: Callable[[], bool] = lambda: True
        """Return whether the settings of the map are known, which can come with the first table."""
        self.follows_settings = False
        """Whether the settings of the map count."""
        self.shown = ""
        """The types, as behind the name in the representation of a map; empty: any."""
        self.schema: Callable[[], MapSchema | None] = lambda: None
        """Return the schema of the map's rows, None: it has none. Raises `UnavailableError` if its settings are not known."""

    def depends_on_settings(self, value: Any) -> bool:
        """Return whether the map's settings must be known to serialise the value."""
        return False

    def entries_data(self, entries: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> tuple[list[bytes], list[bytes]]:
        """Return the serialised keys and values of entries; of pairs with one key the last counts, as in a dict. Raises `UsageError`,
        also if two keys that are not equal are stored as one."""
        if isinstance(entries, Mapping):
            usual: Mapping[Any, Any] | None = entries
        else:
            pairs = list(entries)
            usual = _as_dict(pairs)
        if usual is not None:
            return self._checked_keys_data(list(usual), check_stored_apart), self.values_data(list(usual.values()))
        keys = self._checked_keys_data([key for key, _ in pairs], check_stored_apart)
        last = dict(zip(keys, self.values_data([value for _, value in pairs]), strict=True))
        return list(last), list(last.values())

    def distinct_keys_data(self, keys: list[Any]) -> list[bytes]:
        """Serialise the keys of a dict. Raises `UsageError`, also if a dict cannot hold them as the grid does (`equal_keys`)."""
        return self._checked_keys_data(keys, check_fit_in_dict)

    def _checked_keys_data(
        self, keys: list[Any], check: Callable[[Sequence[Any], Sequence[bytes]], None]
    ) -> list[bytes]:
        """Serialise keys, and check those that are not plain. Raises `UsageError`, also what `check` raises."""
        datas = self.plain_keys_data(keys)
        if datas is None:
            datas = self.keys_data(keys)
            check(keys, datas)
        return datas

    def plain_keys_data(self, keys: list[Any]) -> list[bytes] | None:
        """Serialise keys as `plain_keys_to_data` does; None: it does not, or they are converted before they are stored."""
        return plain_keys_to_data(keys)

    def keys_data(self, keys: list[Any]) -> list[bytes]:
        """Serialise keys. Raises `UsageError`."""
        return keys_to_data(keys)

    def values_data(self, values: list[Any]) -> list[bytes]:
        """Serialise values. Raises `UsageError`."""
        return values_to_data(values)


class _Untyped(MapTypes[Any, Any]):
    """The same for any keys and values, where dicts can be stored as JSON."""

    def __init__(self, choice: DictChoice) -> None:
        super().__init__()

        def read_json(found: Json) -> Any:
            return from_json(found) if choice.check_format() else found

        # None of these functions knows `self`: a program can make a map for each call, and none should be garbage of a cycle.
        self.value_data = json_writer(choice.check_format)
        self.value_of = self.plain_of = value_of = json_reader(read_json, {**READERS, **COMPACT_READERS})
        self.stored_of = reader_of({**READERS, **COMPACT_READERS})
        self.from_plain = lambda plain: read_json(plain) if type(plain) is Json else plain
        self.entries_of = lambda keys, datas: entries_from_data(keys, datas, value_of)
        self.knows_settings, self.follows_settings = choice.knows_setting, True

    def depends_on_settings(self, value: Any) -> bool:
        return type(value) not in STAY

    def values_data(self, values: list[Any]) -> list[bytes]:
        return values_to_data(values, self.value_data)


class _Typed(MapTypes[K, V]):
    """The same for a map with types."""

    def __init__(self, map_name: str, key: Any, value: Any, choice: DictChoice) -> None:
        super().__init__()
        self._stored = stored = _Untyped(choice)
        self._choice = choice
        self._key, self._as_rows = DeclaredType(map_name, "key", key), DeclaredType(map_name, "value", value)
        self.shown = f", key={self._key.name}, value={self._as_rows.name}"
        self._as_json = self._as_rows if self._as_rows.is_simple else DeclaredType(map_name, "value", value, ())
        self._key.check_key()
        self.key_data = lambda key: to_key_data(self._key.to_plain(key))
        self.value_data = lambda value: stored.value_data(self._value().to_plain(value))
        self.argument_data = lambda argument: to_data(argument_to_plain(argument))
        self.plain_key = self._key.to_plain
        self.key_of = lambda data: self._key.from_plain(from_key_data(data))
        self.value_of = lambda data: self._value().from_plain(stored.value_of(data))
        self.from_plain = lambda plain: self._value().from_plain(stored.from_plain(plain))
        self.entries_of, self.plain_of, self.stored_of = self._entries_of, stored.value_of, stored.stored_of
        self.knows_settings, self.follows_settings = choice.knows_setting, True

    def depends_on_settings(self, value: Any) -> bool:
        return not self._as_rows.is_simple or self._stored.depends_on_settings(value)

    def _value(self) -> DeclaredType:
        """Return the type of values: what JSON has not is text where dicts are JSON."""
        as_rows, as_json = self._as_rows, self._as_json
        return as_json if as_json is not as_rows and self._choice.check_format() else as_rows

    def plain_keys_data(self, keys: list[Any]) -> list[bytes] | None:
        return None

    def keys_data(self, keys: list[Any]) -> list[bytes]:
        return keys_to_data([self._key.to_plain(key) for key in keys])

    def values_data(self, values: list[Any]) -> list[bytes]:
        to_plain = self._value().to_plain
        return self._stored.values_data([to_plain(value) for value in values])

    def _entries_of(self, keys: Sequence[Any], datas: Sequence[bytes | None]) -> dict[Any, Any]:
        found, from_plain = self._stored.entries_of(keys, datas), self._value().from_plain
        return {key: from_plain(plain) for key, plain in found.items()}


def of_key(error: StoredTypeError | UnknownSchema, key: object) -> StoredTypeError | UnknownSchema:
    """Return the error of reading one value, with its key."""
    text = f"{error}; of the key {quoted(key)}"
    return UnknownSchema(error.schema_id, text) if isinstance(error, UnknownSchema) else StoredTypeError(text)


class TypesOfMaps:
    """Makes the types of the maps of one client or member, and remembers those without: programs make maps for single calls."""

    def __init__(self, plan: Callable[[], MapPlan]) -> None:
        """`plan`: returns the settings of all maps."""
        self._plan = plan
        self._untyped: dict[tuple[str, str | None], MapTypes[Any, Any]] = {}

    def of(self, map_name: str, key: Any, value: Any, dicts: str | None) -> MapTypes[Any, Any]:
        """Return what `types_of` does. Raises `UsageError` as it does."""
        if key is not None or value is not None:
            return types_of(map_name, key, value, dicts, self._plan)
        if (found := self._untyped.get((map_name, dicts))) is None:
            if len(self._untyped) >= REMEMBERED_MAPS:
                self._untyped.clear()
            found = self._untyped[map_name, dicts] = types_of(map_name, None, None, dicts, self._plan)
        return found


def types_of(
    map_name: str,
    key: Any,
    value: Any,
    dicts: str | None = None,
    plan: Callable[[], MapPlan] = MapPlan,
) -> MapTypes[Any, Any]:
    """Return how a map of these types is read and written; None: any. `dicts`: how dicts are stored; None: as the map's setting
    says. `plan`: returns the settings of all maps; left out: no map has any. Raises `UsageError` for a type that cannot be."""
    choice = DictChoice(map_name, dicts, plan)
    made: MapTypes[Any, Any]
    if key is None and value is None:
        made = _Untyped(choice)
    else:
        made = _Typed(map_name, Any if key is None else key, Any if value is None else value, choice)
    made.schema = lambda: read_schema(text) if (text := plan().of(map_name).schema) else None
    return made


def _as_dict(pairs: list[tuple[Any, Any]]) -> dict[Any, Any] | None:
    """Return pairs as a dict; None: it holds fewer than there are, and the grid perhaps holds more."""
    try:
        made = dict(pairs)
    except (TypeError, ValueError):
        return None  # keys that a dict cannot have, or no pairs
    return made if len(made) == len(pairs) else None


def _entries_of(keys: Sequence[Any], datas: Sequence[bytes | None]) -> dict[Any, Any]:
    return entries_from_data(keys, datas, from_any_data)


def _same(value: Any) -> Any:
    return value


UNTYPED: Final[MapTypes[Any, Any]] = MapTypes()
