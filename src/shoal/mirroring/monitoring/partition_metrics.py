"""One partition in the registry: its counts, its offsets, and its state in one word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ...errors import PartitionStopped
from ..model.counts import Counted
from ..model.incidents import IncidentKind
from ..model.reports import CopyReport, Counters
from ..model.state import PartitionStatus

__all__ = ["PartitionMetrics", "newer"]

#: The limit for the skew of a producer's clock: a later timestamp is ignored.
_CLOCK_SKEW_S = 60.0

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class PartitionMetrics:
    """
    One partition: its counts since the start, and its offsets. Each report makes a new object.

    Attributes:
        source_offset: The next offset to mirror; None until a task has found it.
        end_offset: The end of the records to copy; None until the first report of it.
        held_back: The number of offsets between ``end_offset`` and the source's
            high watermark: the records of open transactions, and those behind them.
        held_back_since: Unix time since which this ``end_offset`` holds records back; None if it does not.
        committed_offset: The offset of the last commit; None before the first.
        committed_at: Unix time of the first report of this commit.
        newest_ms: The newest timestamp in the last acknowledged batches; None before the first.
        behind_since: Unix time of the first report of the current lag; None without lag.
        was_up_to_date: Whether the partition ever was without lag.
        counts: Its counts, of all tasks.
        lives: The counts of the last two tasks that took it, by the time at which they took it.
        waiting_for: The temporary problem that copying waits for.
        commit_waits_for: The temporary problem that the commit waits for, while copying continues.
        stopped: The reason why the partition is stopped.
        stopped_at: Unix time of the report of the stop.
        stopped_by: The kind of the incident that stopped it; None if it was none.
        is_tried_again: Whether the mirror retries the stopped partition; it counts
            as stopped until it has moved.
        accepted: The kind of incident after which an operator lets this attempt continue.
        process: The worker of the last report, as ``host:pid``.
        lag_records: The number of source offsets that are not mirrored; None until position and end are
            known. If the source ends before the position, the topic was recreated, or lost its tail. Until
            the mirror has determined which, all of it counts as missing.
        state: The most urgent of the states that apply.

    """

    source_offset: int | None = None
    end_offset: int | None = None
    held_back: int = 0
    held_back_since: float | None = None
    committed_offset: int | None = None
    committed_at: float | None = None
    newest_ms: int | None = None
    behind_since: float | None = None
    was_up_to_date: bool = False
    counts: Counted = field(default_factory=Counted)
    lives: Mapping[int, Counted] = field(default_factory=dict, compare=False)
    waiting_for: str | None = None
    commit_waits_for: str | None = None
    stopped: PartitionStopped | None = None
    stopped_at: float = 0.0
    stopped_by: IncidentKind | None = None
    is_tried_again: bool = False
    accepted: IncidentKind | None = None
    process: str | None = field(default=None, compare=False)
    lag_records: int | None = field(init=False, compare=False)
    state: PartitionStatus = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # Once for each change: all views read them, of thousands of partitions.
        object.__setattr__(self, "lag_records", self._lag_records())
        object.__setattr__(self, "state", self._state())

    @property
    def records(self) -> int:
        """Records that the destination has acknowledged."""
        return self.counts.records

    def _lag_records(self) -> int | None:
        position = self.source_offset
        if self.stopped is not None and self.stopped.unmirrored_from is not None:
            position = self.stopped.unmirrored_from
        if position is None or self.end_offset is None:
            return None
        return self.end_offset - position if position <= self.end_offset else self.end_offset

    @property
    def waits_for(self) -> str | None:
        """The temporary problem that copying or commit waits for; None if there is none."""
        return self.waiting_for or self.commit_waits_for

    def _state(self) -> PartitionStatus:
        if self.stopped:
            return PartitionStatus.STOPPED
        if self.waits_for:
            return PartitionStatus.WAITING
        if self.lag_records is None:
            return PartitionStatus.UNKNOWN
        return PartitionStatus.BEHIND if self.lag_records else PartitionStatus.UP_TO_DATE

    def lag_s(self, now: float) -> float | None:
        """
        Return the lag in time: 0 without lag, None while it is unknown.

        Everything older than :attr:`unmirrored_since` is mirrored, so this is the maximum age of the oldest
        unmirrored record. If nothing was copied yet, it is the time since the mirror detected the lag.

        Args:
            now: Unix time.

        """
        since = self.unmirrored_since
        if since is None:
            return None if self.lag_records is None else 0.0
        return max(0.0, now - since)

    @property
    def unmirrored_since(self) -> float | None:
        """
        Unix time before which everything is mirrored; None without lag, or if nothing is known.

        This is the timestamp of the newest mirrored record. After a pause without new records, this timestamp
        may be much older than the records that are missing. Then the end of the pause counts.
        """
        behind_since = self.behind_since
        if behind_since is None or self.newest_ms is None:
            return behind_since
        newest = self.newest_ms / 1000
        return max(newest, behind_since) if self.was_up_to_date else newest

    def expecting(
        self, position: int | None, end: int, held_back: int | None, now: float
    ) -> PartitionMetrics:
        """
        Return the partition with offsets that the driver has read.

        Args:
            position: The next offset to mirror; a task's own report takes precedence.
            end: The end of the records to mirror.
            held_back: The number of offsets behind that end; None if the driver did not ask.
            now: Unix time.

        """
        is_at_work = self.process is not None and self.state in _AT_WORK
        if is_at_work and self.source_offset is not None:
            end = max(end, self.source_offset)  # the task has moved since the driver read the end
        source_offset = newer(self.source_offset, position)
        return replace(self, source_offset=source_offset, end_offset=end).seen_at(now, held_back)

    def after(self, report: CopyReport, process: str | None, now: float) -> PartitionMetrics:
        """Return these metrics with a report added."""
        newest_ms = report.newest_ms
        if newest_ms is not None and not 0 <= newest_ms / 1000 <= now + _CLOCK_SKEW_S:
            newest_ms = None
        committed = newer(report.committed_offset, self.committed_offset)
        return (
            replace(
                self,
                source_offset=newer(report.source_offset, self.source_offset),
                end_offset=self._end_after(report),
                committed_offset=committed,
                committed_at=self.committed_at if committed == self.committed_offset else now,
                newest_ms=newer(newest_ms, self.newest_ms),
                **self._counted(report.counters),
                waiting_for=report.waiting_for,
                commit_waits_for=report.commit_waits_for,
                process=newer(process, self.process),
            )
            ._stopped_or_healed(report, now)
            .seen_at(now, report.held_back, moved=report.end_offset != self.end_offset)
        )

    def _counted(self, counters: Counters) -> dict[str, Any]:
        """Return the fields with counts; a report of the same counts as before changes nothing."""
        before = self.lives.get(counters.since, Counted())
        if not counters.since or counters.counts() == before.counts():
            return {}
        # A task that ends may report after its successor has begun, so both are known.
        others = [(since, counts) for since, counts in self.lives.items() if since != counters.since]
        lives = dict([*others[-1:], (counters.since, Counted(**counters.counts()))])
        return {"counts": self.counts.moved(before, counters), "lives": lives}

    def _end_after(self, report: CopyReport) -> int | None:
        """
        Return the end after a report: at least the position of a task at work, which is in the log.

        A task that waits fetches nothing, so its end may be older than the one that the driver has read.
        """
        end, position = newer(report.end_offset, self.end_offset), report.source_offset
        if end is not None and self.end_offset is not None and report.waiting_for and self.waiting_for:
            return max(end, self.end_offset)
        if end is None or position is None or report.waiting_for or report.stopped:
            return end
        return max(end, position)

    def _stopped_or_healed(self, report: CopyReport, now: float) -> PartitionMetrics:
        """Return it stopped; or no longer so, if a retry has moved it or found nothing left to copy."""
        stopped, position = report.stopped, report.source_offset
        if stopped is not None:
            kinds = [each.kind for each in report.counters.incidents if not each.continued]
            return replace(
                self,
                stopped=stopped,
                stopped_at=now,
                stopped_by=kinds[-1] if kinds else None,
                is_tried_again=False,
                accepted=None,
            )
        if self.stopped is None or not self.is_tried_again:
            return self
        has_moved = position is not None and position > self.stopped.offset
        is_at_its_end = self.waiting_for is None and position is not None and position == self.end_offset
        if has_moved or is_at_its_end:
            return replace(self, stopped=None, stopped_by=None, is_tried_again=False, accepted=None)
        has_continued = any(each.continued for each in report.counters.incidents)
        return replace(self, accepted=None) if has_continued else self

    def seen_at(self, now: float, held_back: int | None = None, *, moved: bool = False) -> PartitionMetrics:
        """
        Return the partition with the begin of its lag, and of the time for which records are held back.

        Args:
            now: Unix time.
            held_back: The number of offsets held back; None for no change.
            moved: Whether the end has changed: then another transaction is the first open one.

        """
        seen = self
        if held_back is not None:
            is_same = self.held_back_since is not None and not moved
            since = self.held_back_since if is_same else now
            seen = replace(self, held_back=held_back, held_back_since=since if held_back else None)
        lag = self.lag_records
        if lag == 0 and (self.behind_since is not None or not self.was_up_to_date):
            return replace(seen, behind_since=None, was_up_to_date=True)
        if lag and self.behind_since is None:
            return replace(seen, behind_since=now)
        return seen


_AT_WORK = (PartitionStatus.UP_TO_DATE, PartitionStatus.BEHIND, PartitionStatus.UNKNOWN)


def newer(reported: _Value | None, known: _Value | None) -> _Value | None:
    """Return the reported value, or the known one if the report has none."""
    return known if reported is None else reported
