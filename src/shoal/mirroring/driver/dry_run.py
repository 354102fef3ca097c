"""
The plan of a mirror: the topics it would copy, create and change, and the ACLs that it lacks.

A dry run changes nothing. It creates no topic (not even Kafka's own ``__consumer_offsets``) and no file,
joins no group, commits nothing, and does not start Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ...client.cluster import Cluster, patiently
from ...client.coordinator import MemberId
from ...client.groups import describe_holder, has_coordinator, list_groups
from ...client.offsets import EARLIEST, LATEST, list_offsets
from ...client.reachable import check_advertised
from ...errors import AccessRefused, BrokerError, ConfigError, GroupHeld, ShoalError
from ...protocol.apis import ApiKey
from ...topic_partition import TopicPartition
from ..assignment import partitions_of, window_ends
from ..model.acls import Acl, needed_acls
from ..model.incidents import IncidentKind
from ..model.options import MirrorOptions
from ..model.position import MirrorPosition, is_another_topic
from ..model.text import first_few
from ..other_groups import OtherGroups, OtherPosition
from ..positions import GroupOffsets, GroupPositions
from ..prepare.changes import Prepared
from ..prepare.copies import CopyState, compare_copies
from ..prepare.descriptions import NOT_ALLOWED
from ..prepare.inspect import inspect_topics
from ..prepare.missing_acls import missing_acls
from .checkup import cluster_warnings
from .following import compare_followers
from .going_back import first_mirror_group, starts_at_cut
from .hidden_topics import hidden_topics
from .outlook import DryRun, PartitionOutlook, TopicOutlook
from .starts import Beginnings, Starts, group_warnings

__all__ = ["DryRun", "PartitionOutlook", "TopicOutlook", "dry_run"]

_PATIENCE_S = 30.0

#: The version of Produce that came with Kafka 2.8 (KAFKA-10729). So did the authorizer that gives a producer
#: id to each principal with WRITE on a topic (KIP-679).
_PRODUCE_OF_2_8 = 9


def dry_run(
    options: MirrorOptions,
    *,
    patience_s: float = _PATIENCE_S,
    on_warning: Callable[[str], object] = lambda _: None,
) -> DryRun:
    """
    Inspect both clusters, as a mirror with these options would.

    Args:
        patience_s: Patience with brokers that do not respond.
        on_warning: Called at once for each broker that cannot be reached.

    Raises:
        ShoalError: A cluster does not respond, or nothing is selected.

    """
    with Cluster(options.source) as source, Cluster(options.destination) as destination:
        for cluster in (source, destination):
            for warning in (*check_advertised(cluster), *cluster_warnings(cluster)):
                on_warning(warning)
        return _DryRunner(options, source, destination, patience_s).run()


class _DryRunner:
    def __init__(
        self,
        options: MirrorOptions,
        source: Cluster,
        destination: Cluster,
        patience_s: float,
    ) -> None:
        self._options = options
        self._source = source
        self._destination = destination
        self._patience_s = patience_s
        self._warnings: list[str] = []
        self._beginnings: tuple[str, ...] = ()
        self._way_back: Mapping[TopicPartition, int] = {}
        self._consumer_groups: tuple[str, ...] = ()

    def run(self) -> DryRun:
        try:
            changes = inspect_topics(
                self._options, self._source, self._destination, patience_s=self._patience_s
            )
        except AccessRefused:
            raise
        except ConfigError as error:
            return self._refused(error)
        except BrokerError as error:
            if error.code not in NOT_ALLOWED:
                raise
            return self._refused(error)
        self._warnings += changes.warnings
        self._consumer_groups = self._following(changes.group)
        holder: str | None = None
        refusal: ShoalError | None = None
        topics: tuple[TopicOutlook, ...]
        try:
            state, holder = self._positions(changes)
            clusters = self._source, self._destination
            self._way_back = starts_at_cut(self._options, state, *clusters, patience_s=self._patience_s)
            topics = self._outlook(changes, state)
            if holder:
                refusal = GroupHeld(changes.group, holder)
        except AccessRefused:
            raise
        except ShoalError as error:
            topics = tuple(TopicOutlook(topic, ()) for topic in changes.topics.values())
            refusal = error
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
            self._differences(changes),
        )

    def _refused(self, error: ShoalError) -> DryRun:
        """Return at least the needed ACLs: a missing one may be the reason."""
        selection = self._options.topics
        hidden = hidden_topics(selection, self._source)
        names = selection.select(self._source.metadata.topics) | hidden.named | hidden.prefixes
        if not names:
            raise error
        source_id, destination_id = (
            cluster.metadata.cluster_id for cluster in (self._source, self._destination)
        )
        group = self._options.group_between(source_id, destination_id)
        unseen = [copy for copy in names.values() if copy not in self._destination.metadata.topics]
        acls = self._needed(names, group, unseen, ())
        begun = {*hidden.prefixes, *hidden.prefixes.values()}
        acls = tuple(
            replace(acl, is_prefix=acl.resource_type == "topic" and acl.resource in begun) for acl in acls
        )
        return DryRun(
            group,
            source_id,
            destination_id,
            None,
            (),
            acls,
            self._missing(acls),
            hidden.warnings(self._source, str(error)),
            error,
        )

    def _acls(self, changes: Prepared) -> tuple[Acl, ...]:
        topics = changes.topics.values()
        hidden = hidden_topics(self._options.topics, self._source).named
        needed = self._needed(
            {topic.source: topic.destination for topic in topics} | hidden,
            changes.group,
            [*(topic.destination for topic in topics if topic.creation), *hidden.values()],
            [topic.destination for topic in topics if topic.added_partitions],
        )
        return tuple(self._of_clusters(needed))

    def _needed(
        self, names: Mapping[str, str], group: str, created: Collection[str], grown: Collection[str]
    ) -> tuple[Acl, ...]:
        return needed_acls(
            names,
            group,
            created=created,
            grown=grown,
            before_2_8=self._destination_before_2_8(),
            follow=self._options,
            consumer_groups=self._consumer_groups,
            first_mirror_group=first_mirror_group(self._options),
        )

    def _of_clusters(self, acls: Iterable[Acl]) -> Iterator[Acl]:
        """Leave out the ACLs of an archive, which has none; the group of a restore is at the destination."""
        for acl in acls:
            config = self._options.source if acl.cluster == "source" else self._options.destination
            if config.directory is None:
                yield acl
            elif config.keeper is not None and acl.resource_type == "group":
                yield replace(acl, cluster="destination")

    def _differences(self, changes: Prepared) -> tuple[str, ...]:
        """Return the differences of copies that exist."""
        names = {
            topic.source: topic.destination
            for topic in changes.topics.values()
            if not topic.creation and topic.deleted is None
        }
        is_archive = self._options.source.directory or self._options.destination.directory
        if not names or is_archive:
            return ()
        return tuple(
            compare_followers(
                self._options,
                changes.group,
                self._source,
                self._destination,
                names,
                self._options.group_selection,
            )
        )

    def _following(self, group: str) -> tuple[str, ...]:
        """Return the consumer groups that would follow the records, as far as this principal sees them."""
        selection = self._options.group_selection
        if selection is None:
            return ()
        listed = list_groups(self._source)
        self._warnings += [f"consumer groups may be missing: {each}" for each in listed.failures.values()]
        return tuple(
            sorted(
                name
                for name, each in listed.groups.items()
                if each.commits_offsets and name != group and selection.matches(name)
            )
        )

    def _missing(self, acls: Sequence[Acl]) -> tuple[Acl, ...]:
        return missing_acls(acls, self._source, self._destination)

    def _destination_before_2_8(self) -> bool:
        if self._options.destination.directory is not None:
            return False
        return self._destination.any_connection().version(ApiKey.PRODUCE) < _PRODUCE_OF_2_8

    # Positions

    def _positions(self, changes: Prepared) -> tuple[GroupOffsets, str | None]:
        """Return the group's positions, and its member."""
        if not patiently(lambda: has_coordinator(self._source, changes.group), patience_s=self._patience_s):
            return GroupOffsets({}, {}, {}, None), None
        state = patiently(
            GroupPositions(self._source, changes.group, MemberId).read_state, patience_s=self._patience_s
        )
        partitions = partitions_of(self._source, list(changes.topics))
        self._warnings += group_warnings(self._source, changes.group, state, partitions, self._patience_s)
        return state, describe_holder(self._source, changes.group)

    def _outlook(self, changes: Prepared, state: GroupOffsets) -> tuple[TopicOutlook, ...]:
        partitions = partitions_of(self._source, list(changes.topics))
        others = [each for each in partitions if each not in self._way_back]
        positions = {each: state.positions[each] for each in others if each in state.positions}
        without = [each for each in others if each not in positions]
        found, ends = patiently(
            lambda: self._bounds(changes.group, state, partitions, others), patience_s=self._patience_s
        )
        self._beginnings = found.sentences
        starts = {**found.offsets, **self._way_back}
        self._warn_of_partitions(changes, positions, without)
        by_topic: dict[str, list[TopicPartition]] = defaultdict(list)
        for partition in partitions:
            by_topic[partition.topic].append(partition)
        return tuple(
            TopicOutlook(
                topic,
                tuple(
                    PartitionOutlook(
                        each.partition,
                        starts[each],
                        each in positions,
                        ends[each],
                        each in self._way_back,
                    )
                    for each in by_topic[name]
                ),
            )
            for name, topic in changes.topics.items()
        )

    def _bounds(
        self,
        group: str,
        state: GroupOffsets,
        partitions: Sequence[TopicPartition],
        others: Sequence[TopicPartition],
    ) -> tuple[Beginnings, Mapping[TopicPartition, int]]:
        starts = Starts(self._options, group, self._options.topics)
        found = starts.decide(self._source, state, others, all_of_them=True)
        return found, window_ends(self._source, partitions, self._options.until)

    # Reasons that would stop partitions

    def _warn_of_partitions(
        self,
        changes: Prepared,
        positions: Mapping[TopicPartition, MirrorPosition],
        without: Sequence[TopicPartition],
    ) -> None:
        copies = {partition: _copy_of(changes, partition) for partition in [*positions, *without]}
        states = compare_copies(self._destination, positions, copies)
        first = self._known_offsets(self._source, positions, EARLIEST)
        by_finding: dict[str, list[TopicPartition]] = defaultdict(list)
        for partition, position in positions.items():
            for finding in self._findings(partition, position, states.get(partition), first.get(partition)):
                by_finding[finding].append(partition)
        destination_ends = self._known_offsets(
            self._destination, [copies[partition] for partition in without], LATEST
        )
        if not self._options.allows_other_writers:
            held = {each: copies[each] for each in without if destination_ends.get(copies[each], 0)}
            others = OtherGroups(self._source, self._destination, changes.group, held)
            for partition in held:
                by_finding[self._finding_of_nonempty(others.position_of(partition))].append(partition)
        self._warnings += [f"{first_few(each)}: {finding}" for finding, each in by_finding.items()]

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
        self, partition: TopicPartition, position: MirrorPosition, state: CopyState | None, first: int | None
    ) -> Iterable[str]:
        if state is CopyState.UNSEEN:
            yield f"its copy {state.value}"
        elif state is not None and state.is_loss:
            yield self._met(IncidentKind.DESTINATION_LOSS, f"its copy {state.value}")
        if _is_another(position.source_topic_id, self._source, partition):
            yield self._met(IncidentKind.SOURCE_RESET, "the topic was recreated at the source")
        elif first is not None and first > position.source_offset:
            yield self._met(
                IncidentKind.SOURCE_RETENTION, "the source deleted records that were not mirrored"
            )

    def _met(self, kind: IncidentKind, what: str) -> str:
        if self._options.continues_after(kind):
            return f"{what}: continues ({kind.continuing})"
        return f"{what}: stops without {kind.continuing}"

    def _known_offsets(
        self, cluster: Cluster, partitions: Iterable[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """Return the offsets of those partitions that exist, if their leaders respond."""
        topics = cluster.metadata.topics
        existing = [
            partition
            for partition in partitions
            if partition.topic in topics and partition.partition in topics[partition.topic].partitions
        ]
        answers = list_offsets(cluster, dict.fromkeys(existing, timestamp))
        return {partition: answer for partition, answer in answers.items() if isinstance(answer, int)}


def _copy_of(changes: Prepared, partition: TopicPartition) -> TopicPartition:
    return TopicPartition(changes.topics[partition.topic].destination, partition.partition)


def _is_another(topic_id: str | None, cluster: Cluster, partition: TopicPartition) -> bool:
    """Whether a topic that had an id has another one now."""
    topic = cluster.metadata.topics.get(partition.topic)
    return is_another_topic(topic_id, topic.topic_id if topic else None)
