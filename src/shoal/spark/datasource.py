"""
``format("shoal")``: register it with ``spark.dataSource.register(ShoalDataSource)``.

Spark makes objects of these classes on the driver and pickles them, by
reference to this module, for its tasks: shoal has to be installed there too.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from shoal.spark.options import ReadOptions, WriteOptions
from shoal.spark.rows import BY_REFERENCE, BYTES
from shoal.spark.sink import StreamWriter, Writer
from shoal.spark.source import BatchReader, StreamReader

__all__ = ["ShoalDataSource"]


class ShoalDataSource(DataSource):
    """Record batches of Kafka topics, whole: as references to be copied, or with their bytes."""

    @classmethod
    def name(cls) -> str:
        return "shoal"

    def schema(self) -> StructType:
        """Return the shape of a row: see :mod:`shoal.spark.rows`."""
        with_bytes = self.options.get("rows", "reference").lower() == "bytes"
        return BYTES if with_bytes else BY_REFERENCE

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(ReadOptions.parse(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(ReadOptions.parse(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return Writer(WriteOptions.parse(self.options), schema.names)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(WriteOptions.parse(self.options), schema.names)
