"""Copy or write in the tasks: the sink half of ``format("shoal")``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import Row

from shoal.errors import ConfigError, ShoalError
from shoal.mirroring.control import Uncontrolled
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.task.task import run_copy_task
from shoal.mirrormaker.task import run_handler_task
from shoal.spark.connections import refuse_revealing_in_task
from shoal.spark.first_sentence import sentence_first
from shoal.spark.options import WriteOptions
from shoal.spark.rows import is_by_reference
from shoal.spark.speculation import refuse_speculation_in_task
from shoal.spark.write_rows import new_writer, write_rows
from shoal.topic_partition import TopicPartition

__all__ = ["StreamWriter", "Writer"]


@dataclass(frozen=True)
class WrittenPartitions(WriterCommitMessage):
    """The source partitions that a task copied or wrote, for the driver."""

    partitions: tuple[TopicPartition, ...] = ()


@sentence_first
class _Sink:
    """The base of both writers. Spark pickles it for the tasks: options, and one identity for all tasks."""

    def __init__(self, options: WriteOptions, columns: Sequence[str]) -> None:
        self._options = options
        if "size_bytes" in columns:
            raise ConfigError(
                "rows with headers have no records to write. Read with rows=reference or rows=bytes"
            )
        self._by_reference = is_by_reference(list(columns))
        if self._by_reference and options.copy is None:
            raise ConfigError(
                "rows by reference are copied from the source cluster: name it with the options "
                "source.kafka.bootstrap.servers and group, or read the rows with the option rows=bytes"
            )
        self._writer = None if self._by_reference else new_writer(options.destination)

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Copy the offsets of one task's rows, or write their batches. Runs in the task."""
        refuse_speculation_in_task()
        refuse_revealing_in_task(self._options)
        if self._by_reference:
            return self._copy(list(iterator))
        assert self._writer is not None
        destination = self._options.destination
        runs = write_rows(iterator, destination, self._mapping, self._options.allow_gaps, self._writer)
        return WrittenPartitions(tuple(TopicPartition(run.topic, run.partition) for run in runs))

    def _mapping(self, topic: str) -> str:
        return self._options.topic_mapping().destination_of(topic)

    def _copy(self, rows: Sequence[Row]) -> WrittenPartitions:
        if not rows:
            return WrittenPartitions()  # the plan had no rows for this task
        assert self._options.copy is not None
        mapping = self._options.topic_mapping()
        ranges = [
            CopyRange(
                row.topic, row.partition, mapping.destination_of(row.topic), row.start_offset, row.end_offset
            )
            for row in rows
        ]
        _check_once(ranges)
        run = run_handler_task if self._options.copy.handling else run_copy_task
        result = run(ranges, self._options.copy, Uncontrolled())
        if result.stopped:
            # Without a driver, this error is the user's only notice.
            raise ShoalError(". ".join(map(str, result.stopped)))
        return WrittenPartitions(tuple(each.source for each in ranges))

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


def _check_once(ranges: Sequence[CopyRange]) -> None:
    """Refuse two rows that read from, or write to, the same partition."""
    for partitions in ([each.source for each in ranges], [each.destination for each in ranges]):
        twice = [partition for partition, count in Counter(partitions).items() if count > 1]
        if twice:
            raise ShoalError(f"several rows copy {twice[0]}. Give one row for each partition")


@sentence_first
class Writer(_Sink, DataSourceWriter):
    """The writer of ``df.write``."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Check the partitions that the tasks wrote. Runs on the driver."""
        self._check_tasks(messages)


@sentence_first
class StreamWriter(_Sink, DataSourceStreamWriter):
    """The writer of ``df.writeStream``."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Check the partitions that the tasks of a micro-batch wrote. Runs on the driver."""
        self._check_tasks(messages)
