"""
The files of a cut-over: the certificate and, beside it, its page in the style of a mirror's, without code.

Each is written in one step and never over another file: an earlier certificate is still needed for its way
back. Only this user may read them, since they name topics, hosts and groups.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...errors import ConfigError
from ...result_file import check_result_file, write_result_file
from ...static_page import Column, Pill, Table, static_page, table_section
from .certificate import Certificate, CutCluster
from .gates import GATES

__all__ = ["check_writable", "page_file", "write_certificate", "write_page"]


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
        pill=Pill("good", "complete"),
    )


def _cluster(cluster: CutCluster) -> str:
    return f"{cluster.servers} (cluster {cluster.cluster_id})" if cluster.cluster_id else cluster.servers


def _sections(certificate: Certificate) -> Iterator[str]:
    waits_for = {gate.value: rule.waits_for for gate, rule in GATES.items()}
    yield _table(
        "Gates",
        "Each condition was fulfilled, in this order.",
        [
            {"gate": gate, "seconds": f"{certificate.gates_s[gate]:.1f}", "condition": condition}
            for gate, condition in waits_for.items()
            if gate in certificate.gates_s
        ],
    )
    yield _table(
        "Partitions",
        "The offsets of both logs at the cut, and the records that were compared and are equal.",
        [
            {
                "source partition": str(each.source_partition),
                "start": each.source.start,
                "end": each.source.end,
                "copy": f"{each.destination.topic}-{each.partition}",
                "copy's start": each.destination.start,
                "copy's end": each.destination.end,
                "equal records": each.records,
                "equal batches": each.batches,
            }
            for each in certificate.partitions
        ],
    )
    yield _table(
        "Consumer groups",
        "The offsets from which consumers continue.",
        [
            {
                "group": each.group,
                "source partition": f"{each.topic}-{each.partition}",
                "at the source": each.source_offset,
                "at the destination": each.destination_offset,
                "exactness": each.exactness,
                "action": each.action,
            }
            for each in certificate.groups
        ],
    )


def _table(heading: str, caption: str, rows: Sequence[Mapping[str, str | int | None]]) -> str:
    """Return a table whose columns are the names of the values."""
    columns = {
        name: Column.NUMBER if isinstance(value, int) else Column.NAME
        for name, value in (rows[0] if rows else {}).items()
    }
    return table_section(Table(heading, caption, columns, [list(each.values()) for each in rows]))


def page_file(certificate: str) -> str:
    """Return the file of a certificate's page: ``orders.html`` beside ``orders.json``."""
    return f"{certificate.removesuffix('.json')}.html"


def check_writable(certificate: str) -> None:
    """
    Make sure, before a cut-over begins, that its certificate and its page can be written.

    Raises:
        ConfigError: One of the files exists, or the directory does not accept new files.

    """
    for file in (certificate, page_file(certificate)):
        if os.path.lexists(file):
            raise ConfigError(
                f"--certificate {certificate!r}: file {file!r} exists, and is never replaced. Name a new one"
            )
        check_result_file("--certificate", file)


def write_certificate(file: str, certificate: Certificate) -> None:
    """
    Write a certificate.

    Raises:
        ShoalError: The file exists, or cannot be written.

    """
    text = json.dumps(certificate.as_json(), indent=2)
    _write("certificate", file, f"{text}\n")


def write_page(certificate_file: str, certificate: Certificate) -> None:
    """
    Write the page of a certificate beside it.

    Raises:
        ShoalError: The file exists, or cannot be written.

    """
    page = certificate_html(certificate, Path(certificate_file).name)
    _write("page of the certificate", page_file(certificate_file), page)


def _write(kind: str, file: str, text: str) -> None:
    write_result_file(kind, file, text, mode=0o600, replaces=False)
