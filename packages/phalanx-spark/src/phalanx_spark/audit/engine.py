"""What the audit needs of an engine that runs its queries: Spark, or this process alone (`local_engine`). Queries are
in Spark's SQL.
"""

from __future__ import annotations

from typing import Any, Protocol


class AuditTable(Protocol):
    """Rows with named columns: the part of Spark's `DataFrame` that the audit uses."""

    def where(self, condition: Any, /) -> Any:
        """Return the rows that fulfil a condition."""

    def select(self, *columns: Any) -> Any:
        """Return these columns."""

    def selectExpr(self, *expressions: Any) -> Any:
        """Return these expressions as columns."""

    def drop(self, *columns: Any) -> Any:
        """Return all columns but these."""

    def distinct(self) -> Any:
        """Return each row once."""

    def join(self, other: Any, on: Any, how: Any, /) -> Any:
        """Join by the columns `on`; `how`: `left`, or `left_semi`."""

    def unionByName(self, other: Any, /) -> Any:
        """Return the rows of both."""

    def isEmpty(self) -> bool:
        """Return whether there are no rows."""

    def collect(self) -> list[Any]:
        """Return all rows, whose columns are attributes; `asDict` makes one of a row."""

    def first(self) -> Any:
        """Return a row; None if there is none."""


class Kept(Protocol):
    """Where tables are kept that are worked out once and looked at often."""

    @property
    def spark(self) -> QueryEngine:
        """The engine that runs the queries."""

    def save(self, table: Any, name: str) -> AuditTable:
        """Return the table as it is kept."""


class QueryEngine(Protocol):
    """Runs queries: a `SparkSession`, or a `LocalEngine`."""

    def sql(self, query: str, /, **tables: Any) -> AuditTable:
        """Return the rows of a query, in which `{name}` stands for a table or a number."""
