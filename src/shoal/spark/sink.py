"""Write in the tasks: the sink half of ``format("shoal")``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import Row

from shoal.errors import ShoalError
from shoal.mirroring.model.position import ProducerIdentity
from shoal.spark.options import WriteOptions
from shoal.spark.trust import refuse_speculation
from shoal.spark.write_rows import write_rows
from shoal.topic_partition import TopicPartition

__all__ = ["StreamWriter", "Writer"]


@dataclass(frozen=True)
class WrittenPartitions(WriterCommitMessage):
    """The source partitions that a task wrote, for the driver."""

    partitions: tuple[TopicPartition, ...] = ()


class _Sink:
    """The base of both writers. Spark pickles it for the tasks: options, and one identity for all tasks."""

    def __init__(self, options: WriteOptions, writer: ProducerIdentity) -> None:
        self._options = options
        self._writer = writer

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Write the batches of one task's rows. Runs in the task."""
        if context := TaskContext.get():
            refuse_speculation(context.getLocalProperty)
        destination = self._options.destination
        written = write_rows(iterator, destination, self._mapping, self._options.allow_gaps, self._writer)
        return WrittenPartitions(tuple(written))

    def _mapping(self, topic: str) -> str:
        return self._options.topic_mapping().destination_of(topic)

    def _check_tasks(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Refuse rows of one partition in several tasks, since their order is undefined."""
        seen: set[TopicPartition] = set()
        for message in messages:
            partitions = set(message.partitions) if isinstance(message, WrittenPartitions) else set()
            twice = seen & partitions
            if twice:
                raise ShoalError(
                    f"the rows of {min(twice)} came in several tasks, so their order at the "
                    'destination is not that of the offsets. Write df.repartition("topic", "partition")'
                )
            seen |= partitions


class Writer(_Sink, DataSourceWriter):
    """The writer of ``df.write``."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Check the partitions that the tasks wrote. Runs on the driver."""
        self._check_tasks(messages)


class StreamWriter(_Sink, DataSourceStreamWriter):
    """The writer of ``df.writeStream``."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Check the partitions that the tasks of a micro-batch wrote. Runs on the driver."""
        self._check_tasks(messages)
