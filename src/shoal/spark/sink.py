"""Copy or write in the tasks: the sink half of ``format("shoal")``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import Row

from shoal.errors import ConfigError, PartitionStopped, ShoalError
from shoal.mirroring.control import Control, ControlConnection, Uncontrolled
from shoal.mirroring.lane import copy_lane
from shoal.mirroring.ranges import CopyRange
from shoal.mirroring.write import WrittenRun, write_rows
from shoal.spark.options import WriteOptions
from shoal.spark.rows import is_by_reference

__all__ = ["StreamWriter", "Writer"]


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task wrote, for the driver: runs of rows with bytes; partitions that were stopped."""

    runs: tuple[WrittenRun, ...] = ()
    stopped: tuple[PartitionStopped, ...] = ()


class _Sink:
    """What both writers do. Pickled on the driver for the tasks: it holds nothing but options."""

    def __init__(self, options: WriteOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._by_reference = is_by_reference(list(columns))
        if self._by_reference and options.copy is None:
            raise ConfigError(
                "rows by reference are copied from the source cluster: name it with the options "
                "source.kafka.bootstrap.servers and group, or read the rows with the option rows=bytes"
            )

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Copy what the rows of one task refer to, or write what they hold. Runs in the task."""
        if self._by_reference:
            return self._copy(list(iterator))
        return Written(
            runs=tuple(
                write_rows(iterator, self._options.destination, self._mapping, self._options.allow_gaps)
            )
        )

    def _mapping(self, topic: str) -> str:
        return self._options.topic_mapping().destination_of(topic)

    def _copy(self, rows: Sequence[Row]) -> Written:
        if not rows:
            return Written()  # a task without a row: there was nothing to plan
        assert self._options.copy is not None
        mapping = self._options.topic_mapping()
        ranges = [
            CopyRange(
                row.topic, row.partition, mapping.destination_of(row.topic), row.start_offset, row.end_offset
            )
            for row in rows
        ]
        address = self._options.control
        if address is None:
            return self._copy_lane(ranges, Uncontrolled())
        with ControlConnection((address.host, address.port), address.token) as control:
            return self._copy_lane(ranges, control)

    def _copy_lane(self, ranges: Sequence[CopyRange], control: Control) -> Written:
        assert self._options.copy is not None
        result = copy_lane(ranges, self._options.copy, control)
        if result.stopped and self._options.control is None:
            # Nobody else would tell the user.
            raise ShoalError("; ".join(map(str, result.stopped)))
        return Written(stopped=result.stopped)

    def _check_tasks(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Refuse rows of one partition that came in several tasks: their order is anybody's guess."""
        seen: set[tuple[str, int]] = set()
        for message in messages:
            partitions = (
                {(run.topic, run.partition) for run in message.runs}
                if isinstance(message, Written)
                else set()
            )
            twice = seen & partitions
            if twice:
                topic, partition = min(twice)
                raise ShoalError(
                    f"the rows of {topic}-{partition} came in several tasks, so their order at the "
                    'destination is not that of the offsets; write df.repartition("topic", "partition")'
                )
            seen |= partitions


class Writer(_Sink, DataSourceWriter):
    """``df.write``"""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Check what the tasks wrote. Runs on the driver."""
        self._check_tasks(messages)


class StreamWriter(_Sink, DataSourceStreamWriter):
    """``df.writeStream``"""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Check what the tasks of a micro-batch wrote. Runs on the driver."""
        self._check_tasks(messages)
