"""The page of an inspection: one HTML file with charts and tables, without code."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import resources

from ..result_file import write_result_file
from ..static_page import Column, Table, section, static_page, table_section
from ..static_page import text_in_html as _text
from .report import ClusterReport
from .tables import sizes_table, tables

__all__ = ["page_html", "write_page"]


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
    shown = [sizes_table(report), *tables(report)]
    return static_page(
        f"Batches of {report.cluster}",
        about,
        headline,
        "\n".join([_findings(report), *map(table_section, shown), _failures(report)]),
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


def _failures(report: ClusterReport) -> str:
    if not report.not_inspected:
        return ""
    rows = [[str(each.partition), each.reason] for each in report.not_inspected]
    columns = {"partition": Column.NAME, "reason": Column.REASON}
    return table_section(Table("Not inspected", "These partitions are missing above.", columns, rows))
