"""
The runs of a map: from a run's first destination offset on, source offsets go up with destination offsets.

A run ends where the next one begins: behind a gap of the source (a marker, aborted records, a hole, a crop, a
skipped record), or where the source's leader epoch changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from ...json_values import typed

__all__ = ["Run", "edges_of", "pieces_of", "read_runs", "run_at", "runs_to_json"]


class Run(NamedTuple):
    """
    The begin of a run.

    Attributes:
        destination: Its first destination offset.
        source: The source offset of the record there.
        leader_epoch: The source's leader epoch of its records; -1 if they have none, or none is copied yet.

    """

    destination: int
    source: int
    leader_epoch: int

    def source_at(self, destination: int) -> int:
        """Return the source offset that belongs to a destination offset of the run."""
        return self.source + destination - self.destination


def run_at(here: Run, plan: Sequence[Run], destination: int) -> Run:
    """Return the run that a destination offset lies in: the first, or one of those behind it."""
    after = bisect_right(plan, destination, key=attrgetter("destination"))
    return plan[after - 1] if after else here


def pieces_of(here: Run, plan: Sequence[Run], begin: int, end: int) -> list[Run]:
    """Return the runs of a range of destination offsets, each from where it differs from the one before."""
    after = bisect_right(plan, begin, key=attrgetter("destination"))
    first = plan[after - 1] if after else here
    pieces = [Run(begin, first.source_at(begin), first.leader_epoch)]
    for run in plan[after:]:
        if run.destination >= end:
            break
        last = pieces[-1]
        if (last.source_at(run.destination), last.leader_epoch) != (run.source, run.leader_epoch):
            pieces.append(run)
    return pieces


def edges_of(here: Run, passed: Sequence[Run]) -> list[tuple[int, int]]:
    """Return both edges of the gap before each run, as a source and a destination offset."""
    edges: list[tuple[int, int]] = []
    for run in passed:
        edges += (here.source_at(run.destination), run.destination), (run.source, run.destination)
        here = run
    return edges


def runs_to_json(here: Run, plan: Sequence[Run]) -> list[int]:
    """Return three numbers for each run: its distance from the one before, the gap, and the newer epoch."""
    numbers: list[int] = []
    for run in plan:
        numbers += (
            run.destination - here.destination,
            run.source - here.source_at(run.destination),
            run.leader_epoch - here.leader_epoch,
        )
        here = run
    return numbers


def read_runs(here: Run, numbers: Any) -> tuple[Run, ...]:
    """
    Read the numbers of :func:`runs_to_json`.

    Raises:
        ValueError: They are no runs.

    """
    runs: list[Run] = []
    values = [typed(int, each) for each in typed(list, numbers)]
    for distance, gap, newer in zip(values[::3], values[1::3], values[2::3], strict=True):
        destination = here.destination + distance
        run = Run(destination, here.source_at(destination) + gap, here.leader_epoch + newer)
        offsets, epoch = (run.source, destination), run.leader_epoch
        if distance < 0 or not (0 <= min(offsets) <= max(offsets) < 2**63 and -1 <= epoch < 2**31):
            raise ValueError(f"{run} is no run behind {here}")
        runs.append(run)
        here = run
    return tuple(runs)
