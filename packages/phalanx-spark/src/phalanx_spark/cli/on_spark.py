"""A Spark for the length of a command. Each of its errors is one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from phalanx.cli.app import fail
from phalanx.cli.failures import FAILED, WRONG_USAGE
from phalanx.common.errors import UsageError
from phalanx.reports.file_modes import OTHERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DEFAULT_SPARK = "local[2]"
IsLocal = Annotated[
    bool,
    typer.Option(
        "--local", help="By this process, without Spark and Java.", show_default="for little data on this machine"
    ),
]
SparkMaster = Annotated[
    str | None,
    typer.Option(
        "--spark",
        metavar="MASTER",
        help="By Spark, which runs at: local[N], spark://HOST:PORT, yarn, k8s://…",
        show_default="for much data, local[2]",
    ),
]
FILE_MODES: Final = {"spark.hadoop.fs.permissions.umask-mode": f"{OTHERS:03o}"}
"""Who can read the files that Spark writes: it does not follow the umask of a process."""


def check_engine(*, local: bool, spark: str | None) -> None:
    """Raise `UsageError` if both engines are asked for."""
    if local and spark is not None:
        raise UsageError("--local and --spark exclude each other")


@contextlib.contextmanager
def spark_session(
    master: str, failed: str, settings: Mapping[str, str] | None = None, *, status: int = WRONG_USAGE
) -> Iterator[SparkSession]:
    """Yield a session that ends with the block. An error of Spark in the block ends the command, with what `failed` and
    why.

    Spark is imported only here; `require_spark` comes before.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from phalanx_spark.connector import session
    from phalanx_spark.connector.errors import find_error

    try:
        with doing(f"Spark starts ({master})"):
            spark = session(master, **(FILE_MODES | dict(settings or {})))
    except Exception as error:  # of Java, of the launcher, of the network: of any kind
        fail(f"Spark does not start with --spark {master}: {_short(error)}", WRONG_USAGE)
    try:
        yield spark
    except (PySparkException, Py4JError) as error:
        ours = find_error(str(error))
        if ours is not None:
            fail(f"{failed}: {ours}", FAILED)
        fail(f"{failed}: {_short(error)}", status)
    finally:
        spark.stop()


@contextlib.contextmanager
def doing(what: str) -> Iterator[None]:
    """Show what is being done, if stderr is a terminal."""
    shown = Console(stderr=True)
    with shown.status(what) if shown.is_terminal else contextlib.nullcontext():
        yield


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
