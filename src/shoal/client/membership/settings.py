"""The settings of a member of a consumer group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["MembershipSettings"]


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """
    Settings of a member; names and defaults are those of Java's consumer.

    Attributes:
        group: ``group.id``.
        assignors: ``partition.assignment.strategy``, by name, the preferred one first.
        instance_id: ``group.instance.id``: a static member (KIP-345) keeps its partitions over a restart.
        session_timeout_ms: The time without a heartbeat after which the coordinator removes the member.
        heartbeat_interval_ms: The time between two heartbeats.
        max_poll_interval_ms: The time without a poll after which the member leaves.
        metadata_max_age_ms: The time between two checks of the topics.

    """

    group: str
    assignors: Sequence[str] = ("range", "cooperative-sticky")
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    metadata_max_age_ms: int = 300_000
