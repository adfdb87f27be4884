"""Run the audit's queries in this process, without Java: sqlglot translates Spark's SQL for DuckDB.

Each query is run at once, and its rows are a table in memory: so it is for logs that are small. The database takes
tables from this program alone, and reaches nothing outside.
"""

from __future__ import annotations

import functools
import itertools
import string
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import ErrorLevel, exp

from phalanx_spark.audit.arrow_types import arrow_schema


class LocalRow(dict[str, Any]):
    """A row, or a struct in one, whose columns are attributes as in Spark."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __iter__(self) -> Iterator[Any]:
        """Yield the values, as of a tuple."""
        return iter(self.values())

    def __getitem__(self, name: str | int) -> Any:
        return tuple(self.values())[name] if isinstance(name, int) else super().__getitem__(name)

    def asDict(self) -> dict[str, Any]:
        """Return the row as a dict."""
        return dict(self.items())


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        return LocalRow((name, _restored(each)) for name, each in value.items())
    return [_restored(each) for each in value] if isinstance(value, list) else value


class LocalTable:
    """The rows of a query, which the database has under a name of its own."""

    def __init__(self, engine: LocalEngine, name: str) -> None:
        self._engine, self.name = engine, name

    def where(self, condition: str, /) -> LocalTable:
        return self._engine.sql(f"select * from {{own}} where {condition}", own=self)

    def select(self, *columns: str) -> LocalTable:
        return self.selectExpr(*columns)

    def selectExpr(self, *expressions: str) -> LocalTable:
        return self._engine.sql(f"select {', '.join(expressions)} from {{own}}", own=self)

    def drop(self, *columns: str) -> LocalTable:
        return self._engine.run(f"select * exclude ({', '.join(columns)}) from {self.name}")

    def distinct(self) -> LocalTable:
        return self._engine.run(f"select distinct * from {self.name}")

    def join(self, other: LocalTable, on: str | Sequence[str], how: str, /) -> LocalTable:
        columns = on if isinstance(on, str) else ", ".join(on)
        kind = "semi" if how == "left_semi" else how
        return self._engine.run(f"select * from {self.name} {kind} join {other.name} using ({columns})")

    def unionByName(self, other: LocalTable, /) -> LocalTable:
        return self._engine.run(f"select * from {self.name} union all by name select * from {other.name}")

    def isEmpty(self) -> bool:
        return not self._engine.rows(f"select 1 as one from {self.name} limit 1")

    def collect(self) -> list[LocalRow]:
        return self._engine.rows(f"select * from {self.name}")

    def first(self) -> LocalRow | None:
        return next(iter(self._engine.rows(f"select * from {self.name} limit 1")), None)


class LocalKept:
    """Every table is kept as it is."""

    def __init__(self, spark: LocalEngine) -> None:
        self.spark = spark

    def save(self, table: LocalTable, name: str) -> LocalTable:
        return table


class LocalEngine:
    """A database in memory."""

    def __init__(self, threads: int = 2) -> None:
        self._base = duckdb.connect(config={"threads": threads, "enable_external_access": False})
        self._numbers = itertools.count(1)
        self._alone = threading.RLock()
        """Held while a query runs: queries come from several threads."""

    def close(self) -> None:
        """Forget all tables."""
        self._base.close()

    def sql(self, query: str, /, **tables: Any) -> LocalTable:
        """Return the rows of a query in Spark's SQL, in which `{name}` stands for a table or a number."""
        named = {name: value.name if isinstance(value, LocalTable) else value for name, value in tables.items()}
        return self.run(_translated(string.Formatter().vformat(query, (), named)))

    def run(self, query: str) -> LocalTable:
        """Return the rows of a query in the database's own SQL."""
        table = LocalTable(self, f"t{next(self._numbers)}")
        with self._alone:
            self._base.execute(f"create table {table.name} as {query}")
        return table

    def rows(self, query: str) -> list[LocalRow]:
        """Return the rows of a query in the database's own SQL."""
        with self._alone:
            found = self._base.execute(query)
            names = [column[0] for column in found.description or ()]
            return [LocalRow(zip(names, map(_restored, row), strict=True)) for row in found.fetchall()]

    def small(self, rows: Sequence[Sequence[Any]], ddl: str) -> LocalTable:
        """Return a few rows, whose columns are named as in Spark, as a table."""
        columns = arrow_schema(ddl)
        found = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(columns)]
        return self.table(pa.Table.from_arrays(found, schema=columns))

    def table(self, rows: pa.Table) -> LocalTable:
        """Return a table of Arrow as one of the database."""
        with self._alone:
            self._base.register("given", rows)
            try:
                return self.run("select * from given")
            finally:
                self._base.unregister("given")


@functools.cache
def _translated(query: str) -> str:
    tree = sqlglot.parse_one(query, read="spark")
    for each in list(tree.find_all(exp.Quantile)):
        # Between two values Spark takes what lies between them, and the database's function the lower one.
        each.replace(exp.Anonymous(this="quantile_cont", expressions=[each.this, each.args["quantile"]]))
    # Without this, what the other dialect does not have would be left out, with a line on stderr: the verdicts would change.
    return tree.sql(dialect="duckdb", unsupported_level=ErrorLevel.RAISE)
