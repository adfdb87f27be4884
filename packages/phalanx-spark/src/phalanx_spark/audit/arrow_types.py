"""Translate columns in Spark's words (`at bigint, members array<string>`) into Arrow's types."""

from __future__ import annotations

import pyarrow as pa

_KINDS = {"bigint": pa.int64(), "int": pa.int32(), "string": pa.string(), "boolean": pa.bool_()}


def arrow_schema(ddl: str) -> pa.Schema:
    """Return the Arrow schema of a text such as `at bigint, members array<string>`."""
    columns = (each.split(maxsplit=1) for each in _parts(" ".join(ddl.split())))
    return pa.schema([(name.strip("`"), _arrow_type(kind)) for name, kind in columns])


def _arrow_type(kind: str) -> pa.DataType:
    outer, _, inner = kind.partition("<")
    if not inner:
        return _KINDS[kind]
    inner = inner.removesuffix(">")
    if outer == "array":
        return pa.list_(_arrow_type(inner))
    return pa.struct([(name, _arrow_type(each)) for name, each in (part.split(maxsplit=1) for part in _parts(inner))])


def _parts(text: str) -> list[str]:
    """Split at the commas that are outside all brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "<") - (letter == ">")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]
