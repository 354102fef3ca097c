"""Whether the source keeps the mirror's positions, however long no mirror runs."""

from __future__ import annotations

from ...client.cluster import Cluster
from ...client.committed_offsets import takes_retention
from .descriptions import describe_brokers

__all__ = ["warning_of_expiry"]

#: Kafka's default of ``offsets.retention.minutes``: 7 days.
_DEFAULT_RETENTION_MINUTES = 7 * 24 * 60


def warning_of_expiry(source: Cluster, group: str) -> str | None:
    """
    Return a warning if the source deletes the positions of a mirror that does not run; None if it keeps them.

    Args:
        source: The cluster of the group.
        group: The mirror's group.

    Raises:
        ShoalError: The group's coordinator does not answer.

    """
    if takes_retention(source, group):
        return None
    told = describe_brokers(source).offsets_retention_minutes
    setting = "offsets.retention.minutes"
    if told is None:
        setting = f"Kafka's default of {setting}, since no broker returned its value"
    return (
        f"{source} takes no retention time with a position (OffsetCommit v2 to v4). If no mirror of group "
        f"{group!r} runs for {_duration(told or _DEFAULT_RETENTION_MINUTES)}, the cluster deletes the "
        f"positions ({setting})"
    )


def _duration(minutes: int) -> str:
    """Return ``7 days``, or ``90 minutes``."""
    days, rest = divmod(minutes, 24 * 60)
    number, unit = (minutes, "minute") if rest else (days, "day")
    return f"{number} {unit}{'s' if number > 1 else ''}"
