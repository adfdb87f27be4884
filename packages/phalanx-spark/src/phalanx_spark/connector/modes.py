"""The save modes that Spark does not offer to data sources in Python: `error` (the default of a write) and `ignore`.

Spark refuses a write in these modes before it asks the data source. After `register`, a write of the format `phalanx`
in one of them is handed to Spark as one in the mode `append` with the option `ifExists`, which says the same. An error
at the commit is raised as the one line that it is. `saveAsTable` and `writeTo(…).using` are refused, because nobody
could read the table. Writes of other formats stay as they are; so do writes of clients of Spark Connect, who set
`ifExists` themselves.
"""

from __future__ import annotations

import functools
from typing import Any

from pyspark.sql import DataFrameWriter, DataFrameWriterV2

from phalanx.common.errors import UsageError
from phalanx_spark.connector.errors import find_error
from phalanx_spark.connector.options import ERROR, IGNORE, NO_TABLES

_MODES = {"ErrorIfExists": ERROR, "Ignore": IGNORE}
_OPTION = "ifExists"
FORMAT = "phalanx"


def offer_save_modes() -> None:
    """Let writers of this Python process take these modes. Once is enough, again does nothing."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # not there with a client of Spark Connect

    plain = DataFrameWriter.save
    if getattr(plain, "offers_save_modes", False):
        return

    @functools.wraps(plain)
    def save(
        self: DataFrameWriter,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: Any = None,
        **options: Any,
    ) -> None:
        if format is not None:
            self.format(format)
        if mode is not None:
            self.mode(mode)
        if not _is_ours(self):
            plain(self, path, None, None, partitionBy, **options)
            return
        wanted = _MODES.get(self._jwrite.curmode().toString())
        if wanted is not None:
            if _OPTION.lower() not in {name.lower() for name in options} and not _has_option(self):
                self.option(_OPTION, wanted)
            self.mode("append")
        try:
            plain(self, path, None, None, partitionBy, **options)
        except Py4JJavaError as error:
            ours = find_error(str(error))
            if ours is None:
                raise
            raise ours from None

    plain_table = DataFrameWriter.saveAsTable

    @functools.wraps(plain_table)
    def save_as_table(self: DataFrameWriter, name: str, format: str | None = None, *args: Any, **options: Any) -> None:
        if format == FORMAT or (format is None and _is_ours(self)):
            raise UsageError(f"saveAsTable({name!r}): {NO_TABLES}; rows are written with save()")
        plain_table(self, name, format, *args, **options)

    plain_using = DataFrameWriterV2.using

    @functools.wraps(plain_using)
    def using(self: DataFrameWriterV2, provider: str) -> DataFrameWriterV2:
        if provider.lower() == FORMAT:
            raise UsageError(f"writeTo(…).using({provider!r}): {NO_TABLES}; rows are written with write and save()")
        return plain_using(self, provider)

    DataFrameWriterV2.using = using  # type: ignore[method-assign]  # that is what this is for
    DataFrameWriter.saveAsTable = save_as_table  # type: ignore[method-assign]  # that is what this is for
    save.offers_save_modes = True  # type: ignore[attr-defined]  # a mark for the next call
    DataFrameWriter.save = save  # type: ignore[method-assign]  # that is what this is for


def _is_ours(writer: DataFrameWriter) -> bool:
    return str(writer._jwrite.source()).lower() == FORMAT


def _has_option(writer: DataFrameWriter) -> bool:
    return bool(writer._jwrite.extraOptions().contains(_OPTION))
