"""The state of the consumer groups that follow a mirror, for metrics, page and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...numbers import gauge

__all__ = ["GroupsStatus"]


@dataclass(frozen=True, slots=True)
class GroupsStatus:
    """
    The result of the last round.

    Attributes:
        at: Unix time of the end of the last round that succeeded; None before the first.
        groups: The number of selected groups.
        offsets: The number of their offsets by exactness: ``exact``, ``ahead`` and ``at least``.
        actions: The number of their offsets by action, such as ``unchanged`` or ``refused``.
        left_alone: The groups that have members at the destination, at most a hundred.
        problems: The reason by group, if none of its offsets can be translated; at most a hundred.
        untranslated: The number of these groups, without those that have no offsets of consumers.
        failure: The reason why the last round failed; empty if it succeeded.

    """

    at: float | None = gauge(
        "shoal_consumer_groups_timestamp_seconds", "Unix time of the last translation that succeeded."
    )
    groups: int = gauge(
        "shoal_consumer_groups", "Consumer groups whose committed offsets follow the records.", initial=0
    )
    offsets: Mapping[str, int] = gauge(
        "shoal_consumer_group_offsets",
        "Committed offsets in the last translation: exact, ahead or at least.",
        label="exactness",
    )
    actions: Mapping[str, int] = gauge(
        "shoal_consumer_group_actions",
        "Committed offsets in the last translation by action, such as unchanged, active there or refused.",
        label="action",
    )
    left_alone: tuple[str, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)
    untranslated: int = gauge(
        "shoal_consumer_groups_untranslated",
        "Consumer groups of which no offset is translated, such as streams groups, and groups that the "
        "mirror may not read. Share groups and the groups of mirrors do not count.",
        initial=0,
    )
    failure: str = ""

    def to_json_object(self, now: float) -> dict[str, Any]:
        """Return the state for progress, page and reports."""
        return {
            "age_s": None if self.at is None else max(0.0, now - self.at),
            "groups": self.groups,
            "offsets": dict(self.offsets),
            "actions": dict(self.actions),
            "left_alone": list(self.left_alone),
            "problems": dict(self.problems),
            "failure": self.failure,
        }
