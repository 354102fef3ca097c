"""
One round: read the groups of one cluster, translate their offsets, and commit them at the other.

The offsets that are translated are read before the mirror's positions, and the other cluster's offsets last:
an offset that a consumer commits meanwhile is at worst one that the next round sees.

While a coordinator moves, no broker may list its groups, and none reports an error: neither the former
coordinator nor the next one has them (GroupCoordinatorService.listGroups). So a listing alone does not show
that a group is gone, but its coordinator does (OffsetFetch).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ...client.cluster import Cluster, is_transient, patiently
from ...client.committed_offsets import fetch_offsets
from ...client.group_listing import GroupListing, GroupType, ListedGroup, list_groups
from ...client.group_offsets import FetchedGroup, GroupOffsetsReader
from ...client.offsets import EARLIEST, LATEST
from ...error_codes import ErrorCode
from ...errors import BrokerError, ShoalError
from ...timing import DEFAULT_TIMING, Timing
from ...topic_partition import TopicPartition
from ..model.group_selection import GroupSelection
from .commit import Outcome, commit_translations
from .copies import Copies, TakenOf
from .group_decisions import UNSTABLE_THERE, DecidedGroup, GroupDecisions, OneGroup
from .log_bounds import LogBounds
from .offset_rules import Action, ClusterIds, Direction
from .report import GroupOffset, GroupReport, GroupsReport, OffsetProof
from .way_there import WayThere

__all__ = ["GroupSync"]

#: How long the log starts of the other cluster are believed. Retention may overtake the offset of an idle
#: group at any time, also between two rounds.
_LOG_STARTS_S = 60.0

_PROVED_WRONG = "not committed: --prove found another record there. Compare the copy by shoal verify"

_COMMITTED_SINCE: Outcome = (Action.ACTIVE, "a consumer has just committed this offset")
_UNSTABLE_SINCE: Outcome = (Action.REFUSED, UNSTABLE_THERE)


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
        way_there: WayThere | None = None,
        direction: Direction = Direction.FORWARD,
        with_lag: bool = False,
        with_states: bool = False,
        patience_s: float = 10.0,
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        """
        Prepare; nothing is sent yet.

        Args:
            source: The source cluster of the mirror.
            mirror_group: The mirror's group on the source cluster.
            taken_of: Shows which source offsets a copy would take.
            way_there: Translates offsets from before a cut-over, for a mirror that goes back.
            direction: Whether groups follow the records, or go back.
            with_lag: Whether to ask for the ends of the partitions that are read.
            with_states: Whether to see also the members of groups of brokers before Kafka 2.6.
            patience_s: How long to retry a commit while a coordinator moves.
            timing: How long the other cluster's offsets are believed.

        """
        clusters = (source, destination)
        self._read, self._written = clusters if direction is Direction.FORWARD else clusters[::-1]
        self._copies = Copies(source, destination, mirror_group, taken_of, way_there)
        self._mirror_group = mirror_group
        self._selection = selection
        self._direction = direction
        self._with_lag = with_lag
        self._with_states = with_states
        self._patience_s = patience_s
        self._timing = timing
        self._selected: dict[str, ListedGroup] = {}
        self._committed = GroupOffsetsReader(self._read)
        self._present = GroupOffsetsReader(self._written)
        self._log_starts = LogBounds(self._written, EARLIEST, keep_s=_LOG_STARTS_S)
        self._ends = LogBounds(self._read, LATEST, keep_s=0.0)
        self._decisions = GroupDecisions(
            self._copies, direction, self._log_starts, self._ends, str(self._written)
        )

    def round(
        self,
        topics: Mapping[str, str],
        *,
        apply: bool,
        afresh: bool = False,
        stable: bool = False,
        prove: Callable[[GroupOffset], OffsetProof | None] | None = None,
    ) -> GroupsReport:
        """
        Read, decide, and commit.

        Args:
            topics: The mirror's topics at the destination, by their names at the source.
            apply: Whether to commit; otherwise nothing is written.
            afresh: Whether to decide everything again, even if nothing has changed.
            stable: Whether to refuse offsets that an open transaction would change. The next round of a
                running mirror has them, and others have no next round.
            prove: Compares the next records of a translated offset. One with other records is not committed.

        Raises:
            ShoalError: A cluster does not respond, or refuses to show the mirror's positions.

        """
        started = time.monotonic()
        if afresh:
            self._decisions.forget()
        listed = list_groups(self._read, with_states=self._with_states)
        listed_now = {each.name: each for each in listed.groups.values() if self._is_selected(each)}
        selected = self._selected | listed_now
        offsets = self._committed.read(
            (name for name, each in selected.items() if each.commits_offsets),
            stable=stable,
            partitions=self._read_partitions(topics) if stable else None,
        )
        selected = {
            name: each
            for name, each in selected.items()
            if name in listed_now or _has_offsets(offsets.get(name))
        }
        self._selected = selected
        self._copies.read(topics)
        self._ask_logs(offsets.values())
        other = list_groups(self._written, with_states=self._with_states)
        read_at = time.monotonic()
        present = self._read_present([name for name in offsets if name in selected])
        # Brokers do not list a group that the principal may not describe. Its commit is refused, which names
        # the remedy.
        present = {
            name: answer
            for name, answer in present.items()
            if name in other.groups or not _is_unauthorized(answer)
        }
        decided = self._decisions.decide(
            (
                OneGroup(selected[name], offsets.get(name), other.groups.get(name), present.get(name))
                for name in sorted(selected)
            ),
            ClusterIds(self._read.metadata.cluster_id, self._written.metadata.cluster_id),
        )
        if prove is not None:
            decided = [_proved(each, prove) for each in decided]
        reports = [
            self._commit(each, read_at) if apply and each.to_commit else each.report for each in decided
        ]
        warnings = [*_warnings(self._read, listed), *_warnings(self._written, other)]
        return GroupsReport(self._direction, reports, warnings, time.monotonic() - started)

    def _read_partitions(self, topics: Mapping[str, str]) -> dict[str, list[int]]:
        """Return the partitions of the mirror's topics at the cluster whose offsets are read."""
        names = topics if self._direction is Direction.FORWARD else topics.values()
        found = self._read.refresh(names).topics
        return {name: sorted(found[name].partitions) for name in names if name in found}

    def _is_selected(self, group: ListedGroup) -> bool:
        # Classic groups of other protocols, such as those of Connect's workers, commit no offsets.
        is_for_consumers = group.commits_offsets or group.type is not GroupType.CLASSIC
        return is_for_consumers and group.name != self._mirror_group and self._selection.matches(group.name)

    def _read_present(self, names: Sequence[str]) -> dict[str, FetchedGroup | ShoalError]:
        """
        Return the other cluster's offsets of groups, or errors.

        The read is stable: an absent offset would be written, so it must not be one that the coordinator
        does not show yet.

        The first request for any coordinator has the brokers create __consumer_offsets, so it gets some time.
        """
        answers: dict[str, FetchedGroup | ShoalError] = {}

        def read() -> None:
            answers.update(self._present.read(names, stable=True))
            for answer in answers.values():
                if isinstance(answer, ShoalError) and is_transient(answer):
                    raise answer

        try:
            patiently(read, patience_s=self._patience_s)
        except ShoalError:
            if len(answers) < len(names):
                raise
        return answers

    def _ask_logs(self, answers: Iterable[FetchedGroup | ShoalError]) -> None:
        topics = {topic for answer in answers if isinstance(answer, FetchedGroup) for topic in answer.topics}
        counterparts = (self._copies.counterpart_of(topic, self._direction) for topic in topics)
        self._log_starts.ask(each for each in counterparts if each is not None)
        if self._with_lag:
            self._ends.ask(topics)

    def _commit(self, group: DecidedGroup, read_at: float) -> GroupReport:
        outcomes: dict[TopicPartition, Outcome] = {}
        if time.monotonic() - read_at > self._timing.fresh_groups_s or _writes_first_offsets(group):
            outcomes = self._committed_since(group)
        left = [each for each in group.to_commit if each.partition not in outcomes]
        outcomes |= commit_translations(self._written, group.report.name, left, patience_s=self._patience_s)
        offsets = [_with_outcome(each, outcomes) for each in group.report.offsets]
        return replace(group.report, offsets=offsets)

    def _committed_since(self, group: DecidedGroup) -> dict[TopicPartition, Outcome]:
        """Return the outcomes of offsets that other programs have committed since the decision."""
        partitions = [each.partition for each in group.to_commit]
        try:
            present = fetch_offsets(self._written, group.report.name, partitions)
        except ShoalError as error:
            if isinstance(error, BrokerError) and error.code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
                return dict.fromkeys(partitions, _UNSTABLE_SINCE)
            return {}  # the commit meets the same error, and names it
        decided = {each.counterpart: each.present for each in group.report.offsets}
        now = {each: present[each].offset if each in present else None for each in partitions}
        return {each: _COMMITTED_SINCE for each in partitions if now[each] != decided[each]}


def _has_offsets(answer: FetchedGroup | ShoalError | None) -> bool:
    """Whether a group that is not listed is there, or may be."""
    return isinstance(answer, ShoalError) or (answer is not None and bool(answer.topics))


def _is_unauthorized(answer: FetchedGroup | ShoalError) -> bool:
    return isinstance(answer, BrokerError) and answer.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def _proved(group: DecidedGroup, prove: Callable[[GroupOffset], OffsetProof | None]) -> DecidedGroup:
    """Return a group with proofs, and without the commits of offsets whose next record is another one."""
    offsets = [_refused_if_wrong(replace(each, proof=prove(each))) for each in group.report.offsets]
    refused = {each.counterpart for each in offsets if each.action is Action.REFUSED}
    return DecidedGroup(
        replace(group.report, offsets=offsets),
        [each for each in group.to_commit if each.partition not in refused],
    )


def _refused_if_wrong(offset: GroupOffset) -> GroupOffset:
    is_wrong = offset.proof is not None and offset.proof.is_same is False
    if not is_wrong or offset.action is not Action.WRITE:
        return offset
    return replace(offset, action=Action.REFUSED, detail=_PROVED_WRONG)


def _writes_first_offsets(group: DecidedGroup) -> bool:
    """Whether a partition has no offset there: only a read by name shows that of an open transaction."""
    first = {each.counterpart for each in group.report.offsets if each.present is None}
    return any(each.partition in first for each in group.to_commit)


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
