"""Spark sessions that know the format `phalanx`."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from phalanx.spark.source import PhalanxSource

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

_LOCAL_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    PUSHDOWN: "true",
}


def register(spark: SparkSession) -> None:
    """Make the format known to a session, and let Spark hand filters on the key down to it.

    Needed only where Spark does not find data sources by itself. Spark leaves filters of Python data sources to itself
    unless `spark.sql.python.filterPushdown.enabled` is set; reading works either way, looking up keys is faster with it.
    """
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(PhalanxSource)


def session(master: str = "local[2]", **conf: str) -> SparkSession:
    """A session on this machine that is quiet and listens on loopback only; workers run on this interpreter.

    `conf` adds or overrides settings: `session(**{"spark.sql.shuffle.partitions": "4"})`, or with `_` for each dot.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("phalanx")
    settings = _LOCAL_DEFAULTS | {
        name if "." in name else name.replace("_", "."): value for name, value in conf.items()
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark
