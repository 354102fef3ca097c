"""
One round: read the groups of one cluster, translate their offsets, and commit them at the other.

The offsets that are translated are read before the mirror's positions, and the other cluster's offsets last:
an offset that a consumer commits meanwhile is at worst one that the next round sees.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ...client.cluster import Cluster
from ...client.group_listing import GroupListing, GroupType, ListedGroup, list_groups
from ...client.group_offsets import GroupOffsetsReader
from ...client.offsets import EARLIEST, LATEST
from ...errors import ShoalError
from ...protocol.offset_fetch import FetchedGroup
from ...topic_partition import TopicPartition
from ..model.group_selection import GroupSelection
from .commit import Outcome, commit_translations
from .copies import Copies, TakenOf
from .decide import Action, Clusters, Direction
from .group_decisions import DecidedGroup, GroupDecisions, OneGroup
from .log_bounds import LogBounds
from .report import GroupOffset, GroupReport, GroupsReport

__all__ = ["GroupSync"]

#: How long the log starts of the other cluster are believed. Retention may overtake the offset of an idle
#: group at any time, also between two rounds.
_LOG_STARTS_S = 60.0


class GroupSync:
    """The rounds of one pair of clusters. One thread uses it, with clusters of its own."""

    def __init__(
        self,
        source: Cluster,
        destination: Cluster,
        mirror_group: str,
        selection: GroupSelection,
        taken_of: TakenOf,
        *,
        direction: Direction = Direction.FORWARD,
        with_lag: bool = False,
        patience_s: float = 10.0,
    ) -> None:
        """
        Prepare; nothing is sent yet.

        Args:
            source: The source cluster of the mirror.
            destination: Its destination cluster.
            mirror_group: The mirror's group on the source cluster.
            selection: The groups.
            taken_of: Shows which source offsets a copy would take.
            direction: Whether groups follow the records, or go back.
            with_lag: Whether to ask for the ends of the partitions that are read.
            patience_s: How long to retry a commit while a coordinator moves.

        """
        clusters = (source, destination)
        self._read, self._written = clusters if direction is Direction.FORWARD else clusters[::-1]
        self._copies = Copies(source, destination, mirror_group, taken_of)
        self._mirror_group = mirror_group
        self._selection = selection
        self._direction = direction
        self._with_lag = with_lag
        self._patience_s = patience_s
        self._committed = GroupOffsetsReader(self._read)
        self._present = GroupOffsetsReader(self._written)
        self._log_starts = LogBounds(self._written, EARLIEST, keep_s=_LOG_STARTS_S)
        self._ends = LogBounds(self._read, LATEST, keep_s=0.0)
        self._decisions = GroupDecisions(
            self._copies, direction, self._log_starts, self._ends, str(self._written)
        )

    def round(self, topics: Mapping[str, str], *, apply: bool, afresh: bool = False) -> GroupsReport:
        """
        Read, decide, and commit.

        Args:
            topics: The mirror's topics at the destination, by their names at the source.
            apply: Whether to commit; otherwise nothing is written.
            afresh: Whether to decide everything again, even if nothing has changed.

        Raises:
            ShoalError: A cluster does not respond, or refuses to show the mirror's positions.

        """
        started = time.monotonic()
        if afresh:
            self._decisions.forget()
        listed = list_groups(self._read)
        selected = {each.name: each for each in listed.groups.values() if self._is_selected(each)}
        offsets = self._committed.read(name for name, each in selected.items() if each.commits_offsets)
        self._copies.read(topics)
        self._ask_logs(offsets.values())
        other = list_groups(self._written)
        # A group that is not listed has no offsets, unless its coordinator did not answer.
        present = self._present.read(name for name in offsets if name in other.groups or other.failures)
        decided = self._decisions.decide(
            (
                OneGroup(selected[name], offsets.get(name), other.groups.get(name), present.get(name))
                for name in sorted(selected)
            ),
            Clusters(self._read.metadata.cluster_id, self._written.metadata.cluster_id),
        )
        reports = [self._commit(each) if apply and each.to_commit else each.report for each in decided]
        warnings = [*_warnings(self._read, listed), *_warnings(self._written, other)]
        return GroupsReport(self._direction, reports, warnings, time.monotonic() - started)

    def _is_selected(self, group: ListedGroup) -> bool:
        # Classic groups of other protocols, such as those of Connect's workers, commit no offsets.
        is_for_consumers = group.commits_offsets or group.type is not GroupType.CLASSIC
        return is_for_consumers and group.name != self._mirror_group and self._selection.matches(group.name)

    def _ask_logs(self, answers: Iterable[FetchedGroup | ShoalError]) -> None:
        topics = {topic for answer in answers if isinstance(answer, FetchedGroup) for topic in answer.topics}
        counterparts = (self._copies.counterpart_of(topic, self._direction) for topic in topics)
        self._log_starts.ask(each for each in counterparts if each is not None)
        if self._with_lag:
            self._ends.ask(topics)

    def _commit(self, group: DecidedGroup) -> GroupReport:
        outcomes = commit_translations(
            self._written, group.report.name, group.to_commit, patience_s=self._patience_s
        )
        offsets = [_with_outcome(each, outcomes) for each in group.report.offsets]
        return replace(group.report, offsets=offsets)


def _with_outcome(offset: GroupOffset, outcomes: Mapping[TopicPartition, Outcome]) -> GroupOffset:
    if offset.action is not Action.WRITE or offset.counterpart is None:
        return offset
    action, detail = outcomes[offset.counterpart]
    return replace(offset, action=action, detail=detail or offset.detail)


def _warnings(cluster: Cluster, listing: GroupListing) -> list[str]:
    return [
        f"groups of broker {node_id} of {cluster} may be missing: {error}"
        for node_id, error in listing.failures.items()
    ]
