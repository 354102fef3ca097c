"""
Write in the tasks, the sink half of ``format("shoal")``: archives, replays, experiments.

Batches come as rows, not as a range to copy, so there is no position to commit. Two things make a repeated
task harmless. The destination's tail: the rows up to the one that is there last are not written again. And
the identity: all attempts of a job's tasks write as one producer, with the sequence that follows the
producer's last one in the partition. If a request of a failed attempt arrives late, it is a duplicate, or out
of order. The broker does not write it again, as long as it remembers the producer. A broker forgets a
producer ``producer.id.expiration.ms`` after the timestamp of its newest record, and looks every ten minutes:
of old records it may forget between two requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import Row

from shoal.client.admin import IDEMPOTENT_WRITE, init_producer_id
from shoal.client.broker_state import last_sequence
from shoal.client.cluster import Cluster, patiently
from shoal.client.config import ClientConfig
from shoal.client.lot import Limits, Lot, Refused, open_gate
from shoal.client.offsets import EARLIEST, LATEST, answered, list_offsets, log_end_offsets
from shoal.client.scan import read_batches
from shoal.client.send import send
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, CorruptBatch, ShoalError, UnsupportedBatch
from shoal.mirroring.model.position import ProducerIdentity
from shoal.records import ENTRY, Decision, RecordBatch, decide, fingerprint, split, stamp, verify_crc
from shoal.spark.options import WriteOptions
from shoal.spark.trust import refuse_speculation
from shoal.topic_partition import TopicPartition

__all__ = ["StreamWriter", "Writer", "new_writer"]


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
        options = self._options
        name_of = options.names.destination_of
        written = write_rows(iterator, options.destination, name_of, options.allow_gaps, self._writer)
        return WrittenPartitions(tuple(written))

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


def new_writer(destination: ClientConfig) -> ProducerIdentity:
    """
    Return the identity that all attempts of all tasks of a job write with.

    Raises:
        ShoalError: The cluster has none for us.

    """
    with Cluster(destination) as cluster:
        patience_s = destination.timing.write_patience_s
        return ProducerIdentity(*patiently(lambda: init_producer_id(cluster), patience_s=patience_s))


def write_rows(
    rows: Iterable[Any],
    destination: ClientConfig,
    name_of: Callable[[str], str],
    allow_gaps: bool,
    writer: ProducerIdentity,
) -> Iterator[TopicPartition]:
    """
    Write rows with bytes, each partition's in the order of its offsets; yield the partitions of the rows.

    Args:
        rows: Each with ``topic``, ``partition`` and ``batch``; all of them are held in memory.
        destination: The cluster; its topics must be there.
        name_of: The destination topic of a row's.
        allow_gaps: Whether offsets may be missing between one batch and the next.
        writer: The same for each attempt (:func:`new_writer`).

    Raises:
        ShoalError: The rows overlap or leave a gap, a batch cannot be
            written as it is, or the cluster refuses one.

    """
    held = sorted(
        ((row.topic, row.partition, _only_batch(row)) for row in rows),
        key=lambda row: (row[0], row[1], row[2].header.base_offset),
    )
    for (topic, number), group in groupby(held, key=lambda row: row[:2]):
        batches = [batch for _, _, batch in group]
        _check_order(topic, number, batches, allow_gaps)
        with Cluster(destination) as cluster:
            _write_partition(cluster, TopicPartition(name_of(topic), number), batches, writer)
        yield TopicPartition(topic, number)


def _only_batch(row: Any) -> RecordBatch:
    """Check that a row holds one whole batch that can be written as it is."""
    view = memoryview(bytearray(row.batch))
    where = f"the row of {row.topic}-{row.partition}"
    batches = list(split(view))
    if len(batches) != 1 or len(batches[0].view) != len(view):
        raise CorruptBatch(f"{where} does not hold exactly one whole batch")
    batch = batches[0]
    decision = decide(batch.header, batch.header.base_offset, None)
    if decision is not Decision.COPY:
        raise UnsupportedBatch(
            f'{where} needs decoding ({decision.value}), which format("shoal") cannot do. Use shoal mirror',
            batch.header.base_offset,
        )
    verify_crc(batch)
    return batch


def _check_order(topic: str, number: int, batches: Sequence[RecordBatch], allow_gaps: bool) -> None:
    for before, after in pairwise(batches):
        expected, found = before.header.next_offset, after.header.base_offset
        if found < expected:
            raise ShoalError(
                f"{topic}-{number}: the batches at offsets {before.header.base_offset} and {found} overlap. "
                "Write each batch once"
            )
        if found > expected and not allow_gaps:
            raise ShoalError(
                f"{topic}-{number}: no batch has offsets {expected} to {found - 1}. If the gap is "
                "intended, such as a dropped transaction, set the option allowGaps=true"
            )


def _write_partition(
    cluster: Cluster, partition: TopicPartition, batches: Sequence[RecordBatch], writer: ProducerIdentity
) -> None:
    """Write the batches that are missing, one request at a time."""
    cluster.refresh([partition.topic])
    patience_s = cluster.config.timing.write_patience_s
    # Before the log's end: a late request that arrives between the two makes the sequences not fit, and
    # nothing is written. In the other order ours would follow that request, and double its batch.
    last = patiently(lambda: _last_sequence(cluster, partition, writer.producer_id), patience_s=patience_s)
    start, end = patiently(lambda: bounds_of(cluster, partition), patience_s=patience_s)
    written = _already_written(cluster, partition, batches, start, end)
    if written == len(batches):
        return
    # Without a last sequence, it is the offset: a request that arrives late has the same.
    identity = writer if last is None else replace(writer, base=end - last - 1)
    leader = cluster.partition(partition).leader
    with cluster.connect(leader, abort_on_close=True) as connection:
        for batch in batches[written:]:
            # One request at a time: the broker may forget a producer of old records between two. A login
            # that ends meanwhile is renewed before the next one.
            lot = _stamped_lot(partition, batch, identity, end)
            sent = send(connection, [lot], Limits(0), open_gate())
            if sent.failure is not None:
                raise sent.failure
            if sent.refused:
                raise _refused(sent.refused[0], batch, partition, end, cluster)
            end += batch.header.records_count


def _stamped_lot(
    partition: TopicPartition, batch: RecordBatch, identity: ProducerIdentity, offset: int
) -> Lot:
    """Stamp a batch that is to land at an offset."""
    header, view = batch
    stamp(batch, identity.producer_id, identity.producer_epoch, identity.sequence(offset))
    entry = ENTRY.pack(len(view), header.records_count, header.max_timestamp, header.leader_epoch)
    return Lot(partition, [view], entry, offset)


def _refused(
    refusal: Refused, batch: RecordBatch, partition: TopicPartition, expected: int, cluster: Cluster
) -> ShoalError:
    if refusal.error_code:
        where = f"writing the batch at offset {batch.header.base_offset} to {partition} on {cluster}"
        return BrokerError(refusal.error_code, where, refusal.message, IDEMPOTENT_WRITE)
    return ShoalError(
        f"{partition} on {cluster}: a batch landed at offset {refusal.base_offset} instead of "
        f"{expected}: another program writes there, or rows of one partition are in several tasks "
        '(df.repartition("topic", "partition") puts them in one)'
    )


def _last_sequence(cluster: Cluster, partition: TopicPartition, producer_id: int) -> int | None:
    try:
        return last_sequence(cluster, partition, producer_id)
    except BrokerError as error:
        if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return None  # to write takes no READ; a sequence that does not fit is refused
        cluster.refresh([partition.topic])
        raise


def bounds_of(cluster: Cluster, partition: TopicPartition) -> tuple[int, int]:
    answers = (
        list_offsets(cluster, {partition: EARLIEST}),
        log_end_offsets(cluster, [partition]),
        list_offsets(cluster, {partition: LATEST}),
    )
    try:
        start, end, high_watermark = (answered(each)[partition] for each in answers)
    except ShoalError:
        cluster.refresh([partition.topic])
        raise
    if high_watermark < end:
        # Records of a former attempt cannot be read yet, and an election may remove them.
        where = f"{partition} on {cluster}: high watermark {high_watermark}, log end {end}"
        raise BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, where)
    return start, end


def _already_written(
    cluster: Cluster, partition: TopicPartition, batches: Sequence[RecordBatch], start: int, end: int
) -> int:
    """Return how many of the batches, from the first on, a former attempt left at the destination's end."""
    records = sum(each.header.records_count for each in batches)
    if start == end:
        return 0
    # A late request may have arrived behind the end meanwhile: our sequences count from the end.
    found = read_batches(cluster, partition, max(start, end - records))
    tail = [fingerprint(each) for each in found if each.header.base_offset < end]
    prints = [fingerprint(each) for each in batches]
    for count in range(min(len(tail), len(prints)), 0, -1):
        if tail[-count:] == prints[:count]:
            return count
    return 0
