"""Entry processors: functions that members know by name, called at the owner of a key.

No code travels. A client sends an object of its identified serialisation (type -2) with this factory and class: the name of the
function, the number of arguments, and the arguments, each with its type id.
"""

from __future__ import annotations

from typing import Any, Final

from phalanx.codec.messagepack import Corruption
from phalanx.codec.public_types import PublicReader
from phalanx.codec.values import MSGPACK_TYPE_ID
from phalanx.common.errors import PhalanxError
from phalanx.endpoints.hazelcast.answers import entries
from phalanx.endpoints.hazelcast.errors import Code, RefusedCall, error_message, refusal_of
from phalanx.endpoints.hazelcast.fields import Fields
from phalanx.endpoints.hazelcast.map_calls import take_value
from phalanx.endpoints.hazelcast.serving import Connection, Handler
from phalanx.maps.requests import expect
from phalanx.wire.limits import MAX_ARGUMENTS
from phalanx.wire.messages import UpdateValue, ValueReply

IDENTIFIED: Final = -2
UPDATE_FACTORY: Final = MSGPACK_TYPE_ID
UPDATE_CLASS: Final = 1
MAX_KEYS_AT_ONCE: Final = 1_000
"""Keys of one executeOnKeys: each is an operation of its own."""


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
    if len(keys) > MAX_KEYS_AT_ONCE:
        raise RefusedCall(Code.ILLEGAL_ARGUMENT, f"{len(keys)} keys: give at most {MAX_KEYS_AT_ONCE} at once")
    results: dict[bytes, bytes | None] = {}
    refusals: list[RefusedCall] = []

    def taker(key: bytes) -> Any:
        def take(kind: int, number: int, reply: Any) -> bytes | None:
            results[key] = None
            try:
                results[key] = expect(reply, ValueReply, function).value
            except PhalanxError as error:
                refusals.append(refusal_of(error))
            if len(results) < len(keys):
                return None
            if refusals:
                return error_message(number, refusals[0])
            found = [(key, result) for key, result in results.items() if result is not None]
            return entries(kind, number, [key for key, _ in found], [result for _, result in found])

        return take

    for key in keys:
        connection.ask(key, _request(connection, name, key, function, arguments), kind, number, taker(key))
    return None if keys else entries(kind, number, [], [])


EXECUTIONS: Final[dict[int, Handler]] = {0x012E00: execute_on_key, 0x013200: execute_on_keys}
"""The type of a request to what serves it."""
