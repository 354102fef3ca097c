"""
Find out where the destination really is, before anything is sent to it.

After a start, a restart, a retry by Spark or an unknown outcome, the pair says
where the mirror was, and the destination's log end says how much was written
after that. Exactly so many records are skipped in the source. The last batch
must be the one that the source has there; where it is not, somebody else
wrote, or a tail was lost, and the partition is stopped with a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..client.admin import init_producer_id
from ..client.cluster import Cluster
from ..client.metadata import TopicPartition
from ..client.offsets import EARLIEST, LATEST, list_offsets, log_end_offsets
from ..errors import BrokerError, ErrorCode, PartitionStopped, ShoalError
from ..records import BatchHeader, Decision, Fingerprint, RecordBatch, fingerprint
from .pair import Identity, Pair
from .partition_copy import PartitionCopy, add_run
from .positions import Positions
from .reading import read_batches, read_decided, why_out_of_range
from .settings import CopySettings

__all__ = ["realign"]


@dataclass(frozen=True, slots=True)
class _Log:
    """A partition's log at the destination: its first offset, and the one after its last record."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Clusters:
    source: Cluster
    destination: Cluster
    positions: Positions
    settings: CopySettings


def realign(
    copies: Sequence[PartitionCopy],
    source: Cluster,
    destination: Cluster,
    positions: Positions,
    settings: CopySettings,
) -> dict[TopicPartition, ShoalError]:
    """
    Put each partition where its destination is. Nothing may be in flight, and both metadata are fresh.

    A partition that was aligned before in this process goes on from what it
    knows; the others from their committed pair. One without a pair begins,
    and its first pair is committed before this returns.

    Returns:
        For each source partition that could not be aligned, why:
        :class:`~shoal.errors.PartitionStopped`, or what time can heal.

    """
    clusters = _Clusters(source, destination, positions, settings)
    # The pairs first: an orphan may still commit, and a pair ahead of its log looks like a lost tail.
    committed = positions.read(copy.source for copy in copies if copy.pair is None)
    logs, errors = _destination_logs(destination, copies)
    source_ends = log_end_offsets(source, [copy.source for copy in copies])
    beginnings: dict[TopicPartition, Pair] = {}
    aligned: list[tuple[PartitionCopy, Pair]] = []
    for copy in copies:
        if copy.source in errors:
            continue
        try:
            pair = copy.pair or committed.get(copy.source)
            if pair is None:
                pair = beginnings[copy.source] = _begin(clusters, copy, logs[copy.destination])
            else:
                _check_same_mirror(clusters, copy, pair)
                _check_not_truncated(clusters, copy, pair, source_ends[copy.source])
                pair = _resume(clusters, copy, pair, logs[copy.destination])
            aligned.append((copy, pair))
        except ShoalError as error:
            errors[copy.source] = error
    if beginnings:
        errors.update(positions.commit(beginnings))
    for copy, pair in aligned:
        if copy.source not in errors:
            copy.align(pair)
    return errors


def _destination_logs(
    destination: Cluster, copies: Sequence[PartitionCopy]
) -> tuple[dict[TopicPartition, _Log], dict[TopicPartition, ShoalError]]:
    """Ask for the logs' ends; one whose high watermark lags behind is not to be trusted yet."""
    partitions = [copy.destination for copy in copies]
    ends = log_end_offsets(destination, partitions)
    high_watermarks = list_offsets(destination, dict.fromkeys(partitions, LATEST))
    starts = list_offsets(destination, dict.fromkeys(partitions, EARLIEST))
    logs, errors = {}, {}
    for copy in copies:
        answers = (ends[copy.destination], high_watermarks[copy.destination], starts[copy.destination])
        end, high_watermark, start = answers
        if (
            isinstance(end, ShoalError)
            or isinstance(high_watermark, ShoalError)
            or isinstance(start, ShoalError)
        ):
            errors[copy.source] = next(each for each in answers if isinstance(each, ShoalError))
        elif high_watermark < end:
            # An election could still take back what lies between the two.
            where = f"{copy.destination} on {destination}: high watermark {high_watermark}, log end {end}"
            errors[copy.source] = BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, where)
        else:
            logs[copy.destination] = _Log(start, end)
    return logs, errors


# Without a pair


def _begin(clusters: _Clusters, copy: PartitionCopy, log: _Log) -> Pair:
    """Choose where the mirror of a partition begins, and who writes."""
    start_offset, last_batch = copy.range.start_offset, None
    if log.start < log.end:
        # Also where any records are allowed: those of a mirror whose pair
        # expired must not be copied a second time.
        found, crc = _find_tail(clusters, copy, log)
        if len(found) == 1:
            start_offset, last_batch = found[0], crc
        elif not clusters.settings.allow_nonempty:
            times = "is not in the source" if not found else f"is {len(found)} times in the source"
            raise _no_pair(
                clusters, copy, f"holds records up to offset {log.end}, and its last batch {times}"
            )
    elif log.end > 0 and not clusters.settings.allow_nonempty:
        raise _no_pair(clusters, copy, f"held records up to offset {log.end}, all deleted since")
    producer_id, producer_epoch = init_producer_id(clusters.destination)
    return Pair(
        source_offset=start_offset,
        destination_offset=log.end,
        identity=Identity(producer_id, producer_epoch),
        origin=(start_offset, log.end),
        last_batch=last_batch,
        source_topic_id=_topic_id(clusters.source, copy.source),
        destination_topic_id=_topic_id(clusters.destination, copy.destination),
        destination_leader_epoch=clusters.destination.partition(copy.destination).leader_epoch,
        rules=clusters.settings.rules,
    )


def _no_pair(clusters: _Clusters, copy: PartitionCopy, what: str) -> PartitionStopped:
    return _refusal(
        copy,
        copy.range.start_offset,
        f"the group {clusters.settings.group!r} has no committed pair for it, and {copy.destination} on "
        f"{clusters.destination} {what}; mirror into an empty topic (--rename), or give --allow-nonempty to "
        "copy behind what is there",
    )


def _find_tail(clusters: _Clusters, copy: PartitionCopy, log: _Log) -> tuple[list[int], int]:
    """Find the destination's last batch in the source: each time the next source offset; and its CRC."""
    header, wanted = _last_batch(clusters, copy, log)
    # Looked for by time, then everywhere: on a LogAppendTime topic the two
    # sides' times differ.
    timestamp = header.max_timestamp if not header.is_log_append_time else -1
    by_time = list_offsets(clusters.source, {copy.source: timestamp})[copy.source] if timestamp >= 0 else -1
    earliest = list_offsets(clusters.source, {copy.source: EARLIEST})[copy.source]
    if isinstance(by_time, ShoalError) or isinstance(earliest, ShoalError):
        raise by_time if isinstance(by_time, ShoalError) else earliest  # type: ignore[misc]
    found = _search(clusters, copy, wanted, max(by_time, earliest))
    if not found and by_time > earliest:
        found = _search(clusters, copy, wanted, earliest)
    return found, wanted.crc


def _search(clusters: _Clusters, copy: PartitionCopy, wanted: Fingerprint, offset: int) -> list[int]:
    return [
        batch.header.next_offset
        for batch in read_batches(clusters.source, copy.source, offset)
        if batch.header.magic == 2 and batch.header.size == wanted.size and fingerprint(batch) == wanted
    ]


# With a pair


def _resume(clusters: _Clusters, copy: PartitionCopy, pair: Pair, log: _Log) -> Pair:
    """Return the pair that describes the destination as it is now."""
    written = log.end - pair.destination_offset
    if written < 0:
        raise _refusal(
            copy,
            pair.source_offset,
            f"{copy.destination} on {clusters.destination} ends at offset {log.end}, but what was mirrored "
            f"and acknowledged ends at {pair.destination_offset}: the destination lost its tail (unclean "
            "leader election?)",
        )
    if written > 0:
        return _skip_written(clusters, copy, pair, log)
    if pair.last_batch is not None and log.start < log.end:
        header, found = _last_batch(clusters, copy, log)
        if found.crc != pair.last_batch and not _is_ours(header, pair.identity):
            raise _refusal(
                copy,
                pair.source_offset,
                f"the last batch of {copy.destination} on {clusters.destination}, at offset "
                f"{header.base_offset}, is not the one that was mirrored last: somebody else wrote there",
            )
    return pair


def _check_not_truncated(
    clusters: _Clusters, copy: PartitionCopy, pair: Pair, source_end: int | ShoalError
) -> None:
    if isinstance(source_end, ShoalError):
        raise source_end
    if source_end < pair.source_offset:
        raise _refusal(
            copy,
            pair.source_offset,
            f"its log on {clusters.source} ends at offset {source_end}, before what was mirrored already: "
            "the source lost its tail (unclean leader election?), or the topic was created anew; mirror it "
            "with a new --group into an empty topic",
        )


def _check_same_mirror(clusters: _Clusters, copy: PartitionCopy, pair: Pair) -> None:
    for cluster, partition, then in (
        (clusters.source, copy.source, pair.source_topic_id),
        (clusters.destination, copy.destination, pair.destination_topic_id),
    ):
        now = _topic_id(cluster, partition)
        if then and now and then != now:
            raise _refusal(
                copy,
                pair.source_offset,
                f"topic {partition.topic} on {cluster} was deleted and created again since it was mirrored "
                f"(its id was {then} and is {now}); mirror it with a new --group, or under another name",
            )
    if pair.rules != clusters.settings.rules:
        raise _refusal(
            copy,
            pair.source_offset,
            f"group {clusters.settings.group!r} mirrored it by other rules (isolation.level and the like "
            "decide what is copied); use the options of then, or a new --group into an empty topic",
        )


def _skip_written(clusters: _Clusters, copy: PartitionCopy, pair: Pair, log: _Log) -> Pair:
    """Walk the source from the pair over exactly what the destination has past it."""
    if log.start >= log.end:
        raise _refusal(
            copy,
            pair.source_offset,
            f"{copy.destination} on {clusters.destination} holds nothing any more of what was mirrored from "
            f"offset {pair.destination_offset} to {log.end} and not committed: retention took it, so nothing "
            "shows whose it was; mirror it with a new --group (--start says from where)",
        )
    try:
        found = _follow(clusters, copy, pair, log)
    except BrokerError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        sentence = why_out_of_range(clusters.source, copy.source, pair.source_offset)
        raise _refusal(copy, pair.source_offset, sentence) from error
    if found is None:
        raise _refusal(
            copy,
            pair.source_offset,
            f"{copy.destination} on {clusters.destination} holds records from offset "
            f"{pair.destination_offset} to {log.end} that are not what follows source offset "
            f"{pair.source_offset}: somebody else wrote there",
        )
    return found


def _follow(clusters: _Clusters, copy: PartitionCopy, pair: Pair, log: _Log) -> Pair | None:
    landed = pair.destination_offset
    level = clusters.settings.source.isolation_level
    runs: list[list[int]] = []
    for decision, batch in read_decided(clusters.source, copy.source, pair.source_offset, level):
        if decision.is_drop:
            continue
        header = batch.header
        if decision is not Decision.COPY or landed + header.records_count > log.end:
            return None
        add_run(runs, header.base_offset, header.next_offset, landed)
        if landed + header.records_count == log.end:
            if not _is_at_end(clusters, copy, pair, log, batch, landed):
                return None
            for run in runs:  # nobody was told of these: their acknowledgements were lost
                copy.extend_runs(*run)
            return replace(
                pair,
                source_offset=header.next_offset,
                destination_offset=log.end,
                last_batch=fingerprint(batch).crc,
            )
        landed += header.records_count
    return None


def _is_at_end(
    clusters: _Clusters, copy: PartitionCopy, pair: Pair, log: _Log, batch: RecordBatch, landed: int
) -> bool:
    """Whether the destination's last batch is the copy of a source batch."""
    header, found = _last_batch(clusters, copy, log)
    if found == fingerprint(batch):
        return True
    # A broker that recompresses keeps the producer's identity and the count.
    return (
        header.codec_id != batch.header.codec_id
        and header.base_offset == landed
        and header.records_count == batch.header.records_count
        and _is_ours(header, pair.identity)
    )


def _last_batch(clusters: _Clusters, copy: PartitionCopy, log: _Log) -> tuple[BatchHeader, Fingerprint]:
    """Return the batch that ends where the log ended when it was asked; it may have grown since."""
    try:
        for batch in read_batches(clusters.destination, copy.destination, log.end - 1):
            return batch.header, fingerprint(batch)
    except BrokerError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
    # Deleted by retention between two answers.
    raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{copy.destination} on {clusters.destination}")


def _is_ours(header: BatchHeader, identity: Identity) -> bool:
    """Whether a batch was written by a producer identity at the place that its sequence says."""
    return (
        header.producer_id == identity.producer_id
        and header.producer_epoch == identity.producer_epoch
        and header.base_sequence == identity.sequence(header.base_offset)
    )


def _topic_id(cluster: Cluster, partition: TopicPartition) -> str | None:
    topic = cluster.metadata.topics.get(partition.topic)
    return str(topic.topic_id) if topic and topic.topic_id else None


def _refusal(copy: PartitionCopy, offset: int, reason: str) -> PartitionStopped:
    return PartitionStopped(*copy.source, offset, reason)
