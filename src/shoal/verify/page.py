"""The page of a verification, for people: one HTML file without code or external resources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..static_page import Pill, section, static_page, table_section
from ..static_page import text_in_html as _escaped
from .explain import MOST_RANGES
from .report import ComparedCluster, Outcome, VerifyReport
from .tables import details, partitions_table, total

__all__ = ["report_html"]

_PILLS: dict[Outcome, Literal["good", "warn", "bad"]] = {
    Outcome.EQUAL: "good",
    Outcome.DIFFERENT: "bad",
    Outcome.NOT_COMPARED: "warn",
    Outcome.NOTHING: "warn",
}


def report_html(report: VerifyReport) -> str:
    """Return the page."""
    found = [
        f"{partition.source}: {each}"
        for partition in report.partitions
        for each in details(partition, MOST_RANGES)
    ]
    sections = [
        _lines("Warnings", report.warnings, "warn"),
        table_section(partitions_table(report)),
        _lines("Differences, and what was left out", found, _PILLS[report.outcome]),
    ]
    return static_page(
        f"Comparison of {report.at or ''}",
        f"from {_cluster(report.source)} to {_cluster(report.destination)}",
        f"{total(report)}.",
        "\n".join(sections),
        pill=Pill(_PILLS[report.outcome], report.outcome.value),
    )


def _cluster(cluster: ComparedCluster | None) -> str:
    if cluster is None:
        return "?"
    return f"{cluster.servers} (cluster {cluster.cluster_id})" if cluster.cluster_id else cluster.servers


def _lines(heading: str, lines: Sequence[str], kind: str) -> str:
    items = "".join(f"<p>{_escaped(each)}</p>" for each in lines)
    return section(heading, items, kind) if lines else ""
