"""Runs of source offsets whose records the destination has acknowledged, as a mirror reports them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...records import Record

__all__ = ["AcknowledgedRun", "add_run", "spans_of"]


@dataclass(frozen=True, slots=True)
class AcknowledgedRun:
    """
    A run of consecutive source offsets whose records the destination has acknowledged.

    Source offset ``n`` of a run is ``destination_start + n - source_start`` at the destination. So runs
    translate a consumer's offset from one cluster to the other (docs/python.md has an example).

    Attributes:
        source_start: The first source offset.
        source_end: The source offset behind the last one.
        destination_start: The destination offset of ``source_start``.

    Examples:
        >>> import shoal
        >>> run = shoal.AcknowledgedRun(source_start=5, source_end=8, destination_start=100)
        >>> run.destination_start + 6 - run.source_start
        101

    """

    source_start: int
    source_end: int
    destination_start: int


def add_run(runs: list[list[int]], source_start: int, source_end: int, landed: int) -> None:
    """Extend the last run (the values of :class:`AcknowledgedRun`) by a batch, or begin a new run."""
    if runs:
        last = runs[-1]
        if last[1] == source_start and source_start - last[0] == landed - last[2]:
            last[1] = source_end
            return
    runs.append([source_start, source_end, landed])


def spans_of(records: Sequence[Record]) -> list[tuple[int, int]]:
    """Return the runs of consecutive offsets, as pairs of first and end."""
    spans: list[tuple[int, int]] = []
    for record in records:
        if spans and spans[-1][1] == record.offset:
            spans[-1] = spans[-1][0], record.offset + 1
        else:
            spans.append((record.offset, record.offset + 1))
    return spans
