"""The page of a certificate: one HTML file in the style of a mirror's page, without code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from ...static_page import Pill, static_page
from .certificate import Certificate, CutCluster, CutGroupOffset, CutLog, CutPartition
from .gates import GATES, Gate

__all__ = ["certificate_html"]

#: A browser lays out a table of so many rows at once. The JSON has all of them.
MOST_ROWS = 5_000

#: A heading, and the class of its column.
_Column = tuple[str, str]

_NAME, _TEXT, _NUMBER = "name", "", "number"


def certificate_html(certificate: Certificate, file: str) -> str:
    """
    Return the page.

    Args:
        certificate: The certificate.
        file: The name of its file, which the page mentions.

    """
    groups = {each.group for each in certificate.groups}
    records = sum(each.records for each in certificate.partitions)
    headline = (
        f"{len(certificate.partitions):,} partitions of {len(certificate.topics):,} topics, {records:,} "
        f"records compared and equal, {len(groups):,} consumer groups with {len(certificate.groups):,} "
        "offsets."
    )
    source, destination = _cluster(certificate.source), _cluster(certificate.destination)
    about = (
        f"from {source} to {destination}, by the mirror of group {certificate.mirror_group}. "
        f"The certificate {file} has the same values for programs, and the way back begins from it."
    )
    sections = [
        _gates(certificate),
        _commands(certificate),
        _partitions(certificate.partitions),
        _groups(certificate.groups),
    ]
    return static_page(
        f"Cut-over of {certificate.at}",
        about,
        headline,
        "\n".join(sections),
        own_css=(resources.files(__package__) / "certificate.css").read_text(encoding="utf-8"),
        pill=Pill("good", "complete"),
    )


def _cluster(cluster: CutCluster) -> str:
    return f"{cluster.servers} (cluster {cluster.cluster_id})" if cluster.cluster_id else cluster.servers


def _gates(certificate: Certificate) -> str:
    rules = {gate.value: rule for gate, rule in GATES.items()}
    rows = [
        [name, f"{seconds:.1f}", rules[name].waits_for if name in rules else ""]
        for name, seconds in certificate.gates_s.items()
    ]
    numbers = {gate.value: number for number, gate in enumerate(Gate)}
    rows.sort(key=lambda row: numbers.get(row[0], len(numbers)))
    columns = [("Gate", _NAME), ("Seconds", _NUMBER), ("Condition", "reason")]
    return _section("Gates", "Each condition was fulfilled, in this order.", columns, rows)


def _commands(certificate: Certificate) -> str:
    checks = "".join(
        f"<p>{escape(name)}</p><pre>{escape(command)}</pre>" for name, command in certificate.commands.items()
    )
    return f"<section><h2>Commands that repeat the checks</h2>{checks}</section>" if checks else ""


def _partitions(partitions: Sequence[CutPartition]) -> str:
    columns = [
        ("Source partition", _NAME),
        ("Start", _NUMBER),
        ("End", _NUMBER),
        ("Copy", _NAME),
        ("Start", _NUMBER),
        ("End", _NUMBER),
        ("Equal records", _NUMBER),
        ("Equal batches", _NUMBER),
        ("CRC-32C of the last batch", _TEXT),
    ]
    rows = (
        [
            *_log(each.partition, each.source),
            *_log(each.partition, each.destination),
            f"{each.records:,}",
            f"{each.batches:,}",
            "\N{EN DASH}" if each.last_batch is None else f"{each.last_batch:08x}",
        ]
        for each in partitions
    )
    caption = "The offsets of both logs at the cut, and the records that were compared and are equal."
    return _section("Partitions", caption, columns, rows, count=len(partitions))


def _log(partition: int, log: CutLog) -> list[str]:
    return [f"{log.topic}-{partition}", f"{log.start:,}", f"{log.end:,}"]


def _groups(offsets: Sequence[CutGroupOffset]) -> str:
    columns = [
        ("Group", _NAME),
        ("Source partition", _NAME),
        ("Committed at the source", _NUMBER),
        ("At the destination", _NUMBER),
        ("Exactness", _TEXT),
        ("Action", _TEXT),
    ]
    rows = (
        [
            each.group,
            f"{each.topic}-{each.partition}",
            f"{each.source_offset:,}",
            "\N{EN DASH}" if each.destination_offset is None else f"{each.destination_offset:,}",
            each.exactness or "\N{EN DASH}",
            each.action,
        ]
        for each in offsets
    )
    caption = "The offsets from which consumers continue."
    return _section("Consumer groups", caption, columns, rows, count=len(offsets))


def _section(
    heading: str, caption: str, columns: Sequence[_Column], rows: Iterable[Sequence[str]], count: int = 0
) -> str:
    """Return a table with its heading, up to the largest number of rows."""
    lines = []
    for number, row in enumerate(rows):
        if number == MOST_ROWS:
            caption = f"{caption} The first {MOST_ROWS:,} of {count:,}. The certificate has all of them."
            break
        cells = "".join(
            f'<td class="{kind}">{escape(value)}</td>' for value, (_, kind) in zip(row, columns, strict=True)
        )
        lines.append(f"<tr>{cells}</tr>")
    headings = "".join(f'<th scope="col" class="{kind}">{escape(name)}</th>' for name, kind in columns)
    return (
        f'<section><h2>{escape(heading)}</h2><div class="scroll long"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{headings}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div></section>"
    )
