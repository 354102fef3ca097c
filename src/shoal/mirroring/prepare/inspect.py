"""
Inspect both clusters before a mirror begins: which topics are selected, and can the destination take them?

Runs on the driver, with metadata and configurations only, and changes nothing. The result,
:class:`Prepared`, lists what the destination misses; :mod:`.create` creates it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

from ...client.admin import NewTopic, validate_topic
from ...client.cluster import Cluster, patiently
from ...client.coordinator import MemberId
from ...client.groups import has_coordinator
from ...client.metadata import TopicMetadata
from ...error_codes import ErrorCode
from ...errors import BrokerError, ConfigError, ShoalError
from ...topic_partition import TopicPartition
from ..model.incidents import IncidentKind
from ..model.options import MirrorOptions
from ..model.position import MirrorPosition
from ..model.text import first_few
from ..positions import GroupPositions
from .archive import inspect_for_archive
from .changes import Prepared, PreparedTopic
from .copies import confirmed_deleted, deleted_reason
from .descriptions import (
    NOT_ALLOWED,
    BrokerConfigs,
    decompression_limit,
    describe_brokers,
    describe_topics,
    not_authorized,
)
from .growth import creation_error, grow_topic
from .topic_configs import (
    ConfigFinding,
    Configs,
    TopicState,
    compare,
    configs_of_copy,
    harm_sentence,
    harmful_values,
)
from .unmatched import idle_expressions, near_topics, why_nothing_matches

__all__ = ["inspect_topics"]

#: Patience with transient errors.
_PATIENCE_S = 60.0


def inspect_topics(
    options: MirrorOptions,
    source: Cluster,
    destination: Cluster,
    *,
    patience_s: float = _PATIENCE_S,
    forbids: bool = True,
    creates: bool = False,
    on_group: Callable[[str], object] = lambda _: None,
) -> Prepared:
    """
    Resolve the selection, check the destination, and list what it misses.

    The destination has validated each topic and partition that is missing.

    Args:
        source: Its metadata of all topics is refreshed.
        destination: Its metadata of the copies is refreshed.
        patience_s: Patience with transient errors.
        forbids: Whether a topic is an error if it may not take every batch of the source's; otherwise it is
            a warning.
        creates: Whether the changes are made next. If not, a group that cannot be read is no error here,
            and Kafka's ``__consumer_offsets`` is not created.
        on_group: Called with the group as soon as it is known.

    Raises:
        ConfigError: Nothing is selected, or the destination cannot take it.
        BrokerError: A cluster refuses a request.
        Disconnected: A cluster does not respond.

    """
    inspection = _Inspection(options, source, destination, patience_s, forbids=forbids, creates=creates)
    return inspection.run(on_group)


class _Inspection:
    """One run of :func:`inspect_topics`, with its warnings so far."""

    def __init__(
        self,
        options: MirrorOptions,
        source: Cluster,
        destination: Cluster,
        patience_s: float,
        *,
        forbids: bool,
        creates: bool,
    ) -> None:
        self._forbids = forbids
        self._creates = creates
        self._options = options
        self._source = source
        self._destination = destination
        self._patience_s = patience_s
        self._warnings: list[str] = []
        self._hidden: list[str] = []

    def run(self, on_group: Callable[[str], object]) -> Prepared:
        names = self._select()
        if self._options.destination.directory is not None:
            return inspect_for_archive(
                self._options,
                self._source,
                names,
                self._warnings,
                on_group,
                patience_s=self._patience_s,
                creates=self._creates,
            )
        # Metadata of the copies, and of all brokers for the replication factor.
        self._destination.refresh(names.values())
        self._check_not_fed_by_itself(names)
        self._check_destination(names)
        group = self._options.group_between(
            self._source.metadata.cluster_id, self._destination.metadata.cluster_id
        )
        on_group(group)
        if self._options.from_certificate is None:
            self._warn_of_the_other_direction(names)
        source_configs = self._describe(self._source, list(names))
        topics = self._plan(names, source_configs, self._deleted(names, group))
        self._compare(topics, source_configs, self._configs_of_copies(topics))
        self._warn_of_growth(topics)
        producer_id_expiration_ms = self._broker_configs.producer_id_expiration_ms
        return Prepared(
            group,
            self._source.metadata.cluster_id,
            self._destination.metadata.cluster_id,
            topics,
            tuple(self._warnings),
            producer_id_expiration_ms,
            decompression_limit(source_configs.values()),
        )

    # Selection

    def _select(self) -> dict[str, str]:
        topics = self._source.refresh().topics
        names = self._options.topics.select(topics)
        missing = [self._describe_missing(name) for name in self._options.topics.missing(topics)]
        if missing and (self._options.once or not names):
            raise ConfigError(f"--topics: {'. '.join(missing)}") from (
                not_authorized(self._hidden[0]) if self._hidden else None
            )
        self._warnings += [
            f"{each}{'' if each.endswith('?') else '.'} The mirror skips it until then" for each in missing
        ]
        if not names:
            security = self._options.source.security
            sees_none = not topics and security is not None and security.is_authenticated
            raise ConfigError(why_nothing_matches(self._options.topics, topics, str(self._source))) from (
                not_authorized("all topics") if sees_none else None
            )
        self._warnings += idle_expressions(self._options.topics, topics)
        until = self._options.until
        if until is not None and until.offset is not None:
            count = sum(len(topics[name].partitions) for name in names)
            if count > 1:
                raise ConfigError(
                    f"--until {until} is an offset, and {count} partitions are selected. Use a time, or a "
                    "topic of one partition"
                )
        return names

    def _describe_missing(self, topic: str) -> str:
        code = self._source.refresh([topic]).errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code in NOT_ALLOWED:
            self._hidden.append(topic)
            return f"topic {topic} of {self._source}: this principal is not authorized (allow DESCRIBE on it)"
        return (
            f"there is no topic {topic} on {self._source}{near_topics(topic, self._source.metadata.topics)}"
        )

    def _check_not_fed_by_itself(self, names: Mapping[str, str]) -> None:
        """Refuse to mirror a cluster into itself, unless no copy would be mirrored again."""
        cluster_id = self._source.metadata.cluster_id
        if cluster_id is None or cluster_id != self._destination.metadata.cluster_id:
            return
        for name, copy in names.items():
            if self._options.topics.matches(TopicMetadata(copy, None, False, {})):
                raise ConfigError(
                    f"source and destination are the same cluster ({cluster_id}), and the copy of topic "
                    f"{name}, {copy}, would be mirrored again. Separate copies and originals by --rename and "
                    "--exclude, or by --topics"
                )

    def _warn_of_the_other_direction(self, names: Mapping[str, str]) -> None:
        """Warn if a mirror copies from the copies to here: perhaps ``--from`` and ``--to`` are swapped."""
        ids = self._destination.metadata.cluster_id, self._source.metadata.cluster_id
        present = self._destination.metadata.topics
        partitions = [
            TopicPartition(copy, number)
            for copy in names.values()
            if copy in present
            for number in present[copy].partitions
        ]
        held: set[str] = set()
        with suppress(ShoalError):  # a group there need not be visible to this principal
            group = self._options.group_between(*ids)
            if partitions and has_coordinator(self._destination, group):
                positions = GroupPositions(self._destination, group, MemberId).read(partitions)
                held = {each.topic for each in positions}
        if held:
            self._warnings.append(
                f"{_topics(sorted(held))} on {self._destination}: group {group!r} there holds positions of a "
                "mirror in the other direction. Check that source and destination are not swapped"
            )

    # Configurations

    def _describe(self, cluster: Cluster, topics: Sequence[str]) -> dict[str, Configs]:
        """Return the configurations of those topics that may be described; warn of the others."""
        described, refused = describe_topics(cluster, topics, self._patience_s)
        if refused:
            self._warn_of_undescribed(refused, cluster)
        return described

    def _warn_of_undescribed(self, topics: Sequence[str], cluster: Cluster) -> None:
        self._warnings.append(
            f"{_topics(topics)} of {cluster} may not be described by this principal, so sizes, timestamps, "
            "compression and retention were not compared. Allow DESCRIBE_CONFIGS on it"
        )

    def _configs_of_copies(self, topics: Mapping[str, PreparedTopic]) -> dict[str, Configs]:
        """Return the configurations of copies; of missing ones those that they would have."""
        existing = [topic.destination for topic in topics.values() if topic.is_present]
        configs: dict[str, Configs] = self._describe(self._destination, existing)
        undescribed = []
        for topic in topics.values():
            if topic.creation:
                configured = self._validate(topic.creation)
                if configured is None:
                    undescribed.append(topic.destination)
                else:
                    configs[topic.destination] = configured
        if undescribed:
            self._warn_of_undescribed(undescribed, self._destination)
        return configs

    def _validate(self, topic: NewTopic) -> Configs | None:
        try:
            return patiently(lambda: validate_topic(self._destination, topic), patience_s=self._patience_s)
        except BrokerError as error:
            if error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                # Created a moment ago, and not in the metadata yet.
                return self._describe(self._destination, [topic.name]).get(topic.name)
            raise creation_error(error, topic) from error

    def _compare(
        self,
        topics: Mapping[str, PreparedTopic],
        source_configs: Mapping[str, Configs],
        copy_configs: Mapping[str, Configs],
    ) -> None:
        topics_by_finding: dict[ConfigFinding, list[str]] = defaultdict(list)
        for name, topic in topics.items():
            if topic.deleted is not None:
                continue
            source = _state(self._source.metadata.topics[name], source_configs.get(name))
            copy = self._state_of_copy(topic, copy_configs.get(topic.destination))
            for finding in compare(source, copy):
                topics_by_finding[finding].append(topic.destination)
        sentences = {
            finding: f"{_topics(topics)} on {self._destination}: {finding.text}"
            for finding, topics in topics_by_finding.items()
        }
        errors = [sentence for finding, sentence in sentences.items() if finding.fatal]
        if errors and self._forbids:
            raise ConfigError(". ".join(errors))
        self._warnings += sentences.values()

    def _state_of_copy(self, topic: PreparedTopic, configs: Configs | None) -> TopicState:
        if topic.creation:
            return TopicState(topic.creation.partitions, topic.creation.replication_factor, configs or {})
        found = _state(self._destination.metadata.topics[topic.destination], configs)
        return replace(found, partitions=found.partitions + topic.added_partitions)

    # Missing topics and partitions

    def _check_destination(self, names: Mapping[str, str]) -> None:
        metadata = self._destination.metadata
        for copy in names.values():
            if copy in metadata.topics and metadata.topics[copy].internal:
                raise ConfigError(
                    f"topic {copy} is internal to {self._destination}. Choose another name by --rename"
                )
        refused = [copy for copy in names.values() if metadata.errors.get(copy) in NOT_ALLOWED]
        if refused:
            raise ConfigError(
                f"{_topics(refused)} of {self._destination}: this principal is not authorized. "
                "Allow DESCRIBE and WRITE on it (and CREATE, if it does not exist)"
            ) from not_authorized(refused[0])

    def _deleted(self, names: Mapping[str, str], group: str) -> Mapping[str, str]:
        """
        Return the source topics whose copies were deleted and may not be created again, with the reason.

        A topic with positions in the group was mirrored. An empty topic in its place would hide the loss.
        """
        missing = {
            name: copy for name, copy in names.items() if copy not in self._destination.metadata.topics
        }
        if not missing or self._options.continues_after(IncidentKind.DESTINATION_LOSS):
            return {}
        mirrored = {partition.topic for partition in self._positions(missing, group)}
        copies = [missing[name] for name in mirrored]
        gone = confirmed_deleted(self._destination, copies, time.sleep, self._options.timing)
        return {
            name: deleted_reason(missing[name], self._destination)
            for name in sorted(mirrored)
            if missing[name] in gone
        }

    def _positions(self, topics: Iterable[str], group: str) -> Mapping[TopicPartition, MirrorPosition]:
        """Return the positions that the group has of these source topics."""
        source = self._source
        partitions = [
            TopicPartition(topic, number)
            for topic in topics
            for number in source.metadata.topics[topic].partitions
        ]
        positions = GroupPositions(source, group, MemberId)
        if self._creates:
            return patiently(lambda: positions.read(partitions), patience_s=self._patience_s)
        with suppress(ShoalError):  # the dry run reports it together with its other findings
            if has_coordinator(source, group):
                return patiently(lambda: positions.read(partitions), patience_s=self._patience_s)
        return {}

    def _plan(
        self,
        names: Mapping[str, str],
        source_configs: Mapping[str, Configs],
        deleted: Mapping[str, str],
    ) -> dict[str, PreparedTopic]:
        present = self._destination.metadata.topics
        missing = {name: copy for name, copy in names.items() if copy not in present and name not in deleted}
        for name, copy in missing.items():
            if name not in source_configs:
                raise ConfigError(
                    f"topic {copy} does not exist on {self._destination}, and this principal may not read "
                    f"the configuration of {name} on {self._source} to create it alike. Allow "
                    "DESCRIBE_CONFIGS on it, or create the topic yourself with compression.type=producer"
                ) from not_authorized(name)
        self._warn_of_fewer_replicas(missing)
        return {
            name: PreparedTopic(
                name,
                copy,
                len(self._source.metadata.topics[name].partitions),
                deleted=deleted.get(name),
                creation=self._creation(name, copy, source_configs[name]) if name in missing else None,
                present_partitions=len(present[copy].partitions) if copy in present else 0,
            )
            for name, copy in names.items()
        }

    def _creation(self, name: str, copy: str, source_configs: Configs) -> NewTopic:
        source = _state(self._source.metadata.topics[name], source_configs)
        if harmful := harmful_values(source_configs):
            self._warnings.append(harm_sentence(name, harmful))
        return NewTopic(
            copy,
            source.partitions,
            self._replication_factor(name),
            configs_of_copy(
                source,
                has_timestamp_after=self._broker_configs.has_timestamp_after,
            ),
        )

    def _warn_of_growth(self, topics: Mapping[str, PreparedTopic]) -> None:
        growing = [topic for topic in topics.values() if topic.added_partitions]
        for topic in growing:
            grow_topic(
                topic.destination,
                topic.present_partitions,
                topic.partitions,
                self._destination,
                self._patience_s,
                validate_only=True,
            )
        if growing:
            copies = [topic.destination for topic in growing]
            self._warnings.append(
                f"{_topics(copies)} on {self._destination}: has fewer partitions than the source. The "
                "missing ones are added"
            )

    def _replication_factor(self, name: str) -> int:
        """Return the option, or the source's factor, but at most the number of brokers."""
        if self._options.replication_factor is not None:
            return self._options.replication_factor
        return min(
            _replicas(self._source.metadata.topics[name]) or 1, len(self._destination.metadata.brokers)
        )

    def _warn_of_fewer_replicas(self, missing: Mapping[str, str]) -> None:
        brokers = len(self._destination.metadata.brokers)
        fewer = [
            copy
            for name, copy in missing.items()
            if self._options.replication_factor is None
            and _replicas(self._source.metadata.topics[name]) > brokers
        ]
        if fewer:
            self._warnings.append(
                f"{_topics(fewer)} on {self._destination}: created with {brokers} replicas, as many as there "
                "are brokers, but the source has more"
            )

    # Brokers

    @cached_property
    def _broker_configs(self) -> BrokerConfigs:
        """The configurations of those destination brokers that return them."""
        described = describe_brokers(self._destination)
        if described.is_refused:
            self._warnings.append(
                f"the brokers of {self._destination} may not be described by this principal, so Kafka's "
                "defaults are assumed of producer.id.expiration.ms and of created topics' timestamps. Allow "
                "DESCRIBE_CONFIGS on the cluster"
            )
        return described


def _state(topic: TopicMetadata, configs: Configs | None) -> TopicState:
    return TopicState(len(topic.partitions), _replicas(topic), configs or {})


def _replicas(topic: TopicMetadata) -> int:
    return min((len(partition.replicas) for partition in topic.partitions.values()), default=0)


def _topics(names: Sequence[str]) -> str:
    """Return ``topic a``, or ``topics a, b and 3 more``."""
    return f"topic{'s' if len(names) > 1 else ''} {first_few(names)}"
