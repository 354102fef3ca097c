"""The result of an inspection: values for the table, the JSON object and the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..json_report import as_json
from ..topic_partition import TopicPartition
from .advice import Finding
from .facts import Facts

__all__ = ["ClusterReport", "NotInspected"]


@dataclass(frozen=True, slots=True)
class NotInspected:
    """A partition that could not be read, and the reason."""

    partition: TopicPartition
    reason: str


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """
    The result of an inspection.

    Attributes:
        cluster: The cluster's name in messages.
        now_ms: The time of the inspection, in milliseconds since 1970.
        is_sample: Whether a sample was read, and not all.
        topics: The topics by name.
        not_inspected: The partitions that could not be read.
        findings: The facts that are small or unusual, with causes and settings that would help.
        elapsed_s: Its duration.

    """

    cluster: str
    now_ms: int
    is_sample: bool
    topics: tuple[Facts, ...]
    not_inspected: tuple[NotInspected, ...]
    findings: tuple[Finding, ...]
    elapsed_s: float

    def to_json_object(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            "type": "inspect",
            **as_json(self),
            "topics": [each.to_json_object() for each in self.topics],
            "not_inspected": {str(each.partition): each.reason for each in self.not_inspected},
            "elapsed_s": round(self.elapsed_s, 3),
        }
