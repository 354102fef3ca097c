"""
What a mirror would do: copy from where to where, create, change; and what it may do.

Nothing is done: no topic is created (not even Kafka's own ``__consumer_offsets``),
no group joined, nothing committed, no file made, and Spark is not started.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...client.authorized import group_operations, topic_operations
from ...client.cluster import Cluster, patiently
from ...client.coordinator import MemberId, describe_holder, has_coordinator
from ...client.offsets import EARLIEST, LATEST, list_offsets
from ...client.reachable import check_advertised
from ...errors import AccessRefused, ConfigError, ShoalError
from ...protocol.apis import ApiKey
from ...topic_partition import TopicPartition
from ..assignment import end_offsets, partitions_of, start_offsets
from ..model.incidents import Delivery, IncidentKind
from ..model.options import MirrorOptions
from ..model.position import MirrorPosition
from ..model.text import first_few
from ..other_groups import OtherGroups, OtherPosition
from ..positions import GroupPositions, GroupState, warning_of_others
from ..prepare.copies import CopyState, compare_copies
from ..prepare.inspect import PlannedTopic, TopicChanges, inspect_topics
from .acls import Acl, needed_acls
from .beginnings import find_beginnings

__all__ = ["DryRun", "PartitionOutlook", "TopicOutlook", "dry_run"]

_PATIENCE_S = 30.0

_LOOKS = (
    "the mirror goes on behind the copy's last batch if the source has it exactly once, and what the source "
    "has before it is shown to have been mirrored"
)

#: The version of Produce that came with Kafka 2.8 (KAFKA-10729), as did the authorizer that lets
#: whoever may WRITE to a topic have a producer id (KIP-679).
_PRODUCE_OF_2_8 = 9


@dataclass(frozen=True, slots=True)
class PartitionOutlook:
    """
    Attributes:
        partition: Its number.
        start_offset: The first source offset to copy.
        committed: Whether the group says so; else ``--start`` does.
        end_offset: Up to where it can be copied now.
    """

    partition: int
    start_offset: int
    committed: bool
    end_offset: int

    @property
    def offsets(self) -> int:
        """So many records at most: some offsets may have none (transactions, compaction)."""
        return max(0, self.end_offset - self.start_offset)


@dataclass(frozen=True, slots=True)
class TopicOutlook:
    """A topic, and where each of its partitions would go on."""

    plan: PlannedTopic
    partitions: tuple[PartitionOutlook, ...]

    @property
    def offsets(self) -> int:
        return sum(each.offsets for each in self.partitions)


@dataclass(frozen=True, slots=True)
class DryRun:
    """
    What was found.

    Attributes:
        group: The consumer group on the source cluster.
        source_cluster_id: None where the cluster is too old to have one.
        destination_cluster_id: Likewise.
        holder: Who is in the group; None where nobody is.
        topics: By their names at the source; none where the mirror was refused before.
        acls: What the mirror's principal needs.
        missing_acls: Those of them that this principal has not, as far as the clusters tell: of topics
            that exist, and of the group.
        warnings: Sentences: what, where, what to do.
        beginnings: Sentences: where partitions begin that have no position, with ``--start latest``.
        refusal: Why the mirror would not begin; None where it would.

    """

    group: str
    source_cluster_id: str | None
    destination_cluster_id: str | None
    holder: str | None
    topics: tuple[TopicOutlook, ...]
    acls: tuple[Acl, ...]
    missing_acls: tuple[Acl, ...]
    warnings: tuple[str, ...]
    refusal: str | None
    beginnings: tuple[str, ...] = ()


def dry_run(
    options: MirrorOptions,
    *,
    patience_s: float = _PATIENCE_S,
    on_warning: Callable[[str], object] = lambda _: None,
) -> DryRun:
    """
    Look at both clusters, as a mirror with these options would.

    Args:
        options: Of the mirror.
        patience_s: How long brokers that do not answer are asked again.
        on_warning: Called at once for each broker that cannot be reached.

    Raises:
        ShoalError: A cluster does not answer, or nothing is selected.

    """
    with Cluster(options.source) as source, Cluster(options.destination) as destination:
        for cluster in (source, destination):
            for warning in check_advertised(cluster):
                on_warning(warning)
        return _DryRun(options, source, destination, patience_s).run()


class _DryRun:
    def __init__(
        self, options: MirrorOptions, source: Cluster, destination: Cluster, patience_s: float
    ) -> None:
        self._options = options
        self._source = source
        self._destination = destination
        self._patience_s = patience_s
        self._warnings: list[str] = []
        self._beginnings: tuple[str, ...] = ()

    def run(self) -> DryRun:
        try:
            changes = inspect_topics(
                self._options, self._source, self._destination, patience_s=self._patience_s
            )
        except AccessRefused:
            raise
        except ConfigError as error:
            return self._refused(error)
        self._warnings += changes.warnings
        holder: str | None = None
        refusal: str | None = None
        topics: tuple[TopicOutlook, ...]
        try:
            state, holder = self._positions(changes)
            topics = self._outlook(changes, state)
            if holder:
                refusal = f"group {changes.group!r} is held by {holder}; stop that mirror first"
        except AccessRefused:
            raise
        except ShoalError as error:
            topics = tuple(TopicOutlook(topic, ()) for topic in changes.topics.values())
            refusal = str(error)
        acls = self._acls(changes)
        return DryRun(
            changes.group,
            changes.source_cluster_id,
            changes.destination_cluster_id,
            holder,
            topics,
            acls,
            self._missing(acls),
            tuple(self._warnings),
            refusal,
            self._beginnings,
        )

    def _refused(self, error: ConfigError) -> DryRun:
        """Say at least which ACLs are needed: one of them may be what is missing."""
        names = self._options.topics.select(self._source.metadata.topics)
        if not names:
            raise error
        source_id, destination_id = (
            cluster.metadata.cluster_id for cluster in (self._source, self._destination)
        )
        group = self._options.group_between(source_id, destination_id)
        unseen = [copy for copy in names.values() if copy not in self._destination.metadata.topics]
        acls = needed_acls(names, group, created=unseen, grown=(), before_2_8=self._destination_before_2_8())
        missing = self._missing(acls)
        return DryRun(group, source_id, destination_id, None, (), acls, missing, (), str(error))

    def _acls(self, changes: TopicChanges) -> tuple[Acl, ...]:
        topics = changes.topics.values()
        return needed_acls(
            {topic.source: topic.destination for topic in topics},
            changes.group,
            created=[topic.destination for topic in topics if topic.creation],
            grown=[topic.destination for topic in topics if topic.added_partitions],
            before_2_8=self._destination_before_2_8(),
        )

    def _missing(self, acls: Sequence[Acl]) -> tuple[Acl, ...]:
        """Return those that this principal has not."""
        clusters = {"source": self._source, "destination": self._destination}
        allowed: dict[tuple[str, str, str], frozenset[str] | None] = {}
        for name, cluster in clusters.items():
            topics = {acl.resource for acl in acls if (acl.cluster, acl.resource_type) == (name, "topic")}
            for topic, operations in topic_operations(cluster, topics).items():
                allowed[name, "topic", topic] = operations
            for group in {
                acl.resource for acl in acls if (acl.cluster, acl.resource_type) == (name, "group")
            }:
                allowed[name, "group", group] = group_operations(cluster, group)
        missing = []
        for acl in acls:
            operations = allowed.get((acl.cluster, acl.resource_type, acl.resource))
            if operations is not None and acl.operation not in operations:
                missing.append(acl)
        return tuple(missing)

    def _destination_before_2_8(self) -> bool:
        return self._destination.any_connection().version(ApiKey.PRODUCE) < _PRODUCE_OF_2_8

    # Positions

    def _positions(self, changes: TopicChanges) -> tuple[GroupState, str | None]:
        """Return what the group has committed, and who is in it."""
        if not patiently(lambda: has_coordinator(self._source, changes.group), patience_s=self._patience_s):
            return GroupState({}, {}, {}, None), None
        partitions = partitions_of(self._source, list(changes.topics))
        committed = GroupPositions(self._source, changes.group, MemberId)
        state = patiently(committed.read_state, patience_s=self._patience_s)
        foreign = {each: offset for each, offset in state.others.items() if each in partitions}
        others = warning_of_others(changes.group, foreign)
        if others:
            self._warnings.append(others)
        return state, describe_holder(self._source, changes.group)

    def _outlook(self, changes: TopicChanges, state: GroupState) -> tuple[TopicOutlook, ...]:
        level = self._options.source.isolation_level
        partitions = partitions_of(self._source, list(changes.topics))
        pairs = {partition: state.pairs[partition] for partition in partitions if partition in state.pairs}
        without = [partition for partition in partitions if partition not in pairs]
        starts = patiently(lambda: self._starts(changes, state, without), patience_s=self._patience_s)
        ends = patiently(lambda: end_offsets(self._source, partitions, level), patience_s=self._patience_s)
        self._warn_of_partitions(changes, pairs, without)
        by_topic: dict[str, list[TopicPartition]] = defaultdict(list)
        for partition in partitions:
            by_topic[partition.topic].append(partition)
        return tuple(
            TopicOutlook(
                topic,
                tuple(
                    PartitionOutlook(
                        each.partition,
                        pairs[each].source_offset if each in pairs else starts[each],
                        each in pairs,
                        ends[each],
                    )
                    for each in by_topic[name]
                ),
            )
            for name, topic in changes.topics.items()
        )

    def _starts(
        self, changes: TopicChanges, state: GroupState, without: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return where partitions without a pair begin."""
        start_ms = self._options.start.timestamp_ms
        found = find_beginnings(
            self._source, changes.group, state, self._options.topics, without, start_ms=start_ms
        )
        self._beginnings = found.sentences
        level = self._options.source.isolation_level
        known = {**state.starts, **found.offsets}
        rest = [partition for partition in without if partition not in known]
        return known | start_offsets(self._source, rest, start_ms, level)

    # What would stop partitions

    def _warn_of_partitions(
        self,
        changes: TopicChanges,
        pairs: Mapping[TopicPartition, MirrorPosition],
        without: Sequence[TopicPartition],
    ) -> None:
        copies = {partition: _copy_of(changes, partition) for partition in [*pairs, *without]}
        states = compare_copies(self._destination, pairs, copies)
        first = self._known_offsets(self._source, pairs, EARLIEST)
        by_finding: dict[str, list[TopicPartition]] = defaultdict(list)
        for partition, pair in pairs.items():
            for finding in self._findings(partition, pair, states.get(partition), first.get(partition)):
                by_finding[finding].append(partition)
        destination_ends = self._known_offsets(
            self._destination, [copies[partition] for partition in without], LATEST
        )
        if self._options.copy.delivery is Delivery.EXACTLY_ONCE:
            held = {each: copies[each] for each in without if destination_ends.get(copies[each], 0)}
            others = OtherGroups(self._source, self._destination, changes.group, held)
            for partition in held:
                by_finding[self._finding_of_nonempty(others.position_of(partition))].append(partition)
        self._warnings += [f"{first_few(each)}: {finding}" for finding, each in by_finding.items()]

    def _finding_of_nonempty(self, other: OtherPosition | None) -> str:
        held = "without a committed position, and the destination holds records"
        if other:
            held += f". Group {other.group!r} holds the position of this copy"
        if self._options.copy.adopt:
            stops = "if they differ, or if the source has records before the copy's first one"
            if self._options.copy.adopt_from_later:
                stops = "if they differ, but not if the copy begins later (--adopt-from-later)"
            return (
                f"{held}: --adopt compares the whole copy with the source, which reads both, then goes on "
                f"behind it; stops the partition {stops}, and writes nothing"
            )
        if self._options.copy.allow_nonempty:
            return (
                f"{held}: {_LOOKS}. If the source does not have the batch exactly once, or has other records "
                "before it, the mirror copies all from --start on (--allow-nonempty), also what the copy "
                "holds already; stops the partition if nothing shows which records precede the batch"
            )
        if other:
            return f"{held}: give --group {other.group} to go on there, or --adopt to take the copy over"
        return (
            f"{held}: {_LOOKS}; stops the partition otherwise. --adopt compares the whole copy with the "
            "source and takes it over"
        )

    def _findings(
        self, partition: TopicPartition, pair: MirrorPosition, state: CopyState | None, first: int | None
    ) -> Iterable[str]:
        if pair.rules != self._options.rules():
            yield (
                "mirrored so far by other rules (isolation.level, --keep-append-time): stops; use the "
                "options of then, or a new --group into an empty topic"
            )
        if state is not None and state.is_loss:
            yield self._met(IncidentKind.DESTINATION_LOSS, f"its copy {state.value}")
        if _is_another(pair.source_topic_id, self._source, partition):
            yield self._met(IncidentKind.SOURCE_RESET, "the topic was created anew at the source")
        elif first is not None and first > pair.source_offset:
            yield self._met(
                IncidentKind.SOURCE_RETENTION, "the source deleted records that were not mirrored"
            )

    def _met(self, kind: IncidentKind, what: str) -> str:
        goes_on = kind in self._options.copy.continue_on
        return f"{what}: {'goes on' if goes_on else 'stops'} ({kind.option} {_policy(goes_on=goes_on)})"

    def _known_offsets(
        self, cluster: Cluster, partitions: Iterable[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """Return the offsets of the partitions that exist and whose leaders tell."""
        topics = cluster.metadata.topics
        existing = [
            partition
            for partition in partitions
            if partition.topic in topics and partition.partition in topics[partition.topic].partitions
        ]
        answers = list_offsets(cluster, dict.fromkeys(existing, timestamp))
        return {partition: answer for partition, answer in answers.items() if isinstance(answer, int)}


def _copy_of(changes: TopicChanges, partition: TopicPartition) -> TopicPartition:
    return TopicPartition(changes.topics[partition.topic].destination, partition.partition)


def _is_another(topic_id: str | None, cluster: Cluster, partition: TopicPartition) -> bool:
    """Whether a topic that had an id has another one now."""
    topic = cluster.metadata.topics.get(partition.topic)
    return bool(topic_id and topic and topic.topic_id and topic_id != str(topic.topic_id))


def _policy(*, goes_on: bool) -> str:
    return "continue" if goes_on else "fail"
