"""One partition in the registry: what was counted of it, where it stands, and its state in one word."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ...errors import PartitionStopped
from ...records import Decision
from ..model.reports import PartitionReport

__all__ = ["DROPS", "PartitionMetrics", "PartitionState", "newer"]

#: How far the clock that stamped a record may be ahead of ours; a record from further on says nothing.
_CLOCK_SKEW_S = 60.0

_Value = TypeVar("_Value")

#: The decisions after which a batch is not at the destination.
DROPS = frozenset(each.value for each in Decision if each.is_drop)


class PartitionState(enum.Enum):
    """
    A partition's state: exactly one at a time, so that the counts of all states add up to all partitions.

    The value is the word for it on the terminal, in JSON, on the page and in Prometheus.
    """

    UP_TO_DATE = "up to date"
    BEHIND = "behind"
    WAITING = "waiting"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PartitionMetrics:
    """
    One partition: its counts since the start, and where it stands. A report makes a new one.

    Attributes:
        source_offset: The next to mirror; None until a task has found out.
        end_offset: Up to where there is something to copy; None until heard.
        held_back: How many offsets lie between ``end_offset`` and the source's
            high watermark: the records of open transactions, and those behind them.
        held_back_since: Unix time since which records are held back at this
            ``end_offset``; None while none are.
        committed_offset: Of the last commit; None before the first.
        committed_at: When that was heard first, as Unix time.
        newest_ms: The timestamp of the newest record that was acknowledged
            last; None before the first.
        behind_since: Unix time of the report that first spoke of what is not
            mirrored; None while everything is.
        was_up_to_date: Whether it ever had nothing left to mirror.
        records: That were acknowledged at the destination.
        bytes_in: Of batches, as fetched.
        bytes_out: Of batches, as acknowledged.
        decisions: How many batches met which.
        retries: How often it had to wait, or to begin again.
        waiting_for: What the copying waits for; time can heal it.
        commit_waits_for: What the commit of its position waits for, while records are copied.
        stopped: Why nothing more is copied, until it is healed.
        is_tried_again: Whether a stopped partition is tried again; it counts
            as stopped until it has moved.
        process: The worker that spoke of it last, as ``host:pid``.

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
    records: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    decisions: Mapping[str, int] = field(default_factory=dict)
    retries: int = 0
    waiting_for: str | None = None
    commit_waits_for: str | None = None
    stopped: PartitionStopped | None = None
    is_tried_again: bool = False
    process: str | None = field(default=None, compare=False)

    @property
    def batches(self) -> int:
        """That were acknowledged at the destination."""
        return sum(count for name, count in self.decisions.items() if name not in DROPS)

    @property
    def lag_records(self) -> int | None:
        """
        The offsets of the source that are not mirrored; None until position and end are known.

        A source that ends before the position is not the log that was mirrored (it was recreated, or
        lost its tail): until the mirror has found out which, all of it counts as missing.
        """
        position = self.source_offset
        if self.stopped is not None and self.stopped.unmirrored_from is not None:
            position = self.stopped.unmirrored_from
        if position is None or self.end_offset is None:
            return None
        return self.end_offset - position if position <= self.end_offset else self.end_offset

    @property
    def waits_for(self) -> str | None:
        """What the operator should know of a partition that time can heal."""
        return self.waiting_for or self.commit_waits_for

    @property
    def state(self) -> PartitionState:
        """The one state that an operator has to know of first."""
        if self.stopped:
            return PartitionState.STOPPED
        if self.waits_for:
            return PartitionState.WAITING
        if self.lag_records is None:
            return PartitionState.UNKNOWN
        return PartitionState.BEHIND if self.lag_records else PartitionState.UP_TO_DATE

    def lag_s(self, now: float) -> float | None:
        """
        Return how far the destination is behind in time: 0 without lag, None until it is known.

        Everything older than :attr:`unmirrored_since` is mirrored, so this is
        the age that the oldest unmirrored record can have at most; but where
        nothing was copied yet it is how long the mirror has known of the lag.

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
        Unix time before which everything is mirrored; None where everything is, or nothing is known.

        That is the newest mirrored record's. After a pause in which there was
        nothing to mirror, that record may be old and what came after it new:
        then it is when the pause ended.
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
        Return it with what the driver looked up.

        Args:
            position: Where it goes on; of a partition that a task has spoken of, the task knows better.
            end: Up to where there is something to mirror.
            held_back: How many offsets lie behind that; None if nothing was asked.
            now: Unix time.

        """
        is_at_work = self.process is not None and self.state in _AT_WORK
        if is_at_work and self.source_offset is not None:
            end = max(end, self.source_offset)  # it moved since the end was asked for
        source_offset = newer(self.source_offset, position)
        return replace(self, source_offset=source_offset, end_offset=end).seen_at(now, held_back)

    def after(self, report: PartitionReport, process: str | None, now: float) -> PartitionMetrics:
        """Return these metrics with a report added."""
        counters, newest_ms = report.counters, report.newest_ms
        decisions = {each.value: count for each, count in counters.decisions.items()}
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
                records=self.records + counters.records,
                bytes_in=self.bytes_in + counters.bytes_in,
                bytes_out=self.bytes_out + counters.bytes_out,
                decisions=_sum(self.decisions, decisions) if decisions else self.decisions,
                retries=self.retries + counters.retries,
                waiting_for=report.waiting_for,
                commit_waits_for=report.commit_waits_for,
                process=newer(process, self.process),
            )
            ._stopped_or_healed(report.stopped, report.source_offset)
            .seen_at(now, report.held_back, moved=report.end_offset != self.end_offset)
        )

    def _end_after(self, report: PartitionReport) -> int | None:
        """Return the end that a report has; a task at work has found its position in the source's log."""
        end, position = newer(report.end_offset, self.end_offset), report.source_offset
        if end is None or position is None or report.waiting_for or report.stopped:
            return end
        return max(end, position)

    def _stopped_or_healed(self, stopped: PartitionStopped | None, position: int | None) -> PartitionMetrics:
        """Return it stopped; or healed, if it was tried again and has moved, or has nothing left to do."""
        if stopped is not None:
            return replace(self, stopped=stopped, is_tried_again=False)
        if self.stopped is None or not self.is_tried_again or position is None:
            return self
        has_moved = position > self.stopped.offset
        is_at_its_end = self.waiting_for is None and position == self.end_offset
        return replace(self, stopped=None, is_tried_again=False) if has_moved or is_at_its_end else self

    def seen_at(self, now: float, held_back: int | None = None, *, moved: bool = False) -> PartitionMetrics:
        """
        Return it with the times from which on it is behind, and records are held back, as of now.

        Args:
            now: Unix time.
            held_back: How many offsets are; None if that is not news.
            moved: Whether the end is another one than before: another transaction is the first open one.

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


_AT_WORK = (PartitionState.UP_TO_DATE, PartitionState.BEHIND, PartitionState.UNKNOWN)


def newer(heard: _Value | None, known: _Value | None) -> _Value | None:
    return known if heard is None else heard


def _sum(counts: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {**counts, **{name: counts.get(name, 0) + count for name, count in more.items()}}
