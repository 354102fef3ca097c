"""
``format("shoal")``: register it with ``spark.dataSource.register(data_source(spark))``.

Spark makes objects of these classes on the driver and pickles them for its tasks, by reference to this
module. So shoal must be installed on the executors, too.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from shoal.errors import ConfigError
from shoal.mirroring.model.position import ProducerIdentity
from shoal.spark.options import ReadOptions, WriteOptions, row_kind
from shoal.spark.sink import StreamWriter, Writer, new_writer
from shoal.spark.source import BatchReader, StreamReader
from shoal.spark.trust import refusal_of, refuse_credentials

__all__ = ["ShoalDataSource", "data_source"]


class ShoalDataSource(DataSource):
    """
    The data source ``format("shoal")``: batches and records of Kafka topics, in a cluster or an archive.

    :func:`data_source` returns the class to register for a session that has credentials.

    Examples:
        >>> import shoal
        >>> spark.dataSource.register(shoal.ShoalDataSource)
        >>> batches = (
        ...     spark.read.format("shoal")
        ...     .option("kafka.bootstrap.servers", "localhost:9092")
        ...     .option("subscribe", "orders")
        ...     .load()
        ... )
        >>> [(row.topic, row.partition, row.base_offset, row.last_offset) for row in batches.collect()]
        [('orders', 0, 0, 2)]

    """

    #: The reason why jobs may not have credentials; :func:`data_source` knows better.
    _refusal: str = (
        "shoal.ShoalDataSource does not know whether Spark's connections would reveal the credentials of the "
        "cluster. Register shoal.data_source(spark) in its place"
    )

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "shoal"

    def schema(self) -> StructType:
        """Return the schema of the rows; see :mod:`shoal.spark.rows`."""
        return row_kind(self.options.get("rows")).schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of ``spark.read``."""
        return BatchReader(self._read_options(streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of ``spark.readStream``."""
        return StreamReader(self._read_options(streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of ``df.write``."""
        return Writer(*self._writing(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of ``df.writeStream``."""
        return StreamWriter(*self._writing(schema))

    def _read_options(self, *, streaming: bool) -> ReadOptions:
        options = ReadOptions.parse(self.options, streaming=streaming)
        refuse_credentials(self._refusal, options.source)
        return options

    def _writing(self, schema: StructType) -> tuple[WriteOptions, ProducerIdentity]:
        """Return the options, and the identity with which all tasks of the job write."""
        if "batch" not in schema.names:
            raise ConfigError("these rows have no records to write. Read the rows with the option rows=bytes")
        options = WriteOptions.parse(self.options)
        refuse_credentials(self._refusal, options.destination)
        return options, new_writer(options.destination)


def data_source(spark: SparkSession) -> type[ShoalDataSource]:
    """
    Return the class for this session's ``spark.dataSource.register``.

    While Spark plans a job, the class refuses credentials that the session's connections would reveal.
    :class:`ShoalDataSource` refuses all credentials, since Spark does not give it the session's settings.

    Args:
        spark: The session that reads or writes.

    Examples:
        >>> import shoal
        >>> spark.dataSource.register(shoal.data_source(spark))
        >>> batches = (
        ...     spark.read.format("shoal")
        ...     .option("kafka.bootstrap.servers", "localhost:9092")
        ...     .option("subscribe", "orders")
        ...     .load()
        ... )
        >>> [(row.base_offset, row.records_count, row.codec) for row in batches.collect()]
        [(0, 3, 'gzip')]

    """
    context = spark.sparkContext
    refusal = refusal_of(str(context.master), context.getConf().get)

    class SessionDataSource(ShoalDataSource):
        _refusal = refusal

    return SessionDataSource
