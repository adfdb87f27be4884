"""Compact objects as Hazelcast's own Python client writes them."""

from typing import Any

from hazelcast.config import Config
from hazelcast.serialization.api import CompactReader, CompactSerializer, CompactWriter
from hazelcast.serialization.compact import SchemaNotReplicatedError
from hazelcast.serialization.service import SerializationServiceV1

from phalanx.codec.compact_schemas import CompactSchema

Field = tuple[str, str, Any]
"""A field's name, its kind as methods of a `CompactWriter` are called, and its value."""


class CompactObject:
    """An object of fields; each type has a subclass."""

    def __init__(self, *fields: Field) -> None:
        self.fields = fields


class ObjectSerializer(CompactSerializer[CompactObject]):
    def __init__(self, type_name: str, kind: type[CompactObject]) -> None:
        self._type_name, self._kind = type_name, kind

    def read(self, reader: CompactReader) -> CompactObject:
        raise NotImplementedError

    def write(self, writer: CompactWriter, obj: CompactObject) -> None:
        for name, kind, value in obj.fields:
            getattr(writer, f"write_{kind}")(name, value)

    def get_class(self) -> type[CompactObject]:
        return self._kind

    def get_type_name(self) -> str:
        return self._type_name


def written(made: CompactObject) -> tuple[bytes, list[CompactSchema]]:
    """An object as it is stored, and the schemas of it and of those inside, in the order in which a client sends them."""
    found: dict[str, type[CompactObject]] = {}

    def note(value: object) -> None:
        if isinstance(value, CompactObject):
            found[type(value).__name__] = type(value)
            for _, _, inner in value.fields:
                note(inner)
        elif isinstance(value, list):
            for each in value:
                note(each)

    note(made)
    config: Any = Config()  # type: ignore[no-untyped-call]
    config.compact_serializers = [ObjectSerializer(name, kind) for name, kind in found.items()]
    service: Any = SerializationServiceV1(config)  # type: ignore[no-untyped-call]
    schemas: list[CompactSchema] = []
    while True:
        try:
            return bytes(service.to_data(made).buffer[4:]), schemas
        except SchemaNotReplicatedError as error:
            lacking, kind = error.schema, error.clazz
        schemas.append(CompactSchema(lacking.type_name, [(f.name, int(f.kind)) for f in lacking.fields]))
        assert schemas[-1].id == lacking.schema_id
        service.compact_stream_serializer.register_schema_to_type(lacking, kind)
