"""The output of a verification: its progress and its result."""

from __future__ import annotations

from collections.abc import Iterator

from ..printable import printable
from ..verify import PartitionReport, VerifyProgress, VerifyReport
from ..verify.tables import details, name_of, the_same, total
from .working import Done

__all__ = ["done_of", "print_report"]

#: The number of ranges of a partition that are printed; the others are counted.
_MOST_RANGES = 5


def done_of(progress: VerifyProgress) -> Done:
    """Return progress as ``3/16 partitions, 812,004 records, 1 difference``, with the bytes and the share."""
    differences = "1 difference" if progress.differences == 1 else f"{progress.differences:,} differences"
    text = f"{progress.done}/{progress.partitions} partitions, {progress.records:,} records, {differences}"
    return Done(text, progress.bytes_read, progress.fraction)


def print_report(report: VerifyReport) -> None:
    """Print a result to stdout: a line for each partition, its differences, and the total."""
    print("\n".join(map(printable, _lines(report))), flush=True)


def _lines(report: VerifyReport) -> Iterator[str]:
    for partition in report.partitions:
        yield _summary(partition)
        for detail in details(partition, _MOST_RANGES):
            yield f"{partition.source}: {detail}"
    yield f"{report.outcome.value}: {total(report)}"


def _summary(partition: PartitionReport) -> str:
    """Return one partition's result as one line."""
    result, begin = f"{name_of(partition)}: {partition.outcome.value}", partition.alignment
    if begin is None:
        return result
    return (
        f"{result}: {the_same(partition)}, aligned by {begin.by.value}, from source offset "
        f"{begin.source_offset} and destination offset {begin.destination_offset} on: {begin.why}"
    )
