"""A folder of any file system that Spark knows, through Spark's own file systems."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from phalanx.common.errors import UsageError


class SparkFolder:
    """A `Folder` of any file system, which need not exist yet."""

    def __init__(self, spark: SparkSession, address: str) -> None:
        """Raise `UsageError` if Spark does not know such a file system."""
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
        return str(self._jvm.org.apache.hadoop.fs.Path(self._path, name).toString())

    def is_empty(self) -> bool:
        if not self._files.exists(self._path):
            return True
        if not self._files.getFileStatus(self._path).isDirectory():
            raise UsageError(f"{self.address} is a file: give a folder")
        return len(self._files.listStatus(self._path)) == 0

    def make(self) -> None:
        try:
            made = self._files.mkdirs(self._path)
        except Py4JJavaError as error:
            raise UsageError(f"cannot write to {self.address}: {_reason(error)}") from None
        if not made:
            raise UsageError(f"cannot make {self.address}: is the folder around it writable?")

    def read_text(self, name: str) -> str | None:
        path = self._jvm.org.apache.hadoop.fs.Path(self._path, name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_text(self, name: str, text: str) -> None:
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
    message = error.java_exception.getMessage()
    return " ".join(str(message or error.java_exception.toString()).split())
