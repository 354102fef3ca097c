"""The committed position of the next copy path: a map from destination offsets to source offsets."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Position", "Record", "Run"]


class Record(NamedTuple):
    """A record at the source: its offset, and the leader epoch that wrote it."""

    offset: int
    epoch: int


class Run(NamedTuple):
    """From a destination offset on, source offsets go up with destination offsets.

    Attributes:
        destination: The first destination offset.
        source: The source offset that belongs to it.
        epoch: The source's leader epoch; -1 if nothing is copied yet.
    """

    destination: int
    source: int
    epoch: int

    def source_at(self, destination: int) -> int:
        return self.source + destination - self.destination

    def __str__(self) -> str:
        return f"{self.destination}->{self.source} epoch {self.epoch}"


class Position(NamedTuple):
    """The position that the group stores.

    Attributes:
        producer: The producer id of the copy.
        begin: The destination offset of the copy's first record; all before it belongs to others.
        here: The destination offset that is known to be copied, the source offset behind the last copied
            record, and the epoch of that record.
        plan: The runs that begin there or behind: what the mirror is about to write.
    """

    producer: int
    begin: int
    here: Run
    plan: tuple[Run, ...] = ()

    def leads_to(self, destination: int, record: Record, *, by_epoch: bool) -> bool:
        """Whether the map has this record at this destination offset."""
        run = self._run_at(destination)
        return run.source_at(destination) == record.offset and (not by_epoch or run.epoch == record.epoch)

    def _run_at(self, destination: int) -> Run:
        return [run for run in (self.here, *self.plan) if run.destination <= destination][-1]

    def planned(self, claim: Run, *, by_epoch: bool) -> Position:
        """Let the map lead to a record: the runs behind an offset that it did not expect are void."""
        if self.leads_to(claim.destination, Record(claim.source, claim.epoch), by_epoch=by_epoch):
            return self
        before = tuple(run for run in self.plan if run.destination < claim.destination)
        behind = tuple(run for run in self.plan if run.destination > claim.destination)
        if behind and self._run_at(claim.destination).source_at(claim.destination) == claim.source:
            # The same record, of another epoch: what lies behind it stays.
            end = claim.destination + 1
            run = self._run_at(end)
            if run.destination != end:
                behind = (Run(end, run.source_at(end), run.epoch), *behind)
            return self._replace(plan=(*before, claim, *behind))
        return self._replace(plan=(*before, claim))

    def moved_to(self, destination: int, *, by_last: bool = True) -> Position:
        """Look up a log's end: the next source offset is behind the record before it."""
        if destination == self.here.destination and by_last:
            return self
        run = self._run_at(destination - by_last)
        here = Run(destination, run.source_at(destination), run.epoch)
        return self._replace(
            here=here, plan=tuple(run for run in self.plan if run.destination >= destination)
        )

    def without_plan(self) -> Position:
        return self._replace(plan=())

    def __str__(self) -> str:
        return " ".join(f"({run})" for run in (self.here, *self.plan))
