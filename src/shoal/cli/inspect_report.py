"""The output of an inspection: its progress, and its tables."""

from __future__ import annotations

from collections.abc import Iterator

from ..inspect import ClusterReport, InspectProgress
from ..inspect.tables import tables
from ..printable import printable
from .output import table
from .working import Done

__all__ = ["done_of", "lines", "print_report"]


def done_of(progress: InspectProgress) -> Done:
    """Return progress as ``3/8 partitions, 1,234 batches``, with the bytes and the share."""
    text = f"{progress.done:,}/{progress.partitions:,} partitions, {progress.batches:,} batches"
    return Done(text, progress.size, progress.done / progress.partitions if progress.partitions else None)


def print_report(report: ClusterReport) -> None:
    """Print a result to stdout."""
    print("\n".join(lines(report)), flush=True)


def lines(report: ClusterReport) -> Iterator[str]:
    """Yield the lines of a result: its tables, its findings, and the numbers in one line."""
    for each in tables(report):
        yield each.heading.upper()
        yield table([list(each.columns), *each.texts()])
        yield ""
    if report.findings:
        yield "FINDINGS"
        for finding in report.findings:
            yield printable(f"{finding.topic}: {finding.text}.")
            yield f"  {finding.remedy}."
        yield ""
    yield _total(report)


def _total(report: ClusterReport) -> str:
    """Return the numbers as one line."""
    batches = sum(each.batches for each in report.topics)
    size = sum(each.size for each in report.topics)
    more = ". Use --sample all to read everything" if report.is_sample else ""
    return (
        f"{report.cluster}: {_topics(len(report.topics))}, {batches:,} batches with {size:,} bytes "
        f"{'in the sample' if report.is_sample else 'in all'}, {report.elapsed_s:.1f} s{more}"
    )


def _topics(count: int) -> str:
    return "1 topic" if count == 1 else f"{count:,} topics"
