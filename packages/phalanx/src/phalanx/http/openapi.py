"""The OpenAPI document of `/api/…`: made of the questions and the shapes of their answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from phalanx.http.answers import Failure

REF: Final = "#/components/schemas/{name}"


class Parameter(NamedTuple):
    """A parameter of the query."""

    name: str
    said: str
    required: bool = False
    repeated: bool = False
    kind: type = str


class Shape(NamedTuple):
    """What one path asks for and answers."""

    path: str
    said: str
    answers: tuple[Any, ...]
    """The types of which its answer is one."""
    parameters: tuple[Parameter, ...] = ()


def document(shapes: Iterable[Shape], release: str, *, has_token: bool) -> dict[str, Any]:
    """Return the document. `has_token`: whether requests must bear one."""
    shapes = list(shapes)
    kinds = [kind for each in shapes for kind in each.answers]
    (*made, failure), components = msgspec.json.schema_components([*kinds, Failure], ref_template=REF)
    schemas = iter(made)
    paths = {}
    for each in shapes:
        several = [next(schemas) for _ in each.answers]
        answer = several[0] if len(several) == 1 else {"anyOf": several}
        paths[each.path] = {"get": _operation(each, answer, failure, has_token=has_token)}
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Phalanx member",
            "version": release,
            "description": "What the command line shows of a cluster, as JSON. Everything is read; nothing changes the cluster.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }
    if has_token:
        found["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer", "description": "The token of http_token_file."},
            "basic": {"type": "http", "scheme": "basic", "description": "The token as the password of any user."},
        }
        found["security"] = [{"bearer": []}, {"basic": []}]
    return found


def _operation(shape: Shape, answer: dict[str, Any], failure: dict[str, Any], *, has_token: bool) -> dict[str, Any]:
    responses = {
        "200": {"description": shape.said, "content": _json(answer)},
        "503": {"description": "This member, or one that it needs, cannot answer now.", "content": _json(failure)},
    }
    if shape.parameters:
        responses["400"] = {"description": "The question is wrong.", "content": _json(failure)}
        responses["404"] = {"description": "What it asks about is not known.", "content": _json(failure)}
    if has_token:
        responses["401"] = {"description": "The token is missing or wrong.", "content": {"text/plain": {}}}
    made: dict[str, Any] = {
        "summary": shape.said,
        "operationId": shape.path.removeprefix("/api/").replace("/", "_").replace("-", "_").replace(".", "_"),
        "responses": responses,
    }
    if shape.parameters:
        made["parameters"] = [_parameter(each) for each in shape.parameters]
    return made


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = msgspec.json.schema_components([parameter.kind])[0][0]
    if "$ref" in schema:  # an enumeration
        schema = next(iter(msgspec.json.schema_components([parameter.kind])[1].values()))
    if parameter.repeated:
        schema = {"type": "array", "items": schema}
    return {
        "name": parameter.name,
        "in": "query",
        "required": parameter.required,
        "description": parameter.said,
        "schema": schema,
    }


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
