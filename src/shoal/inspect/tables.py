"""The tables of an inspection, for a terminal and for a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from ..static_page import Column, Table
from .report import ClusterReport
from .topic_report import TopicReport

__all__ = ["MOST_PRODUCERS_SHOWN", "tables"]

#: The producers of a topic in its table: those with the most batches.
MOST_PRODUCERS_SHOWN = 5

_NONE = ""


def tables(report: ClusterReport) -> Iterator[Table]:
    """Yield the tables that have rows."""
    topics = [each for each in report.topics if each.facts.batches or each.facts.control_batches]
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
    "read": Column.NUMBER,
    "records": Column.NUMBER,
    "batches": Column.NUMBER,
    "bytes a batch": Column.NUMBER,
    "half below": Column.NUMBER,
    "records a batch": Column.NUMBER,
    "codec": Column.TEXT,
    "ratio": Column.TEXT,
}


def _batches_row(topic: TopicReport) -> Sequence[str]:
    facts = topic.facts
    ratio = _NONE if topic.ratio is None else f"{topic.ratio:.2f}"
    measured = sum(each.batches for each in facts.ratios.values())
    return (
        topic.topic,
        f"{topic.partitions:,}",
        f"{topic.share_read:.0%}",
        f"{facts.records:,}",
        f"{facts.batches:,}",
        f"{topic.bytes_a_batch:,.0f}",
        f"{topic.median_below:,}",
        f"{topic.records_a_batch:,.1f}",
        _shares(facts.codecs),
        f"{ratio} (of {measured})" if measured else ratio,
    )


_WRITERS = {
    "topic": Column.NAME,
    "producer ids": Column.NUMBER,
    "idempotent": Column.NUMBER,
    "transactional": Column.NUMBER,
    "commits": Column.NUMBER,
    "aborts": Column.NUMBER,
    "open": Column.NUMBER,
    "hanging": Column.NUMBER,
}


def _writers_row(topic: TopicReport) -> Sequence[str]:
    facts = topic.facts
    more = "more than " if facts.other_batches else ""
    return (
        topic.topic,
        f"{more}{topic.producer_ids:,}",
        _share(facts.idempotent, facts.batches),
        _share(facts.transactional, facts.batches),
        f"{facts.commits:,}",
        f"{facts.aborts:,}",
        f"{len(topic.open_transactions):,}",
        f"{sum(each.is_hanging for each in topic.open_transactions):,}",
    )


_LOGS = {
    "topic": Column.NAME,
    "oldest": Column.TEXT,
    "newest": Column.TEXT,
    "in the future": Column.TEXT,
    "backwards": Column.TEXT,
    "removed by compaction": Column.TEXT,
    "old formats": Column.TEXT,
    "leader epochs": Column.TEXT,
}


def _logs_row(topic: TopicReport) -> Sequence[str]:
    facts = topic.facts
    removed = facts.removed_inside + topic.removed_between
    old = Counter({f"magic {magic}": count for magic, count in facts.magics.items() if magic < 2})
    return (
        topic.topic,
        _time(facts.oldest_ms),
        _time(facts.newest_ms),
        _count(facts.future_batches, facts.most_ahead_ms),
        _count(facts.backward_batches, facts.most_backward_ms),
        f"{removed:,} offsets" if removed else "0",
        ", ".join(f"{count:,} {name}" for name, count in sorted(old.items())) or "0",
        _epochs(facts.leader_epochs),
    )


_PRODUCERS = {
    "topic": Column.NAME,
    "producer id": Column.TEXT,
    "batches": Column.NUMBER,
    "records": Column.NUMBER,
    "bytes": Column.NUMBER,
    "bytes a batch": Column.NUMBER,
    "transactional": Column.NUMBER,
}


def _producer_rows(topic: TopicReport) -> Iterator[Sequence[str]]:
    for producer_id, each in topic.producers()[:MOST_PRODUCERS_SHOWN]:
        yield (
            topic.topic,
            "none" if producer_id < 0 else f"{producer_id}",
            f"{each.batches:,}",
            f"{each.records:,}",
            f"{each.size:,}",
            f"{each.size / each.batches:,.0f}",
            _share(each.transactional, each.batches),
        )


_OPEN = {
    "partition": Column.NAME,
    "producer id": Column.TEXT,
    "first offset": Column.NUMBER,
    "last batch": Column.TEXT,
    "held back": Column.NUMBER,
    "hanging": Column.TEXT,
}


def _open_rows(topic: TopicReport) -> Iterator[Sequence[str]]:
    for each in topic.open_transactions:
        yield (
            str(each.partition),
            f"{each.producer_id}",
            f"{each.first_offset}",
            _time(each.last_ms),
            f"{each.held_back:,}",
            "yes" if each.is_hanging else "no",
        )


def _shares(counts: Counter[str]) -> str:
    total = counts.total()
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{name} {count / total:.0%}" for name, count in counts.most_common())


def _share(count: int, total: int) -> str:
    return f"{count / total:.0%}" if total else _NONE


def _time(timestamp_ms: int | None) -> str:
    """Return a time in UTC; nothing for one that is unknown or beyond the calendar."""
    if timestamp_ms is None or timestamp_ms < 0:
        return _NONE
    try:
        return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


def _count(batches: int, most_ms: int) -> str:
    return f"{batches:,} (up to {most_ms / 1000:,.0f} s)" if batches else "0"


def _epochs(epochs: set[int]) -> str:
    known = sorted(each for each in epochs if each >= 0)
    if not known:
        return _NONE
    return f"{known[0]}" if len(known) == 1 else f"{len(known)}, {known[0]} to {known[-1]}"
