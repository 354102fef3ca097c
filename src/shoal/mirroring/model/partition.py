"""One partition of a mirror, as its reports tell: its counts, its offsets, and its state in one word."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ...errors import PartitionStopped
from ...numbers import WORKED_OUT, gauge, measured
from ...timing import SYSTEM_CLOCK, Clock
from ...topic_partition import TopicPartition
from .incidents import IncidentKind
from .reports import CopyReport, Counted, Counters

__all__ = ["PartitionState", "PartitionStatus"]

#: The limit for the skew of a producer's clock: a later timestamp is ignored.
_CLOCK_SKEW_S = 60.0

_Value = TypeVar("_Value")


class PartitionStatus(enum.StrEnum):
    """
    A partition's state as users see it: exactly one at a time, so that the counts add up to all partitions.

    The value is the word for it on the terminal, in JSON, on the page and in Prometheus.
    """

    UP_TO_DATE = "up to date"
    BEHIND = "behind"
    WAITING = "waiting"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PartitionState:
    """
    One partition: its counts since the start, and its offsets. Each change makes a new object.

    Attributes:
        name: The partition of the source.
        clock: The clock of its lag in time.
        silence: The cluster that does not answer, or the tasks that do not, as a clause; None if all answer.
        source_offset: The next offset to mirror; None until a task has found it.
        end_offset: The end of the records to copy; None until the first report of it.
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
        lag_records: None until position and end are known. If the source ends before the position, the topic
            was recreated, or lost its tail. Until the mirror has determined which, all of it is missing.
        state: The most urgent of the states that apply.

    """

    name: TopicPartition
    clock: Clock = SYSTEM_CLOCK
    silence: str | None = None
    source_offset: int | None = None
    end_offset: int | None = None
    held_back_since: float | None = None
    committed_offset: int | None = None
    newest_ms: int | None = None
    behind_since: float | None = None
    was_up_to_date: bool = False
    counts: Counted = field(default_factory=Counted)
    lives: Mapping[int, Counted] = field(default_factory=dict)
    waiting_for: str | None = None
    commit_waits_for: str | None = None
    stopped: PartitionStopped | None = None
    stopped_at: float = 0.0
    stopped_by: IncidentKind | None = None
    is_tried_again: bool = False
    accepted: IncidentKind | None = None
    process: str | None = None
    state: PartitionStatus = field(init=False)
    lag_records: int | None = gauge(
        "shoal_lag_records",
        "Offsets of the source that are not mirrored, including transaction markers and holes. If the "
        "partition is stopped, the offsets missing at the destination.",
        initial=WORKED_OUT,
    )
    held_back_records: int = gauge(
        "shoal_held_back_records",
        "Offsets between the source's last stable offset and its high watermark, held back by open "
        "transactions.",
        initial=0,
    )
    committed_at: float | None = gauge(
        "shoal_last_commit_timestamp_seconds",
        "Unix time of the last commit of the position. Present after the first commit of this run.",
        total=max,
    )

    def __post_init__(self) -> None:
        # Once for each change: all views read them, of thousands of partitions.
        object.__setattr__(self, "lag_records", self._lag_records())
        object.__setattr__(self, "state", self._state())

    def _lag_records(self) -> int | None:
        position = self.source_offset
        if self.stopped is not None and self.stopped.unmirrored_from is not None:
            position = self.stopped.unmirrored_from
        if position is None or self.end_offset is None:
            return None
        return self.end_offset - position if position <= self.end_offset else self.end_offset

    def _state(self) -> PartitionStatus:
        if self.stopped:
            return PartitionStatus.STOPPED
        if self.reason:
            return PartitionStatus.WAITING
        if self.lag_records is None:
            return PartitionStatus.UNKNOWN
        return PartitionStatus.BEHIND if self.lag_records else PartitionStatus.UP_TO_DATE

    @property
    def reason(self) -> str | None:
        """The reason why it is stopped or waits; None if it does neither."""
        if self.stopped is not None:
            return self.stopped.reason
        return self.waiting_for or self.commit_waits_for or self.silence

    @measured(
        "shoal_lag_seconds", "Upper bound for the age of the oldest record that is not mirrored.", total=max
    )
    def lag_s(self) -> float | None:
        """
        The lag in time: 0 without lag, None while it is unknown.

        Everything older than the timestamp of the newest mirrored record is mirrored. After a pause without
        new records, this timestamp may be much older than the records that are missing: then the end of the
        pause counts. If nothing was copied yet, it is the time since the mirror detected the lag.
        """
        since = self.behind_since
        if since is None:
            return None if self.lag_records is None else 0.0
        if self.newest_ms is not None:
            newest = self.newest_ms / 1000
            since = max(newest, since) if self.was_up_to_date else newest
        return max(0.0, self.clock.wall() - since)

    @measured(
        "shoal_partition_waiting",
        "1 while the partition waits for a cause that can pass with time, such as a missing leader.",
    )
    def is_waiting(self) -> bool:
        """Whether it waits."""
        return self.state is PartitionStatus.WAITING

    @measured("shoal_partition_stopped", "1 while the partition is stopped. The others continue.")
    def is_stopped(self) -> bool:
        """Whether it is stopped."""
        return self.stopped is not None

    @property
    def is_held_up(self) -> bool:
        """Whether no task reports its end: it waits, or is stopped."""
        return bool(self.stopped or self.waiting_for or self.silence)

    # Changes

    def expecting(self, position: int | None, end: int, now: float) -> PartitionState:
        """
        Return the partition with offsets that the driver has read.

        Args:
            position: The next offset to mirror; a task's own report takes precedence.
            end: The end of the records to mirror.
            now: Unix time.

        """
        is_at_work = self.process is not None and not (self.stopped or self.waiting_for)
        if is_at_work and self.source_offset is not None and not self.commit_waits_for:
            end = max(end, self.source_offset)  # the task has moved since the driver read the end
        return self._changed(
            now,
            source_offset=_newer(self.source_offset, position),
            end_offset=end,
        )

    def after(self, report: CopyReport, process: str | None, now: float) -> PartitionState:
        """Return the partition with a report added."""
        newest_ms = report.newest_ms
        if newest_ms is not None and not 0 <= newest_ms / 1000 <= now + _CLOCK_SKEW_S:
            newest_ms = None
        committed = _newer(report.committed_offset, self.committed_offset)
        return self._changed(
            now,
            source_offset=_newer(report.source_offset, self.source_offset),
            end_offset=self._end_after(report),
            committed_offset=committed,
            committed_at=self.committed_at if committed == self.committed_offset else now,
            newest_ms=_newer(newest_ms, self.newest_ms),
            waiting_for=report.waiting_for,
            commit_waits_for=report.commit_waits_for,
            process=_newer(process, self.process),
            **self._counted(report.counters),
            **self._stopped_or_healed(report, now),
            **self._held_back(report.held_back, now, moved=report.end_offset != self.end_offset),
        )

    def forgotten(self) -> PartitionState:
        """Return the partition without its state: a late report has counts that are in the totals."""
        return PartitionState(self.name, self.clock, lives=self.lives)

    def _changed(self, now: float, **changes: Any) -> PartitionState:
        """Return it changed, with the begin of its lag."""
        changed = replace(self, **changes)
        if changed.lag_records == 0 and (self.behind_since is not None or not self.was_up_to_date):
            return replace(changed, behind_since=None, was_up_to_date=True)
        if changed.lag_records and self.behind_since is None:
            return replace(changed, behind_since=now)
        return changed

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
        end, position = _newer(report.end_offset, self.end_offset), report.source_offset
        if end is not None and self.end_offset is not None and report.waiting_for and self.waiting_for:
            return max(end, self.end_offset)
        if end is None or position is None or report.waiting_for or report.stopped:
            return end
        return max(end, position)

    def _stopped_or_healed(self, report: CopyReport, now: float) -> dict[str, Any]:
        """Return the fields of a stop; or of its end, if a retry has moved or found nothing left to copy."""
        stopped, position = report.stopped, report.source_offset
        over = {"is_tried_again": False, "accepted": None}
        if stopped is not None:
            kinds = [each.kind for each in report.counters.incidents if not each.continued]
            by = kinds[-1] if kinds else None
            return {"stopped": stopped, "stopped_at": now, "stopped_by": by, **over}
        if self.stopped is None or not self.is_tried_again:
            return {}
        has_moved = position is not None and position > self.stopped.offset
        is_at_its_end = report.waiting_for is None and position is not None
        if has_moved or (is_at_its_end and position == self._end_after(report)):
            return {"stopped": None, "stopped_by": None, **over}
        has_continued = any(each.continued for each in report.counters.incidents)
        return {"accepted": None} if has_continued else {}

    def _held_back(self, number: int | None, now: float, *, moved: bool = False) -> dict[str, Any]:
        """
        Return the fields of the records that are held back, of which None is no news.

        If the end has moved, another transaction is the first open one.
        """
        if number is None:
            return {}
        since = now if moved or self.held_back_since is None else self.held_back_since
        return {"held_back_records": number, "held_back_since": since if number else None}


def _newer(reported: _Value | None, known: _Value | None) -> _Value | None:
    """Return the reported value, or the known one if the report has none."""
    return known if reported is None else reported
