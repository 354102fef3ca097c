"""The page of an inspection: one HTML file with charts and tables, without code."""

from __future__ import annotations

from datetime import UTC, datetime

from ..static_page import Column, Table, static_page, table_section
from .report import ClusterReport
from .tables import sizes_table, tables

__all__ = ["page_html"]


def page_html(report: ClusterReport) -> str:
    """Return the page."""
    batches = sum(each.batches for each in report.topics)
    size = sum(each.size for each in report.topics)
    records = sum(each.records for each in report.topics)
    headline = (
        f"{'A sample of' if report.is_sample else 'All'} {batches:,} batches with {records:,} records and "
        f"{size:,} bytes. Topics: {len(report.topics):,}."
    )
    at = datetime.fromtimestamp(report.now_ms / 1000, UTC)
    about = f"Read from {report.cluster} at {at:%Y-%m-%d %H:%M:%S} UTC, in {report.elapsed_s:.1f} s."
    shown = [_findings(report), sizes_table(report), *tables(report), _not_inspected(report)]
    return static_page(
        f"Batches of {report.cluster}",
        about,
        headline,
        "\n".join(table_section(each) for each in shown if each.rows),
    )


def _findings(report: ClusterReport) -> Table:
    rows = [[each.topic, f"{each.text}.", f"{each.remedy}."] for each in report.findings]
    columns = {"topic": Column.NAME, "finding": Column.REASON, "remedy": Column.REASON}
    return Table("Findings", "Facts that are small or unusual.", columns, rows)


def _not_inspected(report: ClusterReport) -> Table:
    rows = [[str(each.partition), each.reason] for each in report.not_inspected]
    columns = {"partition": Column.NAME, "reason": Column.REASON}
    return Table("Not inspected", "These partitions are missing above.", columns, rows)
