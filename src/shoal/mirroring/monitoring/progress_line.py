"""The progress of a mirror in one line, the most important part first: for terminals, logs and operators."""

from __future__ import annotations

from collections.abc import Iterator

from ..model.progress import Phase, Progress

__all__ = ["clock", "line"]

#: The phases before the copying.
_STARTING = {each.value for each in Phase} - {Phase.COPYING.value, Phase.STOPPING.value}


def line(progress: Progress) -> str:
    """Return ``1 stopped, 2 waiting, 13/16 up to date, lag 200 records``, or ``finding positions, 0:12``."""
    if progress.phase in _STARTING:
        return f"{progress.phase}, {clock(progress.phase_s)}"
    return ", ".join(_parts(progress))


def _parts(progress: Progress) -> Iterator[str]:
    if progress.phase == Phase.STOPPING.value:
        yield "stopping"
    for name in progress.clusters_down:
        yield f"{name} does not answer"
    if progress.stopped:
        yield f"{len(progress.stopped):,} stopped"
    if progress.waiting:
        yield f"{len(progress.waiting):,} waiting"
    for state in ("behind", "unknown"):
        if count := progress.states.get(state):
            yield f"{count:,} {state}"
    yield f"{progress.states.get('up to date', 0):,}/{progress.partitions:,} up to date"
    yield f"lag {'' if progress.lag_is_known else 'at least '}{progress.lag_records:,} records"
    if progress.held_back_records:
        yield f"{progress.held_back_records:,} in open transactions"
    yield f"{progress.records_per_s:,.0f} records/s"
    yield f"{progress.bytes_per_s / 1e6:,.1f} MB/s"
    if progress.remaining_s is not None and progress.lag_records:
        yield f"{clock(progress.remaining_s)} left"


def clock(seconds: float) -> str:
    """Return ``1:02``, or with hours ``1:02:03``."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
