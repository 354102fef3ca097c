"""The topics that a mirror selects and this principal may not describe: the cluster leaves them out."""

from __future__ import annotations

from typing import NamedTuple

from ...client.cluster import Cluster
from ..model.acls import prefixes_of
from ..model.topics import TopicSelection
from ..prepare.descriptions import NOT_ALLOWED

__all__ = ["HiddenTopics", "hidden_topics"]


class HiddenTopics(NamedTuple):
    """
    Topics without DESCRIBE.

    Attributes:
        named: The names at the destination of topics that ``--topics`` names, by their names at the source.
        prefixes: The same of prefixes that an expression selects, and of which no topic is visible.

    """

    named: dict[str, str]
    prefixes: dict[str, str]

    def warnings(self, cluster: Cluster, refusal: str) -> tuple[str, ...]:
        """Return a sentence for each named topic that a refusal does not name."""
        return tuple(
            f"topic {name} of {cluster}: this principal is not authorized (allow DESCRIBE on it)"
            for name in self.named
            if f"topic {name} of" not in refusal
        )


def hidden_topics(selection: TopicSelection, source: Cluster) -> HiddenTopics:
    """Ask the source for the selected topics that its metadata lack."""
    visible = source.metadata.topics
    named = {name: selection.destination_of(name) for name in selection.missing(visible)}
    prefixes = {
        prefix: copy
        for prefix, copy in prefixes_of(selection).items()
        if not any(name.startswith(prefix) for name in visible)
    }
    if named or prefixes:
        source.refresh([*named, *prefixes])
    errors = source.metadata.errors
    return HiddenTopics(
        {name: copy for name, copy in named.items() if errors.get(name) in NOT_ALLOWED},
        {name: copy for name, copy in prefixes.items() if errors.get(name) in NOT_ALLOWED},
    )
