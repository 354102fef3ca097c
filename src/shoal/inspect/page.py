"""The page of an inspection: one HTML file with charts and tables, without code."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import resources

from ..printable import printable
from ..result_file import write_result_file
from ..static_page import static_page
from ..static_page import text_in_html as _text
from .bars import Bar, bar_chart
from .costs import SOURCES, MirrorCost
from .report import ClusterReport
from .tables import Table, tables
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
    body = [_findings(report), _sizes(report.topics), _conversions(report.costs), _cpu(report.costs)]
    return static_page(
        f"Batches of {report.cluster}",
        about,
        headline,
        "\n".join([*body, *map(_table, tables(report)), _failures(report)]),
        own_css=(resources.files(__package__) / "inspect.css").read_text(encoding="utf-8"),
    )


def _section(heading: str, caption: str, content: str) -> str:
    return f'<section><h2>{_text(heading)}</h2><p class="quiet">{_text(caption)}</p>{content}</section>'


def _findings(report: ClusterReport) -> str:
    if not report.findings:
        return ""
    items = "".join(
        f"<li><b>{_text(each.topic)}</b>: {_text(each.text)}.<br>{_text(each.remedy)}.</li>"
        for each in report.findings
    )
    return _section("Findings", "Each has the setting that would help.", f'<ul class="findings">{items}</ul>')


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
    return _section("Batch sizes", caption, charts)


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


def _conversions(costs: Sequence[MirrorCost]) -> str:
    bars = [Bar(each.mirror, each.opened, f"{each.opened:,}", 2) for each in costs]
    caption = (
        "Batches that a mirror decompresses and writes again. MirrorMaker 2 does so with all, and shoal with "
        "those that have holes or an old format."
    )
    return _section("Conversions", caption, bar_chart("batches opened in one copy", bars))


def _cpu(costs: Sequence[MirrorCost]) -> str:
    movers = [cost_bar(each.mirror, each.mover_s, 1) for each in costs]
    brokers = [cost_bar(each.mirror, each.broker_s, 3) for each in costs]
    caption = (
        f"CPU-seconds of one copy of all that is in the logs, from measured costs ({SOURCES}). A pale bar is "
        "a bound: the measurements do not separate the cost of a record from that of its bytes."
    )
    charts = bar_chart("the mirror, CPU-seconds", movers) + bar_chart(
        "the destination's brokers, CPU-seconds", brokers
    )
    return _section("CPU", caption, charts)


def cost_bar(mirror: str, bounds: tuple[float, float], series: int) -> Bar:
    least, most = bounds
    texts = _seconds(least), _seconds(most)
    if texts[0] == texts[1]:
        return Bar(mirror, most, texts[1], series)
    return Bar(mirror, most, " to ".join(texts), series, least)


def _seconds(value: float) -> str:
    """Return a number with three significant digits, as people write it: never with an exponent."""
    if value < 0.001:
        return "0" if not value else "under 0.001"
    decimals = 2 - math.floor(math.log10(value))
    return f"{round(value, decimals):,.{max(0, decimals)}f}"


def _table(table: Table) -> str:
    heads = "".join(f"<th>{_text(each)}</th>" for each in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    content = (
        f'<div class="scroll long"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    )
    return _section(table.heading, table.caption, content)


def _failures(report: ClusterReport) -> str:
    if not report.not_inspected:
        return ""
    rows = [[str(each.partition), each.reason] for each in report.not_inspected]
    return _table(
        Table("Not inspected", "These partitions are missing above.", ["partition", "reason"], rows)
    )
