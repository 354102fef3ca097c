"""The progress line of a mirror: the most important part first, as wide as the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from ..mirroring.model.progress import Phase, Progress

__all__ = ["clock", "line", "phase_line"]

#: Wider than any line: the terminal cuts the line then.
_NO_LIMIT = 1_000_000

#: The phases before the copying.
_STARTING = {each.value for each in Phase} - {Phase.COPYING.value, Phase.STOPPING.value}


def line(progress: Progress, width: int = _NO_LIMIT) -> str:
    """
    Return a line such as ``1 stopped, 2 waiting, 13/16 up to date, lag 200 records, 1,234 records/s``.

    Parts are dropped from the end until the line fits. Stopped and waiting partitions come first.

    """
    if progress.phase in _STARTING:
        return phase_line(progress)[:width]
    parts = list(_parts(progress))
    while len(parts) > 1 and len(", ".join(parts)) > width:
        parts.pop()
    return ", ".join(parts)


def phase_line(progress: Progress) -> str:
    """Return the phase before the copying, and its duration: ``finding positions, 0:12``."""
    return f"{progress.phase}, {clock(progress.phase_s)}"


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
