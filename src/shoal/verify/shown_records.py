"""Records near a difference, as a report has them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RecordWindow", "ShownContent", "ShownRecord"]


@dataclass(frozen=True, slots=True)
class ShownContent:
    """
    A key, a value or the headers of a record in a report.

    Attributes:
        bytes: The size.
        digest: A hash with a random key: equal contents of one report have equal hashes.
        text: The beginning of the content; None unless the user has asked for values.

    """

    bytes: int
    digest: str
    text: str | None


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """
    A record near a difference.

    Attributes:
        timestamp: Its create time in milliseconds since 1970; None if it cannot be read.
        key: Its key; None for null.
        value: Its value; None for null.
        headers: Its headers as lines ``name=value``; None without headers.
        differs: Whether it is in the range that differs.
        problem: Why it cannot be read; None if it can.

    """

    offset: int
    timestamp: int | None
    key: ShownContent | None
    value: ShownContent | None
    headers: ShownContent | None
    differs: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class RecordWindow:
    """
    The records around a difference: some before it, the first ones of it, and some behind it.

    Attributes:
        difference: The index of the difference in :attr:`PartitionReport.differences
            <shoal.verify.report.PartitionReport.differences>`.
        source: The source's records.
        destination: The destination's records.

    """

    difference: int
    source: tuple[ShownRecord, ...]
    destination: tuple[ShownRecord, ...]
