"""The page of a verification, for people: one HTML file without code or external resources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import resources
from itertools import groupby
from typing import Literal

from ..static_page import Pill, static_page
from ..static_page import text_in_html as _escaped
from .report import Outcome, PartitionReport
from .whole_report import ComparedCluster, VerifyReport

__all__ = ["report_html"]

_PILLS: dict[Outcome, Literal["good", "warn", "bad"]] = {
    Outcome.EQUAL: "good",
    Outcome.DIFFERENT: "bad",
    Outcome.NOT_COMPARED: "warn",
    Outcome.NOTHING: "warn",
}

_DASH = "\N{EN DASH}"

_TEXT, _NUMBER, _REASON = "", "number", "reason"

#: A heading, and the class of its column.
_Column = tuple[str, str]


def report_html(report: VerifyReport) -> str:
    """Return the page."""
    topics = groupby(report.partitions, key=lambda each: each.source.topic)
    sections = [
        _warnings(report.warnings),
        *(_topic(topic, list(partitions)) for topic, partitions in topics),
    ]
    return static_page(
        f"Comparison of {report.at or ''}",
        _about(report),
        _headline(report),
        "\n".join(sections),
        own_css=(resources.files(__package__) / "page.css").read_text(encoding="utf-8"),
        pill=Pill(_PILLS[report.outcome], report.outcome.value),
    )


def _about(report: VerifyReport) -> str:
    clusters = f"from {_cluster(report.source)} to {_cluster(report.destination)}"
    extent = f", only {report.extent}" if report.extent else ""
    group = f", positions of group {report.group}" if report.group else ""
    return f"{clusters}{extent}{group}. {report.bytes_read / 1e6:,.1f} MB read in {report.elapsed_s:,.1f} s."


def _cluster(cluster: ComparedCluster | None) -> str:
    if cluster is None:
        return "?"
    return f"{cluster.servers} (cluster {cluster.cluster_id})" if cluster.cluster_id else cluster.servers


def _headline(report: VerifyReport) -> str:
    parts = [f"{report.records:,} records are the same on both sides"]
    for outcome in (Outcome.DIFFERENT, Outcome.NOT_COMPARED):
        count = sum(each.outcome is outcome for each in report.partitions)
        if count:
            parts.append(f"{count:,} of {len(report.partitions):,} partitions {outcome.value}")
    return f"{', '.join(parts)}."


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<p>{_escaped(each)}</p>" for each in warnings)
    return f'<section class="warn"><h2>Warnings</h2>{items}</section>'


def _topic(topic: str, partitions: Sequence[PartitionReport]) -> str:
    outcomes = {each.verdict for each in partitions}
    outcome = next(each for each in Outcome if each in outcomes)
    destinations = sorted({each.destination.topic for each in partitions} - {topic})
    name = f"{topic} → {', '.join(destinations)}" if destinations else topic
    kind = {Outcome.DIFFERENT: ' class="bad"', Outcome.NOT_COMPARED: ' class="warn"'}.get(outcome, "")
    details = "".join(_differences(each) for each in partitions)
    return (
        f"<section{kind}><h2>{_escaped(name)}: {outcome.value}</h2>{_compared(partitions)}{details}</section>"
    )


def _compared(partitions: Sequence[PartitionReport]) -> str:
    columns = [
        ("Partition", _NUMBER),
        ("Outcome", _TEXT),
        ("Same records", _NUMBER),
        ("By bytes", _NUMBER),
        ("By decoding", _NUMBER),
        ("Not mirrored yet", _NUMBER),
        ("Begins at", _TEXT),
        ("How, and what was left out", _REASON),
    ]
    rows = [
        [
            str(each.source.partition),
            each.verdict.value,
            f"{each.records:,}",
            f"{each.records - each.decoded_records:,}",
            f"{each.decoded_records:,}",
            f"{each.not_mirrored.end - each.not_mirrored.start:,}" if each.not_mirrored else _DASH,
            _begin(each),
            _how(each),
        ]
        for each in partitions
    ]
    return _table("What was compared, and how", columns, rows)


def _begin(report: PartitionReport) -> str:
    if report.alignment is None:
        return _DASH
    return f"{report.alignment.source_offset:,} / {report.alignment.destination_offset:,}"


def _how(report: PartitionReport) -> str:
    parts = []
    if report.alignment is not None:
        parts.append(f"aligned by {report.alignment.by.value}: {report.alignment.why}")
    if report.ranges is not None:
        ranges = ", ".join(str(each.source) for each in report.ranges[:20])
        more = len(report.ranges) - 20
        tail = f" and {more} more ranges" if more > 0 else ""
        parts.append(f"only source offsets {ranges}{tail}" if ranges else "no range")
    for words, offsets in (
        ("only in the source, before the beginning: offsets", report.source_skipped),
        ("only at the destination, before the beginning: offsets", report.destination_skipped),
    ):
        if offsets:
            parts.append(f"{words} {offsets}")
    parts += [str(each) for each in (*report.not_compared, *report.open_transactions)]
    if report.reason:
        parts.append(f"not compared: {report.reason}")
    return ". ".join(parts) or _DASH


def _differences(report: PartitionReport) -> str:
    parts = [f"<h3>{_escaped(f'{report.source}: {each}')}</h3>" for each in report.differences]
    if report.differences_omitted:
        parts.append(f"<p>And {report.differences_omitted:,} more ranges that differ.</p>")
    return "".join(parts)


def _table(caption: str, columns: Sequence[_Column], rows: Iterable[Sequence[str]]) -> str:
    lines = []
    for row in rows:
        cells = "".join(
            f'<td class="{kind}">{_escaped(value)}</td>'
            for value, (_, kind) in zip(row, columns, strict=True)
        )
        lines.append(f"<tr>{cells}</tr>")
    headings = "".join(f'<th scope="col" class="{kind}">{_escaped(name)}</th>' for name, kind in columns)
    return (
        f'<div class="scroll"><table><caption>{_escaped(caption)}</caption>'
        f"<thead><tr>{headings}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )
