"""Entry processors: functions that members know by name, called at the owner of a key.

No code travels. A client sends an object of its identified serialisation (type -2) with this factory and class: the name of the
function, the number of arguments, and the arguments, each with its type id.
"""

from __future__ import annotations

from typing import Any, Final

from phalanx.codec.messagepack import Corruption
from phalanx.codec.public_types import PublicReader
from phalanx.codec.values import MSGPACK_TYPE_ID
from phalanx.common.errors import PhalanxError, UsageError
from phalanx.maps.answer_budget import AnswerBudget, AnswerTooLarge
from phalanx.maps.call_plans import CallPlan
from phalanx.maps.map_plans import MapPlans
from phalanx.maps.requests import expect
from phalanx.wire.limits import MAX_ARGUMENTS, MAX_KEYS
from phalanx.wire.messages import UpdateValue, ValueReply
from phalanx_protocols.hazelcast.answers import entries
from phalanx_protocols.hazelcast.errors import Code, RefusedCall, error_message, refusal_of
from phalanx_protocols.hazelcast.fields import Fields
from phalanx_protocols.hazelcast.map_calls import take_value
from phalanx_protocols.hazelcast.serving import Connection, Handler
from phalanx_protocols.hazelcast.under_way import READING_PLAN_BYTES
from phalanx_protocols.windows import Window

IDENTIFIED: Final = -2
UPDATE_FACTORY: Final = MSGPACK_TYPE_ID
UPDATE_CLASS: Final = 1
AT_ONCE: Final = 200
"""Keys of one request for which the function is under way: each is an operation of its own."""


def _update_in(data: bytes) -> tuple[str, list[bytes]]:
    """Return the function and the arguments of an entry processor. Raises `RefusedCall`."""
    reader = PublicReader(data)
    try:
        type_id, is_identified = reader.length(), reader.take(1)
        which = (reader.length(), reader.length()) if type_id == IDENTIFIED and is_identified == b"\x01" else None
        if which != (UPDATE_FACTORY, UPDATE_CLASS):
            raise RefusedCall(
                Code.UNSUPPORTED,
                f"entry processors are code of an application, which does not run in members: send the name of a function that "
                f"members know (factory {UPDATE_FACTORY}, class {UPDATE_CLASS})",
            )
        function, many = reader.text(), reader.length()
        if not 0 <= many <= MAX_ARGUMENTS:
            raise RefusedCall(Code.ILLEGAL_ARGUMENT, f"{many} arguments: a function takes 0 to {MAX_ARGUMENTS}")
        return function, [reader.value_data() for _ in range(many)]
    except Corruption as error:
        raise RefusedCall(Code.ILLEGAL_ARGUMENT, f"an entry processor that cannot be read: {error}") from None


def _request(connection: Connection, name: str, key: bytes, function: str, arguments: list[bytes]) -> UpdateValue:
    return UpdateValue(connection.next_id(), name, key, function, arguments, None, 0, connection.grid.open_from)


def execute_on_key(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Answer with what the function returned."""
    name, processor, key = fields.map(), fields.data(), fields.data()
    return connection.ask(key, _request(connection, name, key, *_update_in(processor)), kind, number, take_value)


def execute_on_keys(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Answer with what the function returned for each key, where that was not None. The first refusal is the answer."""
    name, processor, keys = fields.map(), fields.data(), list(dict.fromkeys(fields.datas()))
    function, arguments = _update_in(processor)
    if len(keys) > MAX_KEYS:
        raise RefusedCall(Code.ILLEGAL_ARGUMENT, f"{len(keys)} keys: give at most {MAX_KEYS} at once")
    return _Executions(connection, name, keys, function, arguments).begin(kind, number)


def execute_on_all_keys(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Answer with what the function returned for each key of the map, where that was not None.

    A scan finds the keys first. If one of them is removed meanwhile, the function gets a key without a value.
    """
    name, processor = fields.map(), fields.data()
    function, arguments = _update_in(processor)

    def take(kind: int, number: int, keys: list[bytes]) -> bytes | None:
        return _Executions(connection, name, keys, function, arguments).begin(kind, number)

    budget = AnswerBudget(connection.grid.max_answer_bytes)
    plan = _keys_of(connection.plans(name), function, budget)
    return connection.perform(plan, kind, number, take, READING_PLAN_BYTES)


def _keys_of(plans: MapPlans, function: str, budget: AnswerBudget) -> CallPlan[list[bytes]]:
    """Plan to return all keys of a map. Raises `UsageError` where these are too many, or have too many bytes."""
    of, filled = yield from plans.filled_partitions()
    scan = plans.scan_data(sorted(filled), of)
    found: list[bytes] = []
    while (pages := (yield from scan.next_pages())) is not None:
        for page in pages:
            budget.take(sum(map(len, page.keys)))
            found += page.keys
        if len(found) > MAX_KEYS:
            raise UsageError(
                f"{function} on all keys of a map with more than {MAX_KEYS}: nothing was changed; name keys, or call update_where from Python"
            )
    return found


class _Executions:
    """The calls of one function on many keys, some of them under way at a time."""

    def __init__(
        self, connection: Connection, name: str, keys: list[bytes], function: str, arguments: list[bytes]
    ) -> None:
        self._connection, self._name, self._function, self._arguments = connection, name, function, arguments
        self._keys = keys
        self._begun = self._ended = 0
        self._budget = AnswerBudget(connection.grid.max_answer_bytes)
        self._window = Window()
        self._found: tuple[list[bytes], list[bytes]] = [], []
        """Keys and results, of those that are not None."""
        self._refusal: RefusedCall | None = None
        """The first one; further calls are not begun then."""

    def begin(self, kind: int, number: int) -> bytes | None:
        self._call_some(kind, number)
        return None if self._keys else entries(kind, number, [], [])

    def _call_some(self, kind: int, number: int) -> None:
        most = min(self._window.most, AT_ONCE)
        while self._refusal is None and self._begun < len(self._keys) and self._begun - self._ended < most:
            self._call_next(kind, number)

    def _call_next(self, kind: int, number: int) -> None:
        connection, key = self._connection, self._keys[self._begun]
        self._begun += 1

        def take(kind: int, number: int, reply: Any) -> bytes | None:
            return self._take(kind, number, key, reply)

        connection.ask(key, _request(connection, self._name, key, self._function, self._arguments), kind, number, take)

    def _take(self, kind: int, number: int, key: bytes, reply: Any) -> bytes | None:
        self._ended += 1
        try:
            result = expect(reply, ValueReply, self._function).value
        except PhalanxError as error:
            self._refuse(refusal_of(error))
        else:
            self._keep(key, result)
        self._call_some(kind, number)
        if self._ended < self._begun:
            return None
        if self._refusal is not None:
            left = len(self._keys) - self._begun
            text = f"{self._refusal}; {left} of {len(self._keys)} keys were not tried" if left else str(self._refusal)
            return error_message(number, RefusedCall(self._refusal.code, text))
        return entries(kind, number, *self._found)

    def _keep(self, key: bytes, result: bytes | None) -> None:
        """Keep a result for the answer."""
        self._window.note(len(result or b""))
        if result is not None and self._refusal is None:
            try:
                self._budget.take(len(key) + len(result))
            except AnswerTooLarge as error:
                self._refuse(refusal_of(error))
            else:
                self._found[0].append(key)
                self._found[1].append(result)

    def _refuse(self, refusal: RefusedCall) -> None:
        """Answer with a refusal, unless there is one, when all that was begun has ended."""
        self._refusal = self._refusal or refusal
        self._found = [], []


EXECUTIONS: Final[dict[int, Handler]] = {
    0x012E00: execute_on_key,
    0x013000: execute_on_all_keys,
    0x013200: execute_on_keys,
}
"""The type of a request to what serves it."""
