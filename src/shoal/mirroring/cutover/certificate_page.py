"""The page of a certificate: one HTML file in the style of a mirror's page, without code."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

from ...static_page import Column, Pill, Table, section, static_page, table_section, text_in_html
from .certificate import Certificate, CutCluster, CutLog
from .gates import GATES, Gate

__all__ = ["certificate_html"]

_NONE = "\N{EN DASH}"


def certificate_html(certificate: Certificate, file: str) -> str:
    """
    Return the page.

    Args:
        certificate: The certificate.
        file: The name of its file, which the page mentions.

    """
    groups = {each.group for each in certificate.groups}
    records = sum(each.records for each in certificate.partitions)
    source, destination = _cluster(certificate.source), _cluster(certificate.destination)
    return static_page(
        f"Cut-over of {certificate.at}",
        f"from {source} to {destination}, by the mirror of group {certificate.mirror_group}. The certificate "
        f"{file} has the same values for programs, and the way back begins from it.",
        f"{len(certificate.partitions):,} partitions of {len(certificate.topics):,} topics, {records:,} "
        f"records compared and equal, {len(groups):,} consumer groups with {len(certificate.groups):,} "
        "offsets.",
        "\n".join(_sections(certificate)),
        own_css=(resources.files(__package__) / "certificate.css").read_text(encoding="utf-8"),
        pill=Pill("good", "complete"),
    )


def _cluster(cluster: CutCluster) -> str:
    return f"{cluster.servers} (cluster {cluster.cluster_id})" if cluster.cluster_id else cluster.servers


def _sections(certificate: Certificate) -> Iterator[str]:
    yield table_section(_gates(certificate))
    commands = "".join(
        f"<p>{text_in_html(name)}</p><pre>{text_in_html(command)}</pre>"
        for name, command in certificate.commands.items()
    )
    if commands:
        yield section("Commands that repeat the checks", commands)
    yield table_section(_partitions(certificate))
    yield table_section(_groups(certificate))


def _gates(certificate: Certificate) -> Table:
    known = [gate.value for gate in Gate]
    waits_for = {gate.value: rule.waits_for for gate, rule in GATES.items()}
    names = sorted(certificate.gates_s, key=lambda each: known.index(each) if each in known else len(known))
    return Table(
        "Gates",
        "Each condition was fulfilled, in this order.",
        {"Gate": Column.NAME, "Seconds": Column.NUMBER, "Condition": Column.REASON},
        [[each, f"{certificate.gates_s[each]:.1f}", waits_for.get(each, "")] for each in names],
    )


def _partitions(certificate: Certificate) -> Table:
    return Table(
        "Partitions",
        "The offsets of both logs at the cut, and the records that were compared and are equal.",
        {
            "Source partition": Column.NAME,
            "Start": Column.NUMBER,
            "End": Column.NUMBER,
            "Copy": Column.NAME,
            "Copy's start": Column.NUMBER,
            "Copy's end": Column.NUMBER,
            "Equal records": Column.NUMBER,
            "Equal batches": Column.NUMBER,
            "CRC-32C of the last batch": Column.TEXT,
        },
        [
            [
                *_log(each.partition, each.source),
                *_log(each.partition, each.destination),
                f"{each.records:,}",
                f"{each.batches:,}",
                _NONE if each.last_batch is None else f"{each.last_batch:08x}",
            ]
            for each in certificate.partitions
        ],
    )


def _log(partition: int, log: CutLog) -> list[str]:
    return [f"{log.topic}-{partition}", f"{log.start:,}", f"{log.end:,}"]


def _groups(certificate: Certificate) -> Table:
    return Table(
        "Consumer groups",
        "The offsets from which consumers continue.",
        {
            "Group": Column.NAME,
            "Source partition": Column.NAME,
            "Committed at the source": Column.NUMBER,
            "At the destination": Column.NUMBER,
            "Exactness": Column.TEXT,
            "Action": Column.TEXT,
        },
        [
            [
                each.group,
                f"{each.topic}-{each.partition}",
                f"{each.source_offset:,}",
                _NONE if each.destination_offset is None else f"{each.destination_offset:,}",
                each.exactness or _NONE,
                each.action,
            ]
            for each in certificate.groups
        ],
    )
