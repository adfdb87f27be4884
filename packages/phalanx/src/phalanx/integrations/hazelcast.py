"""For programs that use hazelcast-python-client: dicts as Phalanx's own clients store them, and updates at the owner.

import hazelcast
from phalanx.integrations.hazelcast import SERIALIZERS, FunctionCall

client = hazelcast.HazelcastClient(
    cluster_name="phalanx",
    cluster_members=["127.0.0.1:5701"],
    custom_serializers=SERIALIZERS,
    default_int_type=hazelcast.config.IntType.LONG,
)
books = client.get_map("books").blocking()
books.put("b1", {"title": "Iliad", "price": 12})
books.execute_on_key("sold", FunctionCall("increment", 1))
"""

from __future__ import annotations

from typing import Any, Final

from hazelcast.serialization.api import IdentifiedDataSerializable, StreamSerializer

from phalanx.codec.values import MSGPACK_PREFIX, MSGPACK_TYPE_ID, from_data, to_data

UPDATE_FACTORY: Final = MSGPACK_TYPE_ID
UPDATE_CLASS: Final = 1


class RowSerializer(StreamSerializer):
    """Writes dicts as Phalanx's clients and Spark store them, and reads all that these store in that form: also lists, dates and
    decimals."""

    def write(self, out: Any, obj: dict[str, Any]) -> None:
        out.write_from(to_data(obj)[len(MSGPACK_PREFIX) :])

    def read(self, inp: Any) -> Any:
        size = inp.size() - inp.position()
        payload = bytearray(size)
        inp.read_into(payload, 0, size)
        return from_data(MSGPACK_PREFIX + bytes(payload))

    def get_type_id(self) -> int:
        return MSGPACK_TYPE_ID

    def destroy(self) -> None:
        """Do nothing: there is nothing to release."""


SERIALIZERS: Final = {dict: RowSerializer}
"""For `custom_serializers` of the client."""


class FunctionCall(IdentifiedDataSerializable):
    """A call of a function that members know by its name (docs/updates.md), for `execute_on_key` and `execute_on_keys`."""

    def __init__(self, function: str = "", *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def write_data(self, object_data_output: Any) -> None:
        object_data_output.write_string(self.function)
        object_data_output.write_int(len(self.arguments))
        for argument in self.arguments:
            object_data_output.write_object(argument)

    def read_data(self, object_data_input: Any) -> None:
        self.function = object_data_input.read_string()
        self.arguments = tuple(object_data_input.read_object() for _ in range(object_data_input.read_int()))

    def get_factory_id(self) -> int:
        return UPDATE_FACTORY

    def get_class_id(self) -> int:
        return UPDATE_CLASS
