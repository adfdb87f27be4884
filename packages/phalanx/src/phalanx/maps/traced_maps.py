"""Maps whose calls are spans of OpenTelemetry, by its semantic conventions for clients of databases.

`Tracing.traced` returns a map of a subclass that is made of the map's own class: each call of `OPERATIONS` begins a span,
calls the same method of the map that is not traced, and ends the span. So a call that is made of others (`pop`, `put_all`)
is one span, and reads that take no request are spans, too. The parent is the span of the context in which the program calls,
which each thread and each task has for itself.

A span has neither keys nor values, and no text of an error either: that can quote them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.metadata import version
from typing import Any, Final, TypeVar

from opentelemetry.trace import Span, SpanKind, StatusCode, get_tracer

from phalanx.common.ids import Address, host_and_port
from phalanx.maps.mistakes import NoDict

M = TypeVar("M")

SYSTEM: Final = "phalanx"
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.33.0"
"""The first version of the conventions in which those for databases are stable."""

OPERATIONS: Final = {
    "__getitem__": "get",
    "__setitem__": "put",
    "__delitem__": "remove",
    "__contains__": "contains",
    "__iter__": "keys",
    "__len__": "size",
    "iter_items": "items",
} | {
    name: name
    for name in ("clear", "compare_and_set", "contains", "everywhere", "find_data", "get", "get_all", "get_and_put", "get_and_replace",
                 "get_data", "increment", "items", "keys", "persist", "pop", "popitem", "put", "put_all", "put_data",
                 "put_if_absent", "put_packed", "remove", "remove_if", "replace", "scan_data", "scan_packed", "setdefault",
                 "size", "time_to_live", "touch", "update", "update_all", "update_where", "values")
}  # fmt: skip
"""Method to the name of its operation. What is not a call of its own is not traced: views, locks and journals."""
WITH_MANY: Final = {
    "get_all": "keys",
    "get_data": "keys",
    "put_all": "entries",
    "put_data": "keys",
    "update_all": "keys",
}
"""Operation to the parameter, its first, that has as many items as the call is about."""


class Tracing:
    """Makes the spans of one client's or member's calls."""

    def __init__(self, server: Callable[[], Address | None]) -> None:
        """`server`: returns the address through which the program reaches the grid; None: there are several."""
        self._server = server
        # Which provider the program has set, or will set, is found with the first span.
        self._tracer = get_tracer("phalanx", version("phalanx"), schema_url=SCHEMA_URL)

    def traced(self, entries: M) -> M:
        """Return the map as one whose calls are spans."""
        kind: Any = type(entries)
        made: M = object.__new__(_traced_class(kind))
        vars(made).update(vars(entries), _tracing=self, _untraced=entries)
        return made

    def begin(self, operation: str, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> _Call:
        """Begin the span of a call on the map of this name."""
        attributes: dict[str, str | int] = {
            "db.system.name": SYSTEM,
            "db.operation.name": operation,
            "db.collection.name": name,
        }
        if (server := self._server()) is not None:
            attributes["server.address"], attributes["server.port"] = host_and_port(server)
        if operation in WITH_MANY:
            many = args[0] if args else named.get(WITH_MANY[operation])
            # Others may not be counted twice, or, as a map of the grid, not without a call. One item is not a batch.
            if isinstance(many, list | tuple | dict | set | frozenset) and len(many) > 1:
                attributes["db.operation.batch.size"] = len(many)
        return _Call(self._tracer.start_span(f"{operation} {name}", kind=SpanKind.CLIENT, attributes=attributes))


class _Call:
    """A call whose span ends with it."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> None:
        """Do nothing: the span does not become the current one, because a scan would leave it to the caller between two entries."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """End the span. A key that is missing is an answer, and an iterator that is closed early no failure."""
        if kind is not None and not issubclass(kind, KeyError | GeneratorExit):
            self._span.set_attribute("error.type", kind.__qualname__)
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


@functools.cache
def _traced_class(kind: Any) -> Any:
    """Return the subclass of a map's class whose calls are spans."""
    found = {name: getattr(kind, name, None) for name in OPERATIONS}
    methods = {
        name: method
        for name, method in found.items()
        if inspect.isfunction(method) and method is not getattr(NoDict, name, None)
    }
    if inspect.isfunction(views := methods.get("items")) and not inspect.isasyncgenfunction(views):
        for name in ("items", "keys", "values"):  # views of a blocking map: their iterators are calls of the map
            del methods[name]
    traced = {name: _traced_method(method, OPERATIONS[name]) for name, method in methods.items()}
    return type(kind.__name__, (kind,), traced | {"__module__": __name__})


def _traced_method(method: Callable[..., Any], operation: str) -> Callable[..., Any]:
    """Return a method that calls this one of the map which is not traced, within a span."""
    made: Callable[..., Any]
    if inspect.isasyncgenfunction(method):

        async def made(self: Any, *args: Any, **named: Any) -> AsyncIterator[Any]:
            with self._tracing.begin(operation, self.name, args, named):
                scan = method(self._untraced, *args, **named)
                try:
                    async for each in scan:
                        yield each
                finally:
                    await scan.aclose()

    elif inspect.iscoroutinefunction(method):

        async def made(self: Any, *args: Any, **named: Any) -> Any:
            with self._tracing.begin(operation, self.name, args, named):
                return await method(self._untraced, *args, **named)

    elif inspect.isgeneratorfunction(method):

        def made(self: Any, *args: Any, **named: Any) -> Iterator[Any]:
            with self._tracing.begin(operation, self.name, args, named):
                yield from method(self._untraced, *args, **named)

    else:

        def made(self: Any, *args: Any, **named: Any) -> Any:
            # With less than a key and a function, `update` is that of a dict.
            called = "put_all" if operation == "update" and len(args) < 2 else operation
            with self._tracing.begin(called, self.name, args, named):
                return method(self._untraced, *args, **named)

    return functools.wraps(method)(made)
