"""A folder of whatever file system its address names, through Spark's own file systems."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from phalanx.common.errors import UsageError


class SparkFolder:
    """A folder that may not exist yet."""

    def __init__(self, spark: SparkSession, address: str) -> None:
        """Raises `UsageError` if nobody knows such a file system."""
        self.address = address
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path(address)
        configuration = spark.sparkContext._jsc.hadoopConfiguration()
        try:
            self._files = self._path.getFileSystem(configuration)
        except Py4JJavaError as error:
            raise UsageError(f"cannot use {address}: {_reason(error)}") from None

    def of(self, name: str) -> str:
        """The address of what has this name in it."""
        return str(self._jvm.org.apache.hadoop.fs.Path(self._path, name).toString())

    def is_empty(self) -> bool:
        """Whether there is nothing in it, or no such folder. Raises `UsageError` if it is a file."""
        if not self._files.exists(self._path):
            return True
        if not self._files.getFileStatus(self._path).isDirectory():
            raise UsageError(f"{self.address} is a file: give a folder")
        return len(self._files.listStatus(self._path)) == 0

    def make(self) -> None:
        """Make it. Raises `UsageError` if that is not allowed."""
        try:
            made = self._files.mkdirs(self._path)
        except Py4JJavaError as error:
            raise UsageError(f"cannot write to {self.address}: {_reason(error)}") from None
        if not made:
            raise UsageError(f"cannot make {self.address}: is the folder around it writable?")

    def read_text(self, name: str) -> str | None:
        """What the file holds; None: there is none."""
        path = self._jvm.org.apache.hadoop.fs.Path(self._path, name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_text(self, name: str, text: str) -> None:
        """Write a file that is there as a whole or not at all."""
        path = self._jvm.org.apache.hadoop.fs.Path(self._path, name)
        unfinished = self._jvm.org.apache.hadoop.fs.Path(self._path, f"_{name}.unfinished")
        stream = self._files.create(unfinished, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if not self._files.rename(unfinished, path):
            raise UsageError(f"cannot write {self.of(name)}: is there one already?")


def _reason(error: Py4JJavaError) -> str:
    told = error.java_exception.getMessage()
    return " ".join(str(told or error.java_exception.toString()).split())
