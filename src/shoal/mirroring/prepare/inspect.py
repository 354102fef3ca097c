"""
Inspect both clusters before a mirror begins: which topics are selected, and can the destination take them?

Runs on the driver, with metadata and configurations only, and changes nothing. The result,
:class:`Prepared`, lists what the destination misses; :mod:`.create` creates it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field

from ...client.admin import NOT_ALLOWED, NewTopic, validate_topic
from ...client.cluster import Cluster
from ...client.coordinator import MemberId
from ...client.groups import has_coordinator
from ...client.metadata import TopicMetadata
from ...error_codes import ErrorCode
from ...errors import BrokerError, ConfigError, ShoalError
from ...nearest import did_you_mean
from ...topic_partition import TopicPartition
from ..model.incidents import IncidentKind
from ..model.options import MirrorOptions
from ..model.position import MirrorPosition
from ..model.text import first_few
from ..positions import GroupPositions
from .archive import inspect_for_archive, left_out
from .changes import Prepared, PreparedTopic, creation_error, grow_topic
from .copies import confirmed_deleted, deleted_reason
from .descriptions import (
    BrokerConfigs,
    decompression_limit,
    describe_brokers,
    describe_topics,
    not_authorized,
)
from .topic_configs import (
    ConfigFinding,
    Configs,
    TopicState,
    compare,
    configs_of_copy,
    harm_sentence,
    harmful_values,
)
from .unmatched import glob_warnings, why_nothing_matches

__all__ = ["inspect_topics"]


def inspect_topics(
    options: MirrorOptions,
    source: Cluster,
    destination: Cluster,
    *,
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
    inspection = _Inspection(options, source, destination, forbids, creates)
    return inspection.run(on_group)


@dataclass
class _Inspection:
    """One run of :func:`inspect_topics`, with its warnings so far."""

    _options: MirrorOptions
    _source: Cluster
    _destination: Cluster
    _forbids: bool
    _creates: bool
    _warnings: list[str] = field(default_factory=list)
    _unreadable: dict[str, ShoalError] = field(default_factory=dict)

    def run(self, on_group: Callable[[str], object]) -> Prepared:
        inspect = self._options.destination.choose(self._of_cluster, self._of_archive)
        return inspect(self._select(), on_group)

    def _of_archive(self, names: Mapping[str, str], on_group: Callable[[str], object]) -> Prepared:
        return inspect_for_archive(
            self._options,
            self._source,
            names,
            self._warnings,
            self._unreadable,
            on_group,
            creates=self._creates,
        )

    def _of_cluster(self, names: Mapping[str, str], on_group: Callable[[str], object]) -> Prepared:
        # Metadata of the copies, and of all brokers for the replication factor.
        self._destination.refresh(names.values())
        self._check_not_fed_by_itself(names)
        self._check_destination(names)
        ids = self._source.metadata.cluster_id, self._destination.metadata.cluster_id
        group = self._options.group_between(*ids)
        on_group(group)
        source_configs = self._describe(self._source, list(names))
        brokers = self._describe_brokers()
        topics = self._plan(names, source_configs, self._deleted(names, group), brokers)
        self._compare(topics, source_configs)
        return Prepared(
            group,
            *ids,
            topics,
            (*self._warnings, *left_out(self._unreadable)),
            brokers.producer_id_expiration_ms,
            decompression_limit(source_configs.values()),
            self._unreadable,
        )

    # Selection

    def _select(self) -> dict[str, str]:
        selection, topics = self._options.topics, self._source.refresh().topics
        self._unreadable = {
            name: problem
            for name, topic in topics.items()
            if (problem := self._source.config.problem_of(name)) is not None and selection.matches(topic)
        }
        # The name of one of them may be no name for a copy.
        readable = {name: topic for name, topic in topics.items() if name not in self._unreadable}
        names = selection.select(readable)
        if self._unreadable and not names:
            raise next(iter(self._unreadable.values()))
        missing = {name: self._source.refresh([name]).errors.get(name) for name in selection.missing(topics)}
        for name, code in missing.items():
            is_hidden = code in NOT_ALLOWED
            sentence = (
                f"topic {name} of {self._source}: this principal is not authorized. Allow DESCRIBE on it"
                if is_hidden
                else f"there is no topic {name} on {self._source}{did_you_mean(name, topics)}"
            )
            if self._options.once or not names:
                raise ConfigError(f"--topics: {sentence}") from (not_authorized(name) if is_hidden else None)
            self._warnings.append(f"{sentence}{'' if sentence[-1] == '?' else '.'} The mirror skips it")
        if not names:
            security = self._source.config.security
            sees_none = not topics and security is not None and security.is_authenticated
            raise ConfigError(why_nothing_matches(selection, topics, str(self._source))) from (
                not_authorized("all topics") if sees_none else None
            )
        self._warnings += glob_warnings(selection, topics)
        until = self._options.until
        if until is not None and until.timestamp_ms is not None:
            self._source.config.check_creations(names, until.timestamp_ms)
        if self._options.groups is not None:
            self._source.config.check_archived_groups(names, may_lack=True)
        if until is not None and until.offset is not None:
            count = sum(len(topics[name].partitions) for name in names)
            if count > 1:
                raise ConfigError(
                    f"--until {until} is an offset, and {count} partitions are selected. Use a time, or a "
                    "topic of one partition"
                )
        return names

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

    # Missing topics and partitions

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

    def _positions(self, topics: Collection[str], group: str) -> Mapping[TopicPartition, MirrorPosition]:
        """Return the positions that the group has of these source topics."""
        source, positions = self._source, GroupPositions(self._source, group, MemberId)
        # The dry run reports an error together with its other findings.
        with nullcontext() if self._creates else suppress(ShoalError):
            if self._creates or has_coordinator(source, group):
                # All of the group: a new one has none, and is asked for none.
                found = source.patiently(positions.read_state).positions
                return {each: position for each, position in found.items() if each.topic in topics}
        return {}

    def _plan(
        self,
        names: Mapping[str, str],
        source_configs: Mapping[str, Configs],
        deleted: Mapping[str, str],
        brokers: BrokerConfigs,
    ) -> dict[str, PreparedTopic]:
        present = self._destination.metadata.topics
        topics = {}
        for name, copy in names.items():
            creation = None
            if copy not in present and name not in deleted:
                creation = self._creation(name, copy, source_configs.get(name), brokers)
            topics[name] = PreparedTopic(
                name,
                copy,
                len(self._source.metadata.topics[name].partitions),
                deleted=deleted.get(name),
                creation=creation,
                present_partitions=len(present[copy].partitions) if copy in present else 0,
            )
        growing = [topic for topic in topics.values() if topic.added_partitions]
        for topic in growing:
            grow_topic(topic, self._destination, validate_only=True)
        self._warn_of(
            [each.destination for each in growing],
            "has fewer partitions than the source. The missing ones are added",
        )
        if self._options.replication_factor is None:
            fewer = [
                each.destination
                for each in topics.values()
                if each.creation and each.creation.replication_factor < self._replicas_of(each.source)
            ]
            self._warn_of(fewer, "is created with fewer replicas than the source has")
        return topics

    def _creation(self, name: str, copy: str, configs: Configs | None, brokers: BrokerConfigs) -> NewTopic:
        if configs is None:
            raise ConfigError(
                f"topic {copy} does not exist on {self._destination}, and this principal may not read "
                f"the configuration of {name} on {self._source} to create it alike. Allow "
                "DESCRIBE_CONFIGS on it, or create the topic yourself with compression.type=producer"
            ) from not_authorized(name)
        if harmful := harmful_values(configs):
            self._warnings.append(harm_sentence(name, harmful))
        source = TopicState(self._replicas_of(name), configs)
        most = len(self._destination.metadata.brokers)
        return NewTopic(
            copy,
            len(self._source.metadata.topics[name].partitions),
            self._options.replication_factor or min(source.replicas or 1, most),
            configs_of_copy(source, has_timestamp_after=brokers.has_timestamp_after),
        )

    # Configurations

    def _describe(self, cluster: Cluster, topics: Sequence[str]) -> dict[str, Configs]:
        """Return the configurations of those topics that may be described; warn of the others."""
        described, refused = describe_topics(cluster, topics, cluster.config.timing.patience_s)
        self._warn_of_undescribed(refused, cluster)
        return described

    def _warn_of_undescribed(self, topics: Sequence[str], cluster: Cluster) -> None:
        if topics:
            self._warnings.append(
                f"{_topics(topics)} of {cluster} may not be described by this principal, so sizes, "
                "timestamps, compression and retention were not compared. Allow DESCRIBE_CONFIGS on it"
            )

    def _describe_brokers(self) -> BrokerConfigs:
        """Return the configurations of those destination brokers that return them."""
        described = describe_brokers(self._destination)
        if described.is_refused:
            self._warnings.append(
                f"the brokers of {self._destination} may not be described by this principal, so Kafka's "
                "defaults are assumed of producer.id.expiration.ms and of created topics' timestamps. Allow "
                "DESCRIBE_CONFIGS on the cluster"
            )
        return described

    def _configs_of_copies(self, topics: Mapping[str, PreparedTopic]) -> dict[str, Configs]:
        """Return the configurations of copies; of missing ones those that they would have."""
        existing = [topic.destination for topic in topics.values() if topic.is_present]
        configs: dict[str, Configs] = self._describe(self._destination, existing)
        created = [topic.creation for topic in topics.values() if topic.creation]
        validated = {each.name: self._validate(each) for each in created}
        self._warn_of_undescribed(
            [name for name, each in validated.items() if each is None], self._destination
        )
        return configs | {name: each for name, each in validated.items() if each is not None}

    def _validate(self, topic: NewTopic) -> Configs | None:
        try:
            return self._destination.patiently(lambda: validate_topic(self._destination, topic))
        except BrokerError as error:
            if error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                # Created a moment ago, and not in the metadata yet.
                return self._describe(self._destination, [topic.name]).get(topic.name)
            raise creation_error(error, topic) from error

    def _compare(self, topics: Mapping[str, PreparedTopic], source_configs: Mapping[str, Configs]) -> None:
        copy_configs = self._configs_of_copies(topics)
        topics_by_finding: dict[ConfigFinding, list[str]] = defaultdict(list)
        for name, topic in topics.items():
            if topic.deleted is None:
                copy = topic.destination
                replicas = (
                    topic.creation.replication_factor
                    if topic.creation
                    else _replicas(self._destination.metadata.topics[copy])
                )
                source = TopicState(self._replicas_of(name), source_configs.get(name, {}))
                for finding in compare(source, TopicState(replicas, copy_configs.get(copy, {}))):
                    topics_by_finding[finding].append(topic.destination)
        errors = [
            f"{_topics(topics)} on {self._destination}: {finding.text}"
            for finding, topics in topics_by_finding.items()
            if finding.fatal
        ]
        if errors and self._forbids:
            raise ConfigError(". ".join(errors))
        for finding, copies in topics_by_finding.items():
            self._warn_of(copies, finding.text)

    def _replicas_of(self, name: str) -> int:
        return _replicas(self._source.metadata.topics[name])

    def _warn_of(self, copies: Sequence[str], problem: str) -> None:
        if copies:
            self._warnings.append(f"{_topics(copies)} on {self._destination}: {problem}")


def _replicas(topic: TopicMetadata) -> int:
    return min((len(partition.replicas) for partition in topic.partitions.values()), default=0)


def _topics(names: Sequence[str]) -> str:
    """Return ``topic a``, or ``topics a, b and 3 more``."""
    return f"topic{'s' if len(names) > 1 else ''} {first_few(names)}"
