"""The report of a verification: all partitions together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..exit_codes import EXIT_DONE
from .report import Outcome, PartitionReport, as_json

__all__ = ["ComparedCluster", "VerifyProgress", "VerifyReport"]

#: The version of the JSON (docs/verify-report.schema.json). Later shoals may add names to it.
LAYOUT = 2


@dataclass(frozen=True, slots=True)
class ComparedCluster:
    """
    One of the two clusters.

    Attributes:
        cluster_id: Its id; None before Kafka 0.10.1.
        servers: Its bootstrap servers, as they were given.

    """

    cluster_id: str | None
    servers: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """
    The result of a verification.

    Attributes:
        group: The consumer group whose positions were used; None if no name
            could be made.
        partitions: The partitions' results, by topic and number.
        warnings: Sentences with the remedy.
        elapsed_s: The duration, from start to end.
        extent: The part of the topics that was to be compared, as a phrase; None for all of it.
        at: The time of the start, in UTC (ISO 8601); None if it is not known.
        source: The source cluster; None if it is not known.
        destination: The destination cluster; None if it is not known.

    """

    group: str | None
    partitions: tuple[PartitionReport, ...]
    warnings: tuple[str, ...]
    elapsed_s: float
    extent: str | None = None
    at: str | None = None
    source: ComparedCluster | None = None
    destination: ComparedCluster | None = None

    @property
    def outcome(self) -> Outcome:
        """Different if any partition is; else not compared if any was not; else equal if any record is."""
        found = {partition.verdict for partition in self.partitions}
        return next((outcome for outcome in Outcome if outcome in found), Outcome.NOTHING)

    @property
    def is_empty(self) -> bool:
        """Whether both sides of all partitions were read to their ends, and none has a record."""
        return bool(self.partitions) and all(each.is_empty for each in self.partitions)

    @property
    def equal(self) -> bool:
        """Whether all was compared, and no difference found."""
        return self.outcome is Outcome.EQUAL

    @property
    def exit_code(self) -> int:
        """0 equal, or empty on both sides; 1 different; 3 could not compare, or nothing was compared."""
        return EXIT_DONE if self.is_empty else self.outcome.exit_code

    @property
    def records(self) -> int:
        """The number of records that are the same on both sides."""
        return sum(partition.records for partition in self.partitions)

    @property
    def batches(self) -> int:
        """The number of the source's batches that are the same on both sides."""
        return sum(partition.batches for partition in self.partitions)

    @property
    def decoded_records(self) -> int:
        """The number of those records that were compared one by one."""
        return sum(partition.decoded_records for partition in self.partitions)

    @property
    def bytes_read(self) -> int:
        """The number of bytes read from both clusters."""
        return sum(partition.bytes_read for partition in self.partitions)

    def to_json_object(self) -> dict[str, Any]:
        """Return the report for ``--json``."""
        return {
            "type": "verify",
            "version": LAYOUT,
            "at": self.at,
            "source": as_json(self.source),
            "destination": as_json(self.destination),
            "outcome": self.outcome.value,
            "exit_code": self.exit_code,
            "group": self.group,
            "extent": self.extent,
            "records": self.records,
            "batches": self.batches,
            "decoded_records": self.decoded_records,
            "bytes_read": self.bytes_read,
            "elapsed_s": self.elapsed_s,
            "warnings": list(self.warnings),
            "partitions": [partition.to_json_object() for partition in self.partitions],
        }


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """
    How far a verification is. Totals are since its start.

    Attributes:
        elapsed_s: The seconds since the start.
        partitions: The number of partitions to compare.
        done: The number of partitions that are compared.
        records: The number of records that are the same on both sides.
        batches: The number of the source's batches that are the same on both sides.
        bytes_read: The number of bytes read from both clusters.
        differences: The number of ranges in which both sides differ.
        fraction: The share of the source's offsets that is compared, 0 to 1.

    """

    elapsed_s: float
    partitions: int
    done: int
    records: int
    batches: int
    bytes_read: int
    differences: int
    fraction: float
