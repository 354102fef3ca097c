"""The result of a verification as texts: one table and lines of details, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..static_page import Column, Row, Table
from .explain import MOST_RANGES
from .report import ComparedRange, Outcome, PartitionReport, VerifyReport

__all__ = ["details", "name_of", "partitions_table", "the_same", "total"]

_COLUMNS = {
    "partition": Column.NAME,
    "outcome": Column.TEXT,
    "records": Column.NUMBER,
    "differences": Column.NUMBER,
    "behind": Column.NUMBER,
    "aligned by": Column.TEXT,
    "decoded": Column.NUMBER,
    "begins at": Column.TEXT,
    "why there": Column.REASON,
}


def partitions_table(report: VerifyReport) -> Table:
    """Return the table of all partitions."""
    caption = "Records are those that are the same on both sides. The offsets are the source's / the copy's."
    return Table("Partitions", caption, _COLUMNS, [_row(each) for each in report.partitions])


def _row(partition: PartitionReport) -> Row:
    behind, begin = partition.not_mirrored, partition.alignment
    return (
        name_of(partition),
        partition.outcome.value,
        partition.records,
        len(partition.differences) + partition.differences_omitted,
        behind.end - behind.start if behind else None,
        begin.by.value if begin else None,
        partition.decoded_records,
        f"{begin.source_offset:,} / {begin.destination_offset:,}" if begin else None,
        begin.why if begin else None,
    )


def name_of(partition: PartitionReport) -> str:
    """Return a partition, and the name of its copy if it is another one."""
    if partition.source == partition.destination:
        return str(partition.source)
    return f"{partition.source} -> {partition.destination}"


def the_same(report: PartitionReport | VerifyReport) -> str:
    """Return the number of records that are the same, and how many of them were decoded."""
    text = f"{report.records:,} records are the same"
    return f"{text} ({report.decoded_records:,} of them decoded)" if report.decoded_records else text


def details(partition: PartitionReport, most_ranges: int) -> Iterator[str]:
    """Yield the differences of a partition, and what was left out, one line each."""
    yield from _first(partition.differences, partition.differences_omitted, most_ranges, "that differ")
    yield from _first(
        partition.not_compared,
        partition.not_compared_omitted,
        most_ranges,
        "that could not be compared",
    )
    if partition.ranges is not None:
        yield _compared_ranges(partition.ranges)
    if partition.reason:
        yield f"not compared: {partition.reason}"
    yield from map(str, partition.open_transactions)
    behind = "not mirrored yet, or behind the open transaction" if partition.is_held else "not mirrored yet"
    for what, offsets in (
        (f"{behind}: source", partition.not_mirrored),
        ("only in the source, before the comparison begins: source", partition.source_skipped),
        ("only at the destination, before the comparison begins: destination", partition.destination_skipped),
    ):
        if offsets:
            yield f"{what} offsets {offsets}"


def _first(ranges: Sequence[object], omitted: int, most: int, what: str) -> Iterator[str]:
    """Yield the first ranges, and how many more there are."""
    yield from map(str, ranges[:most])
    more = max(0, len(ranges) - most) + omitted
    if more:
        remedy = f" (--json lists up to {MOST_RANGES})" if most < len(ranges) else ""
        yield f"and {more:,} more {'range' if more == 1 else 'ranges'} {what}{remedy}"


def _compared_ranges(ranges: Sequence[ComparedRange]) -> str:
    """Return the ranges of a part: one with its offsets, several by their number and size."""
    if not ranges:
        return "compared only: no range"
    if len(ranges) == 1:
        return f"compared only: source offsets {ranges[0].source}"
    offsets = sum(each.source.end - each.source.start for each in ranges)
    return (
        f"compared only: {len(ranges):,} ranges with {offsets:,} source offsets, from "
        f"{ranges[0].source.start} to {ranges[-1].source.end - 1} (--json lists them)"
    )


def total(report: VerifyReport) -> str:
    """Return the result of all partitions, without its outcome."""
    count = len(report.partitions)
    parts = [the_same(report)]
    if report.is_empty:
        parts.append("both sides have no record")
    for outcome in (Outcome.DIFFERENT, Outcome.NOT_COMPARED):
        found = sum(partition.outcome is outcome for partition in report.partitions)
        if found:
            parts.append(f"{found:,} of {count:,} partitions {outcome.value}")
    if report.equal:
        parts.append(f"{count:,} partitions")
    if report.extent:
        parts.append(f"compared only {report.extent}")
    if report.group and any(partition.alignment for partition in report.partitions):
        parts.append(f"group {report.group}")
    parts.append(f"{report.bytes_read / 1e6:,.1f} MB read in {report.elapsed_s:.1f} s")
    return ", ".join(parts)
