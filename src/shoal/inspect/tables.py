"""The tables of an inspection, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterator

from ..static_page import Column, Row, Table
from .facts import Facts, half_below
from .report import ClusterReport

__all__ = ["MOST_PRODUCERS_SHOWN", "sizes_table", "tables"]

#: The topics whose batches are shown by size: those with the most bytes.
_MOST_SIZED = 12

#: The producers of a topic in its table: those with the most batches.
MOST_PRODUCERS_SHOWN = 5


def tables(report: ClusterReport) -> Iterator[Table]:
    """Yield the tables that have rows."""
    topics = [each for each in report.topics if each.batches or each.control_batches]
    producers = [row for each in topics for row in _producer_rows(each)]
    opened = [row for each in topics for row in _open_rows(each)]
    found = [
        Table("Batches", _OF_BATCHES, _BATCHES, [_batches_row(each) for each in topics]),
        Table("Writers", _OF_WRITERS, _WRITERS, [_writers_row(each) for each in topics]),
        Table("Logs", _OF_LOGS, _LOGS, [_logs_row(each) for each in topics]),
        Table("Producers with the most batches", _OF_PRODUCERS, _PRODUCERS, producers),
        Table("Open transactions", _OF_OPEN, _OPEN, opened),
    ]
    yield from (each for each in found if each.rows)


def sizes_table(report: ClusterReport) -> Table:
    """Return the batches of the largest topics by size: too long for a terminal."""
    largest = sorted(report.topics, key=lambda each: -each.size * each.scale)[:_MOST_SIZED]
    rows = [row for each in largest for row in _size_rows(each)]
    caption = f"In bytes, as stored, of the {_MOST_SIZED} topics with the most bytes."
    return Table("Batch sizes", caption, _SIZES, rows)


_SIZES = {"topic": Column.NAME, "size": Column.NUMBER, "batches": Column.NUMBER, "share": Column.SHARE}


def _size_rows(topic: Facts) -> Iterator[Row]:
    sizes = topic.sizes
    for bits in range(min(sizes, default=0), max(sizes, default=-1) + 1):
        size = f"{1 << bits - 1:,} to {1 << bits:,}"
        yield topic.topic, size, sizes[bits], sizes[bits] / topic.batches


_OF_BATCHES = (
    "Sizes are in bytes, as they are stored. Half of the batches are smaller than the number in the column "
    "'half below'. The ratio is that of the batches that were decompressed."
)
_OF_WRITERS = "The shares are of batches. Commits and aborts are transaction markers."
_OF_LOGS = (
    "Times are in UTC. A batch in the future is more than an hour ahead, and a batch that goes backwards is "
    "older than the batch in front of it."
)
_OF_PRODUCERS = f"At most {MOST_PRODUCERS_SHOWN} of each topic, of the batches that were read."
_OF_OPEN = "No marker ends them. The coordinator of a hanging one does not have it, so none will."

_BATCHES = {
    "topic": Column.NAME,
    "partitions": Column.NUMBER,
    "read": Column.PERCENT,
    "records": Column.NUMBER,
    "batches": Column.NUMBER,
    "bytes a batch": Column.NUMBER,
    "half below": Column.NUMBER,
    "records a batch": Column.NUMBER,
    "codec": Column.TEXT,
    "ratio": Column.TEXT,
}


def _batches_row(topic: Facts) -> Row:
    ratio = "" if topic.ratio is None else f"{topic.ratio:.2f}"
    measured = sum(each.batches for each in topic.ratios.values())
    return (
        topic.topic,
        topic.partitions,
        topic.share_read,
        topic.records,
        topic.batches,
        round(topic.bytes_a_batch),
        half_below(topic.sizes),
        round(topic.records_a_batch, 1),
        topic.codec_shares,
        f"{ratio} (of {measured})" if measured else ratio,
    )


_WRITERS = {
    "topic": Column.NAME,
    "producer ids": Column.NUMBER,
    "idempotent": Column.PERCENT,
    "transactional": Column.PERCENT,
    "commits": Column.NUMBER,
    "aborts": Column.NUMBER,
    "open": Column.NUMBER,
    "hanging": Column.NUMBER,
}


def _writers_row(topic: Facts) -> Row:
    return (
        topic.topic,
        f"more than {topic.producer_ids:,}" if topic.other_batches else topic.producer_ids,
        _share(topic.idempotent, topic.batches),
        _share(topic.transactional, topic.batches),
        topic.commits,
        topic.aborts,
        len(topic.open_transactions),
        sum(each.is_hanging for each in topic.open_transactions),
    )


_LOGS = {
    "topic": Column.NAME,
    "oldest": Column.TIME,
    "newest": Column.TIME,
    "in the future": Column.TEXT,
    "backwards": Column.TEXT,
    "removed by compaction": Column.NUMBER,
    "old formats": Column.NUMBER,
    "leader epochs": Column.TEXT,
}


def _logs_row(topic: Facts) -> Row:
    epochs = sorted(each for each in topic.leader_epochs if each >= 0)
    return (
        topic.topic,
        topic.oldest_ms,
        topic.newest_ms,
        _count(topic.future_batches, topic.most_ahead_ms),
        _count(topic.backward_batches, topic.most_backward_ms),
        topic.removed_inside + topic.removed_between,
        topic.magics[0] + topic.magics[1],
        f"{len(epochs)}, {epochs[0]} to {epochs[-1]}" if len(epochs) > 1 else "".join(map(str, epochs)),
    )


_PRODUCERS = {
    "topic": Column.NAME,
    "producer id": Column.TEXT,
    "batches": Column.NUMBER,
    "records": Column.NUMBER,
    "bytes": Column.NUMBER,
    "bytes a batch": Column.NUMBER,
    "transactional": Column.PERCENT,
}


def _producer_rows(topic: Facts) -> Iterator[Row]:
    for producer_id, each in topic.most_producers(MOST_PRODUCERS_SHOWN):
        name, mean = "none" if producer_id < 0 else str(producer_id), round(each.size / each.batches)
        share = _share(each.transactional, each.batches)
        yield topic.topic, name, each.batches, each.records, each.size, mean, share


_OPEN = {
    "partition": Column.NAME,
    "producer id": Column.TEXT,
    "first offset": Column.TEXT,
    "last batch": Column.TIME,
    "held back": Column.NUMBER,
    "hanging": Column.TEXT,
}


def _open_rows(topic: Facts) -> Iterator[Row]:
    for each in topic.open_transactions:
        ids, is_hanging = (str(each.producer_id), str(each.first_offset)), "yes" if each.is_hanging else "no"
        yield str(each.partition), *ids, each.last_ms, each.held_back, is_hanging


def _share(count: int, total: int) -> float | None:
    return count / total if total else None


def _count(batches: int, most_ms: int) -> str:
    return f"{batches:,} (up to {most_ms / 1000:,.0f} s)" if batches else "0"
