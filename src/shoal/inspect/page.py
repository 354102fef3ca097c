"""The page of an inspection: one HTML file with charts and tables, without code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import resources

from ..printable import printable
from ..result_file import write_result_file
from ..static_page import Column, Table, section, static_page, table_section
from ..static_page import text_in_html as _text
from .bars import Bar, bar_chart
from .report import ClusterReport
from .tables import tables
from .topic_report import TopicReport

__all__ = ["page_html", "write_page"]

#: The topics with charts of their own: those with the most bytes. The tables have all.
_MOST_CHARTS = 12


def write_page(file: str, report: ClusterReport) -> None:
    """
    Write the page in one step.

    Raises:
        ShoalError: The page cannot be written.

    """
    write_result_file("report", file, page_html(report))


def page_html(report: ClusterReport) -> str:
    """Return the page."""
    batches = sum(each.facts.batches for each in report.topics)
    size = sum(each.facts.size for each in report.topics)
    records = sum(each.facts.records for each in report.topics)
    headline = (
        f"{'A sample of' if report.is_sample else 'All'} {batches:,} batches with {records:,} records and "
        f"{size:,} bytes. Topics: {len(report.topics):,}."
    )
    at = datetime.fromtimestamp(report.now_ms / 1000, UTC)
    about = f"Read from {report.cluster} at {at:%Y-%m-%d %H:%M:%S} UTC, in {report.elapsed_s:.1f} s."
    body = [_findings(report), _sizes(report.topics)]
    return static_page(
        f"Batches of {report.cluster}",
        about,
        headline,
        "\n".join([*body, *map(table_section, tables(report)), _failures(report)]),
        own_css=(resources.files(__package__) / "inspect.css").read_text(encoding="utf-8"),
    )


def _findings(report: ClusterReport) -> str:
    if not report.findings:
        return ""
    items = "".join(
        f"<li><b>{_text(each.topic)}</b>: {_text(each.text)}.<br>{_text(each.remedy)}.</li>"
        for each in report.findings
    )
    return section("Findings", f'<ul class="findings">{items}</ul>')


def _sizes(topics: Sequence[TopicReport]) -> str:
    """Return the distribution of batch sizes of the largest topics."""
    largest = sorted(topics, key=lambda each: -each.facts.size * each.scale)[:_MOST_CHARTS]
    charts = "".join(
        bar_chart(
            f"{printable(each.topic)}: batches by size, {each.bytes_a_batch:,.0f} bytes and "
            f"{each.records_a_batch:,.1f} records on average",
            list(_size_bars(each)),
        )
        for each in largest
        if each.facts.batches
    )
    caption = f"As stored, of the {_MOST_CHARTS} topics with the most bytes." if charts else "No batches."
    return section("Batch sizes", f'<p class="quiet">{caption}</p>{charts}')


def _size_bars(topic: TopicReport) -> Iterator[Bar]:
    sizes = topic.facts.sizes
    for bits in range(min(sizes), max(sizes) + 1):
        count = sizes[bits]
        share = count / topic.facts.batches
        yield Bar(f"{_bytes(1 << bits - 1)} to {_bytes(1 << bits)}", count, f"{count:,} ({share:.1%})")


def _bytes(size: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size // factor:,} {unit}"
    return f"{size} B"


def _failures(report: ClusterReport) -> str:
    if not report.not_inspected:
        return ""
    rows = [[str(each.partition), each.reason] for each in report.not_inspected]
    columns = {"partition": Column.NAME, "reason": Column.REASON}
    return table_section(Table("Not inspected", "These partitions are missing above.", columns, rows))
