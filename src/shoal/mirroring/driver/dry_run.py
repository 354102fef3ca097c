"""
The plan of a mirror: the topics it would copy, create and change, and the ACLs that it lacks.

A dry run changes nothing. It creates no topic (not even Kafka's own ``__consumer_offsets``) and no file,
joins no group, commits nothing, and does not start Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...client.admin import NOT_ALLOWED
from ...client.cluster import Cluster, patiently
from ...client.coordinator import MemberId
from ...client.groups import describe_holder, has_coordinator, list_groups
from ...client.offsets import EARLIEST, LATEST, list_offsets
from ...client.reachable import check_advertised
from ...errors import AccessRefused, BrokerError, ConfigError, GroupHeld, ShoalError
from ...protocol.apis import ApiKey
from ...topic_partition import TopicPartition
from ..assignment import window_ends
from ..model.acls import Acl, needed_acls, prefixes_of
from ..model.incidents import IncidentKind
from ..model.options import MirrorOptions
from ..model.position import MirrorPosition, is_another_topic
from ..model.text import first_few
from ..model.topics import TopicSelection
from ..other_groups import OtherGroups, OtherPosition
from ..positions import GroupOffsets, GroupPositions
from ..prepare.changes import Prepared, PreparedTopic
from ..prepare.copies import CopyState, compare_copies
from ..prepare.inspect import inspect_topics
from ..sync.follow_report import at_both
from .checkup import cluster_warnings, missing_acls
from .following import compare_followers
from .going_back import first_mirror_group, starts_at_cut
from .starts import Starts, group_warnings

__all__ = ["DryRun", "PartitionOutlook", "TopicOutlook", "dry_run"]

#: Patience with brokers that do not respond.
_PATIENCE_S = 30.0

#: The version of Produce that came with Kafka 2.8 (KAFKA-10729). So did the authorizer that gives a producer
#: id to each principal with WRITE on a topic (KIP-679).
_PRODUCE_OF_2_8 = 9


@dataclass(frozen=True, slots=True)
class PartitionOutlook:
    """
    The offsets of one partition that a mirror would copy.

    Attributes:
        start_offset: The first source offset to copy.
        committed: Whether the group has committed it; if not, the option ``start`` decides.
        end_offset: The end of the records that can be copied now.
        at_cut: Whether the partition begins at the cut of a certificate.
    """

    partition: int
    start_offset: int
    committed: bool
    end_offset: int
    at_cut: bool = False

    @property
    def offsets(self) -> int:
        """The number of offsets; some may have no record (transactions, compaction)."""
        return max(0, self.end_offset - self.start_offset)


@dataclass(frozen=True, slots=True)
class TopicOutlook:
    """A topic, and the start of each of its partitions."""

    plan: PreparedTopic
    partitions: tuple[PartitionOutlook, ...]

    @property
    def offsets(self) -> int:
        """The sum over all partitions."""
        return sum(each.offsets for each in self.partitions)


@dataclass(slots=True)
class DryRun:
    """
    The findings of a dry run. ``--json`` prints them with these names.

    Attributes:
        group: The consumer group on the source cluster.
        source_cluster_id: None if the cluster is too old to have one.
        destination_cluster_id: None if the cluster is too old to have one.
        holder: The member of the group; None if the group is empty.
        topics: The topics by their names at the source; none if the mirror was refused before.
        acls: The ACLs that the mirror's principal needs.
        missing_acls: The ACLs of these that this principal lacks, as far as the clusters return them: for
            topics that exist, and for the group.
        warnings: Sentences: the object, the problem, the remedy.
        beginnings: Notices about the start positions of partitions without one, if the mirror starts at the
            latest records.
        differences: The configurations and ACLs in which copies differ, and what could not be compared.
        refusal: The reason why the mirror would not begin; None if it would.

    """

    group: str
    source_cluster_id: str | None
    destination_cluster_id: str | None
    holder: str | None = None
    topics: tuple[TopicOutlook, ...] = ()
    acls: tuple[Acl, ...] = ()
    missing_acls: tuple[Acl, ...] = ()
    warnings: list[str] = field(default_factory=list)
    beginnings: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    refusal: str | None = None


def dry_run(options: MirrorOptions, *, on_warning: Callable[[str], object] = lambda _: None) -> DryRun:
    """
    Inspect both clusters, as a mirror with these options would.

    Args:
        on_warning: Called at once for each broker that cannot be reached.

    Raises:
        ShoalError: A cluster does not respond, or nothing is selected.

    """
    with Cluster(options.source) as source, Cluster(options.destination) as destination:
        for cluster in (source, destination):
            for warning in (*check_advertised(cluster), *cluster_warnings(cluster)):
                on_warning(warning)
        runner = _DryRunner(options, source, destination)
        try:
            changes = inspect_topics(options, source, destination)
        except AccessRefused:
            raise
        except (BrokerError, ConfigError) as error:
            if isinstance(error, BrokerError) and error.code not in NOT_ALLOWED:
                raise
            return runner.refused(error)
        return runner.planned(changes)


class _DryRunner:
    def __init__(self, options: MirrorOptions, source: Cluster, destination: Cluster) -> None:
        self._options = options
        self._source = source
        self._destination = destination

    def refused(self, error: ShoalError) -> DryRun:
        """Return at least the needed ACLs: a missing one may be the reason."""
        selection = self._options.topics
        hidden = _hidden_topics(selection, self._source)
        names = selection.select(self._source.metadata.topics) | hidden.named | hidden.prefixes
        if not names:
            raise error
        ids = self._source.metadata.cluster_id, self._destination.metadata.cluster_id
        found = DryRun(self._options.group_between(*ids), *ids, refusal=str(error))
        found.warnings += hidden.warnings(self._source, str(error))
        unseen = [copy for copy in names.values() if copy not in self._destination.metadata.topics]
        begun = {*hidden.prefixes, *hidden.prefixes.values()}
        self._find_acls(
            found,
            [
                replace(acl, is_prefix=acl.resource_type == "topic" and acl.resource in begun)
                for acl in self._needed(names, found.group, unseen)
            ],
        )
        return found

    def planned(self, changes: Prepared) -> DryRun:
        """Return the plan."""
        found = DryRun(changes.group, changes.source_cluster_id, changes.destination_cluster_id)
        found.warnings += changes.warnings
        consumer_groups = self._following(found)
        try:
            state = self._positions(changes, found)
            at_cut = starts_at_cut(
                self._options, state, self._source, self._destination, patience_s=_PATIENCE_S
            )
            found.topics = self._outlook(changes, state, at_cut, found)
            if found.holder:
                found.refusal = str(GroupHeld(changes.group, found.holder))
        except AccessRefused:
            raise
        except ShoalError as error:
            found.topics = tuple(TopicOutlook(topic, ()) for topic in changes.topics.values())
            found.refusal = str(error)
        topics = changes.topics.values()
        hidden = _hidden_topics(self._options.topics, self._source).named
        needed = self._needed(
            {topic.source: topic.destination for topic in topics} | hidden,
            changes.group,
            [*(topic.destination for topic in topics if topic.creation), *hidden.values()],
            [topic.destination for topic in topics if topic.added_partitions],
            consumer_groups,
        )
        self._find_acls(found, [*self._of_clusters(needed)])
        found.differences = self._differences(changes)
        return found

    def _needed(
        self,
        names: Mapping[str, str],
        group: str,
        created: Collection[str],
        grown: Collection[str] = (),
        consumer_groups: Collection[str] = (),
    ) -> tuple[Acl, ...]:
        return needed_acls(
            names,
            group,
            created=created,
            grown=grown,
            before_2_8=self._destination_before_2_8(),
            follow=self._options,
            consumer_groups=consumer_groups,
            first_mirror_group=first_mirror_group(self._options),
        )

    def _find_acls(self, found: DryRun, acls: Sequence[Acl]) -> None:
        found.acls = tuple(acls)
        found.missing_acls = missing_acls(acls, self._source, self._destination)

    def _of_clusters(self, acls: Iterable[Acl]) -> Iterator[Acl]:
        """Yield the ACLs that a cluster has, with its name."""
        for acl in acls:
            config = self._options.source if acl.cluster == "source" else self._options.destination
            if (cluster := config.acl_cluster(acl.resource_type)) is not None:
                yield replace(acl, cluster=cluster)

    def _differences(self, changes: Prepared) -> tuple[str, ...]:
        """Return the differences of copies that exist."""
        options = self._options
        clusters = self._source, self._destination
        copies = {topic.source: topic.destination for topic in changes.topics.values()}
        names = at_both(copies, *clusters)
        return tuple(compare_followers(options, changes.group, *clusters, names)) if names else ()

    def _following(self, found: DryRun) -> list[str]:
        """Return the consumer groups that would follow the records, as far as this principal sees them."""
        selection = self._options.group_selection
        if selection is None:
            return []
        listed = list_groups(self._source)
        found.warnings += [f"consumer groups may be missing: {each}" for each in listed.failures.values()]
        return sorted(
            name
            for name, each in listed.groups.items()
            if each.commits_offsets and name != found.group and selection.matches(name)
        )

    def _destination_before_2_8(self) -> bool:
        connection = self._destination.any_connection()
        return connection.speaks(ApiKey.PRODUCE) and connection.version(ApiKey.PRODUCE) < _PRODUCE_OF_2_8

    # Positions

    def _positions(self, changes: Prepared, found: DryRun) -> GroupOffsets:
        """Return the group's positions, and note its member."""
        if not patiently(lambda: has_coordinator(self._source, changes.group), patience_s=_PATIENCE_S):
            return GroupOffsets({}, {}, {}, None)
        positions = GroupPositions(self._source, changes.group, MemberId)
        state = patiently(positions.read_state, patience_s=_PATIENCE_S)
        found.warnings += patiently(
            lambda: group_warnings(self._source, changes.group, state, changes.partitions),
            patience_s=_PATIENCE_S,
        )
        found.holder = describe_holder(self._source, changes.group)
        return state

    def _outlook(
        self, changes: Prepared, state: GroupOffsets, at_cut: Mapping[TopicPartition, int], found: DryRun
    ) -> tuple[TopicOutlook, ...]:
        options, source = self._options, self._source
        partitions = changes.partitions
        others = [each for each in partitions if each not in at_cut]
        positions = {each: state.positions[each] for each in others if each in state.positions}
        without = [each for each in others if each not in positions]
        starts = Starts(options, changes.group, options.topics)
        begun, ends = patiently(
            lambda: (
                starts.decide(source, state, others, all_of_them=True),
                window_ends(source, partitions, options.until),
            ),
            patience_s=_PATIENCE_S,
        )
        found.beginnings = begun.sentences
        found.warnings += self._partition_warnings(changes, positions, without)
        begins = {**begun.offsets, **at_cut}
        by_topic: dict[str, list[PartitionOutlook]] = defaultdict(list)
        for each in partitions:
            by_topic[each.topic].append(
                PartitionOutlook(each.partition, begins[each], each in positions, ends[each], each in at_cut)
            )
        return tuple(TopicOutlook(topic, tuple(by_topic[name])) for name, topic in changes.topics.items())

    # Reasons that would stop partitions

    def _partition_warnings(
        self,
        changes: Prepared,
        positions: Mapping[TopicPartition, MirrorPosition],
        without: Sequence[TopicPartition],
    ) -> list[str]:
        copies = {
            each: TopicPartition(changes.topics[each.topic].destination, each.partition)
            for each in (*positions, *without)
        }
        states = compare_copies(self._destination, positions, copies)
        first = list_offsets(self._source, dict.fromkeys(positions, EARLIEST))
        by_finding: dict[str, list[TopicPartition]] = defaultdict(list)
        for partition, position in positions.items():
            for finding in self._findings(partition, position, states.get(partition), first[partition]):
                by_finding[finding].append(partition)
        if not self._options.allows_other_writers:
            there = dict.fromkeys((copies[each] for each in without), LATEST)
            ends = list_offsets(self._destination, there)
            held = {
                each: copies[each] for each in without if isinstance(end := ends[copies[each]], int) and end
            }
            others = OtherGroups(self._source, self._destination, changes.group, held)
            for partition in held:
                by_finding[self._finding_of_nonempty(others.position_of(partition))].append(partition)
        return [f"{first_few(each)}: {finding}" for finding, each in by_finding.items()]

    def _finding_of_nonempty(self, other: OtherPosition | None) -> str:
        held = "without a committed position, and the destination holds records"
        if other:
            held += f". Group {other.group!r} holds the position of this copy"
        if self._options.adopt:
            stops = "if they differ, or if the source has records before the copy's first one"
            if self._options.continues_after(IncidentKind.SOURCE_RETENTION):
                retention = IncidentKind.SOURCE_RETENTION.continuing
                stops = f"if they differ, but not if the copy begins later ({retention})"
            return (
                f"{held}: --adopt compares the whole copy with the source, which reads both, then continues "
                f"after it. It stops the partition {stops}, and writes nothing"
            )
        if other:
            group = f"--group {other.group}"
            return f"{held}: give {group} to continue there, or --adopt to take the copy over"
        return f"{held}: stops. --adopt compares the whole copy with the source and takes it over"

    def _findings(
        self,
        partition: TopicPartition,
        position: MirrorPosition,
        state: CopyState | None,
        first: int | ShoalError,
    ) -> Iterable[str]:
        if state is CopyState.UNSEEN:
            yield f"its copy {state.value}"
        elif state is not None and state.is_loss:
            yield self._met(IncidentKind.DESTINATION_LOSS, f"its copy {state.value}")
        topic_id = self._source.topic_id(partition.topic)
        if is_another_topic(position.source_topic_id, topic_id):
            yield self._met(IncidentKind.SOURCE_RESET, "the topic was recreated at the source")
        elif isinstance(first, int) and first > position.source_offset:
            yield self._met(
                IncidentKind.SOURCE_RETENTION, "the source deleted records that were not mirrored"
            )

    def _met(self, kind: IncidentKind, what: str) -> str:
        if self._options.continues_after(kind):
            return f"{what}: continues ({kind.continuing})"
        return f"{what}: stops without {kind.continuing}"


class _HiddenTopics(NamedTuple):
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


def _hidden_topics(selection: TopicSelection, source: Cluster) -> _HiddenTopics:
    """Ask the source for the selected topics that its metadata lack: this principal may not describe them."""
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
    return _HiddenTopics(
        {name: copy for name, copy in named.items() if errors.get(name) in NOT_ALLOWED},
        {name: copy for name, copy in prefixes.items() if errors.get(name) in NOT_ALLOWED},
    )
