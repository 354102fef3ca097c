"""
``format("shoal")``: register it with ``spark.dataSource.register(ShoalDataSource)``.

Spark makes objects of these classes on the driver and pickles them, by
reference to this module, for its tasks: shoal has to be installed there too.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from shoal.spark.first_sentence import sentence_first
from shoal.spark.options import ReadOptions, WriteOptions
from shoal.spark.rows import BY_REFERENCE, BYTES
from shoal.spark.sink import StreamWriter, Writer
from shoal.spark.slices import SliceReader
from shoal.spark.source import BatchReader, StreamReader

__all__ = ["ShoalDataSource", "keyed_data_source"]


@sentence_first
class ShoalDataSource(DataSource):
    """Record batches of Kafka topics, whole: as references to be copied, or with their bytes."""

    #: Of :func:`keyed_data_source`.
    _key: str | Path = ""

    @classmethod
    def name(cls) -> str:
        return "shoal"

    def schema(self) -> StructType:
        """Return the shape of a row: see :mod:`shoal.spark.rows`."""
        with_bytes = self.options.get("rows", "reference").lower() == "bytes"
        return BYTES if with_bytes else BY_REFERENCE

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(ReadOptions.parse(self.options, streaming=False, key=self._key))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = ReadOptions.parse(self.options, streaming=True, key=self._key)
        return SliceReader(options, options.control) if options.control else StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return Writer(WriteOptions.parse(self.options, key=self._key), schema.names)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(WriteOptions.parse(self.options, key=self._key), schema.names)


def keyed_data_source(key: str | Path) -> type[ShoalDataSource]:
    """
    Return the data source for a mirror of this process: its planner and its tasks can open the credentials.

    ``key`` is the key, or the file from which the planner and the tasks read it.
    Spark hands a registered class on as it was pickled, and shows its name at most. One that is made
    here cannot be imported by its name, so it is pickled by value, with ``key`` in it.
    """

    class KeyedDataSource(ShoalDataSource):
        _key = key

    return KeyedDataSource
