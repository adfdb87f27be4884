"""Spark sessions that know the format `phalanx`."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession, is_remote

from phalanx_spark.connector.modes import offer_save_modes
from phalanx_spark.connector.options import find_defaults
from phalanx_spark.connector.source import configured
from phalanx_spark.quiet import quiet_start

_LOCAL_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def register(spark: SparkSession) -> None:
    """Make the format known to a session.

    This is needed for the save modes `error` and `ignore`, and where Spark does not find data sources itself: if its
    workers do not see the package `pyspark_phalanx`, and in a thread that only writes. A write looks for its format in
    the session that is active in the calling thread, and a new thread has none until a call like this makes the session
    active. Settings such as `spark.phalanx.members` are defaults of the options, with their present values.
    """
    spark.dataSource.register(configured(find_defaults(lambda name: spark.conf.get(name, None))))
    if not is_remote():
        offer_save_modes()
    spark.createDataFrame([], "key string")


def session(master: str = "local[2]", **conf: str) -> SparkSession:
    """Start a quiet session on this machine that listens on loopback only; its workers run on this interpreter.

    `conf` adds or overrides settings: `session(**{"spark.sql.shuffle.partitions": "4"})`, or with `_` for each dot.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else Spark looks up the host's name, which can lead nowhere
    builder = SparkSession.builder.master(master).appName("phalanx")
    settings = _LOCAL_DEFAULTS | {
        name if "." in name else name.replace("_", "."): value for name, value in conf.items()
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    with quiet_start():
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark
