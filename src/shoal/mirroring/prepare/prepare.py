"""
Before a mirror begins: which topics, and whether the destination can take them.

Runs on the driver, with metadata and configurations only. :func:`look` changes
nothing: it finds what is wrong, and returns what is missing. :func:`prepare`
looks, and then creates that.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from ...client.admin import (
    ConfigEntry,
    NewTopic,
    create_partitions,
    create_topic,
    describe_broker_config,
    describe_topic_configs,
    validate_topic,
)
from ...client.cluster import Cluster, patiently
from ...client.coordinator import MemberId, has_coordinator
from ...client.metadata import TopicMetadata
from ...error_codes import ErrorCode
from ...errors import BrokerError, ConfigError, ShoalError
from ...topic_partition import TopicPartition
from ..model.copy_options import MultiBatch
from ..model.incidents import IncidentKind
from ..model.options import MirrorOptions
from ..model.position import MirrorPosition
from ..model.text import first_few
from ..positions import GroupPositions
from .agent_check import require_multi_batch
from .copies import confirmed_deleted, deleted_reason
from .topic_configs import Finding, TopicState, compare, configs_of_copy
from .unmatched import idle_expressions, near_topics, why_nothing_matches

__all__ = [
    "DEFAULT_PRODUCER_ID_EXPIRATION_MS",
    "Plan",
    "PlannedTopic",
    "Prepared",
    "PreparedTopic",
    "look",
    "prepare",
    "producer_id_expiration_ms",
    "warning_of_others",
]

#: Kafka's default; for brokers that do not tell.
DEFAULT_PRODUCER_ID_EXPIRATION_MS = 86_400_000

#: So long for a created topic to get its leaders, and for what else time can heal.
_PATIENCE_S = 60.0

#: The code of a topic's or broker's configuration that we may not read.
_NOT_ALLOWED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})

Configs = Mapping[str, ConfigEntry]


@dataclass(frozen=True, slots=True)
class PreparedTopic:
    """
    Attributes:
        source: Its name at the source.
        destination: Its name at the destination.
        partitions: At the source; the destination has at least as many.
        created: Whether it was created just now, so that it is empty.
        deleted: Why it is not mirrored: its copy was deleted since it was mirrored. None otherwise.
    """

    source: str
    destination: str
    partitions: int
    created: bool
    deleted: str | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """
    What a mirror begins with.

    Attributes:
        group: The consumer group on the source cluster.
        source_cluster_id: None where the cluster is too old to have one.
        destination_cluster_id: Likewise.
        topics: By their names at the source, sorted.
        warnings: Sentences: what, where, what to do.
        producer_id_expiration_ms: After so long without a batch, the
            destination's brokers forget a producer id's sequence.

    """

    group: str
    source_cluster_id: str | None
    destination_cluster_id: str | None
    topics: Mapping[str, PreparedTopic]
    warnings: tuple[str, ...]
    producer_id_expiration_ms: int

    @property
    def names(self) -> dict[str, str]:
        """The destination's names by the source's."""
        return {name: topic.destination for name, topic in self.topics.items()}


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """
    Attributes:
        source: Its name at the source.
        destination: Its name at the destination.
        partitions: At the source.
        creation: What is to be created; None where the destination has it.
        present_partitions: At the destination; 0 where it is to be created.
        deleted: See :class:`PreparedTopic`.
    """

    source: str
    destination: str
    partitions: int
    creation: NewTopic | None
    present_partitions: int
    deleted: str | None = None

    @property
    def is_present(self) -> bool:
        """Whether the destination has it."""
        return self.creation is None and self.deleted is None

    @property
    def added_partitions(self) -> int:
        """How many an existing copy is to get."""
        return max(0, self.partitions - self.present_partitions) if self.is_present else 0


@dataclass(frozen=True, slots=True)
class Plan:
    """
    What a mirror will begin with, and what has to be made for it.

    Attributes:
        group: And the others: as of :class:`Prepared`.

    """

    group: str
    source_cluster_id: str | None
    destination_cluster_id: str | None
    topics: Mapping[str, PlannedTopic]
    warnings: tuple[str, ...]
    producer_id_expiration_ms: int


def look(
    options: MirrorOptions, source: Cluster, destination: Cluster, *, patience_s: float = _PATIENCE_S
) -> Plan:
    """
    Resolve the selection, check the destination, find what it misses; change nothing.

    What is to be created was offered to the destination, to be validated only.

    Args:
        options: Of the mirror.
        source: Its metadata of all topics is refreshed.
        destination: Its metadata of the copies is refreshed.
        patience_s: How long to wait for what time can heal.

    Raises:
        ConfigError: Nothing is selected, or the destination cannot take it; says what to do.
        BrokerError: A cluster refuses.
        Disconnected: A cluster does not answer.

    """
    return _Look(options, source, destination, patience_s, creates=False).run()


def prepare(
    options: MirrorOptions,
    source: Cluster,
    destination: Cluster,
    *,
    patience_s: float = _PATIENCE_S,
    forbids: bool = True,
    on_create: Callable[[], object] = lambda: None,
) -> Prepared:
    """
    Look, and create what the destination misses: topics, and partitions of topics.

    May be called again while the mirror runs, to notice new topics and partitions.

    Args:
        options: Of the mirror.
        source: Its metadata of all topics is refreshed.
        destination: Its metadata of the copies is refreshed, leaders included.
        patience_s: How long to wait for leaders and other things that time can heal.
        forbids: Whether a topic is refused that may not take every batch of the source's; else it is
            warned of.
        on_create: Called before anything is created.

    Raises:
        ConfigError: Nothing is selected, or the destination cannot take it; says what to do.
        BrokerError: A cluster refuses, or leaders did not come in time.
        Disconnected: A cluster does not answer.

    """
    plan = _Look(options, source, destination, patience_s, forbids=forbids).run()
    if any(topic.creation for topic in plan.topics.values()):
        on_create()
    created = _carry_out(plan, destination, patience_s)
    if options.multi_batch is MultiBatch.REQUIRED:
        require_multi_batch(destination, created)  # the others were looked at
    return Prepared(
        plan.group,
        plan.source_cluster_id,
        plan.destination_cluster_id,
        {
            name: PreparedTopic(
                name, topic.destination, topic.partitions, topic.destination in created, topic.deleted
            )
            for name, topic in plan.topics.items()
        },
        plan.warnings,
        plan.producer_id_expiration_ms,
    )


def _carry_out(plan: Plan, destination: Cluster, patience_s: float) -> frozenset[str]:
    """Create what is missing, and wait until every partition has a leader; return the topics created."""
    created = frozenset(
        topic.destination
        for topic in plan.topics.values()
        if topic.creation and _create(topic.creation, destination, patience_s)
    )
    for topic in plan.topics.values():
        if topic.added_partitions:
            _grow(topic, destination, patience_s)
    _await_leaders(plan, destination, patience_s)
    return created


def _create(topic: NewTopic, destination: Cluster, patience_s: float) -> bool:
    try:
        return patiently(lambda: create_topic(destination, topic), patience_s=patience_s)
    except BrokerError as error:
        raise _refused_creation(error, topic) from error


def _refused_creation(error: BrokerError, topic: NewTopic) -> ShoalError:
    if error.retriable:
        return error
    return ConfigError(
        f"{error}; change what is refused, or create the topic yourself with "
        f"{topic.partitions} partitions and compression.type=producer"
    )


def _grow(
    topic: PlannedTopic, destination: Cluster, patience_s: float, *, validate_only: bool = False
) -> None:
    """Add partitions; where somebody else just did, all is well."""
    try:
        patiently(
            lambda: create_partitions(
                destination, topic.destination, topic.partitions, validate_only=validate_only
            ),
            patience_s=patience_s,
        )
    except BrokerError as error:
        if error.code == ErrorCode.INVALID_PARTITIONS:
            return
        if error.retriable:
            raise
        raise ConfigError(
            f"{error}; topic {topic.destination} has {topic.present_partitions} partitions and the source "
            f"{topic.partitions}: allow ALTER on it, or add the missing ones yourself "
            f"(kafka-topics --alter --partitions {topic.partitions})"
        ) from error


def _await_leaders(plan: Plan, destination: Cluster, patience_s: float) -> None:
    """
    Wait until each new destination partition that a mirror writes to has a leader.

    One that was there before, and has none now, keeps no other from being mirrored: its task waits for it.

    """
    new = [
        TopicPartition(topic.destination, number)
        for topic in plan.topics.values()
        if topic.deleted is None
        for number in range(0 if topic.creation else topic.present_partitions, topic.partitions)
    ]

    def check() -> None:
        destination.refresh({topic.destination for topic in plan.topics.values()})
        for partition in new:
            destination.partition(partition)

    patiently(check, patience_s=patience_s)


def warning_of_others(group: str, offsets: Mapping[TopicPartition, int]) -> str | None:
    """
    Return a warning of offsets in the mirror's group that are no mirror's; None where there are none.

    Args:
        group: Its name.
        offsets: What somebody else committed, by source partition.

    """
    if not offsets:
        return None
    partition, offset = min(offsets.items())
    more = f" and {len(offsets) - 1} more" if len(offsets) > 1 else ""
    return (
        f"group {group!r} has committed offsets that are no mirror's ({offset} for {partition}{more}): they "
        "say nothing about the destination and are not used; --start says where a partition begins"
    )


class _Look:
    """One run of :func:`look`: what it found so far."""

    def __init__(
        self,
        options: MirrorOptions,
        source: Cluster,
        destination: Cluster,
        patience_s: float,
        *,
        forbids: bool = True,
        creates: bool = True,
    ) -> None:
        self._forbids = forbids
        self._creates = creates
        self._options = options
        self._source = source
        self._destination = destination
        self._patience_s = patience_s
        self._warnings: list[str] = []

    def run(self) -> Plan:
        names = self._select()
        # All that the destination says of the topics; and its brokers, for the replication factor.
        self._destination.refresh(names.values())
        self._check_not_fed_by_itself(names)
        self._check_destination(names)
        if self._options.multi_batch is MultiBatch.REQUIRED:
            require_multi_batch(self._destination, names.values())
        group = self._options.group_between(
            self._source.metadata.cluster_id, self._destination.metadata.cluster_id
        )
        self._warn_of_the_other_direction(names)
        source_configs = self._describe(self._source, names)
        topics = self._plan(names, source_configs, self._deleted(names, group))
        self._compare(topics, source_configs, self._configs_of_copies(topics))
        self._warn_of_growth(topics)
        producer_id_expiration_ms = self._producer_id_expiration_ms()
        return Plan(
            group,
            self._source.metadata.cluster_id,
            self._destination.metadata.cluster_id,
            topics,
            tuple(self._warnings),
            producer_id_expiration_ms,
        )

    # What is selected

    def _select(self) -> dict[str, str]:
        topics = self._source.refresh().topics
        names = self._options.topics.select(topics)
        missing = [self._describe_missing(name) for name in self._options.topics.missing(topics)]
        if missing and (self._options.once or not names):
            raise ConfigError(f"--topics: {'; '.join(missing)}")
        self._warnings += [f"{each}; it is left out until that changes" for each in missing]
        if not names:
            raise ConfigError(why_nothing_matches(self._options.topics, topics, str(self._source)))
        self._warnings += idle_expressions(self._options.topics, topics)
        return names

    def _describe_missing(self, topic: str) -> str:
        code = self._source.refresh([topic]).errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code in _NOT_ALLOWED:
            return f"topic {topic} of {self._source} may not be seen by this principal (allow DESCRIBE on it)"
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
                    f"{name}, {copy}, would be mirrored again; give --rename and --exclude "
                    "(or --topics) that keep copies and originals apart"
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
                pairs = GroupPositions(self._destination, group, MemberId).read(partitions)
                held = {each.topic for each in pairs}
        if held:
            self._warnings.append(
                f"{_topics(sorted(held))} on {self._destination}: group {group!r} there holds positions of a "
                "mirror in the other direction; check that --from and --to are not swapped"
            )

    # Configurations

    def _describe(self, cluster: Cluster, topics: Iterable[str]) -> dict[str, Configs]:
        """Return the configurations of those topics that may be described; warn of the others."""
        topics = list(topics)
        try:
            return dict(self._patiently_describe(cluster, topics))
        except BrokerError as error:
            if error.code not in _NOT_ALLOWED:
                raise
        described: dict[str, Configs] = {}
        refused = []
        for topic in topics:
            try:
                described.update(self._patiently_describe(cluster, [topic]))
            except BrokerError as error:
                if error.code not in _NOT_ALLOWED:
                    raise
                refused.append(topic)
        self._warn_of_undescribed(refused, cluster)
        return described

    def _warn_of_undescribed(self, topics: Sequence[str], cluster: Cluster) -> None:
        self._warnings.append(
            f"{_topics(topics)} of {cluster} may not be described by this principal, so sizes, timestamps, "
            "compression and retention were not compared; allow DESCRIBE_CONFIGS on it"
        )

    def _patiently_describe(self, cluster: Cluster, topics: Sequence[str]) -> Mapping[str, Configs]:
        return patiently(lambda: describe_topic_configs(cluster, topics), patience_s=self._patience_s)

    def _configs_of_copies(self, topics: Mapping[str, PlannedTopic]) -> dict[str, Configs]:
        """Return what copies have, and what those would have that are to be created."""
        existing = [topic.destination for topic in topics.values() if topic.is_present]
        configs: dict[str, Configs] = self._describe(self._destination, existing)
        untold = []
        for topic in topics.values():
            if topic.creation:
                told = self._validate(topic.creation)
                if told is None:
                    untold.append(topic.destination)
                else:
                    configs[topic.destination] = told
        if untold:
            self._warn_of_undescribed(untold, self._destination)
        return configs

    def _validate(self, topic: NewTopic) -> Configs | None:
        try:
            return patiently(lambda: validate_topic(self._destination, topic), patience_s=self._patience_s)
        except BrokerError as error:
            if error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                # Created a moment ago, and not in the metadata yet.
                return self._describe(self._destination, [topic.name]).get(topic.name)
            raise _refused_creation(error, topic) from error

    def _compare(
        self,
        topics: Mapping[str, PlannedTopic],
        source_configs: Mapping[str, Configs],
        copy_configs: Mapping[str, Configs],
    ) -> None:
        topics_by_finding: dict[Finding, list[str]] = defaultdict(list)
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
            raise ConfigError("; ".join(errors))
        self._warnings += sentences.values()

    def _state_of_copy(self, topic: PlannedTopic, configs: Configs | None) -> TopicState:
        if topic.creation:
            return TopicState(topic.creation.partitions, topic.creation.replication_factor, configs or {})
        found = _state(self._destination.metadata.topics[topic.destination], configs)
        return replace(found, partitions=found.partitions + topic.added_partitions)

    # What is missing

    def _check_destination(self, names: Mapping[str, str]) -> None:
        metadata = self._destination.metadata
        for copy in names.values():
            if copy in metadata.topics and metadata.topics[copy].internal:
                raise ConfigError(
                    f"topic {copy} is internal to {self._destination}; --rename must not lead there"
                )
        refused = [copy for copy in names.values() if metadata.errors.get(copy) in _NOT_ALLOWED]
        if refused:
            raise ConfigError(
                f"{_topics(refused)} of {self._destination} may not be seen by this principal; "
                "allow DESCRIBE and WRITE on it (and CREATE, where it does not exist)"
            )

    def _deleted(self, names: Mapping[str, str], group: str) -> Mapping[str, str]:
        """
        Return the source topics whose copies are gone, and may not be created again; with the reason.

        A topic that the group has pairs for was mirrored: an empty one in its place would hide that.
        """
        missing = {
            name: copy for name, copy in names.items() if copy not in self._destination.metadata.topics
        }
        if not missing or IncidentKind.DESTINATION_LOSS in self._options.continue_on:
            return {}
        mirrored = {partition.topic for partition in self._pairs(missing, group)}
        gone = confirmed_deleted(self._destination, [missing[name] for name in mirrored], time.sleep)
        return {
            name: deleted_reason(missing[name], self._destination)
            for name in sorted(mirrored)
            if missing[name] in gone
        }

    def _pairs(self, topics: Iterable[str], group: str) -> Mapping[TopicPartition, MirrorPosition]:
        """Return the pairs that the group has for topics of the source."""
        source = self._source
        partitions = [
            TopicPartition(topic, number)
            for topic in topics
            for number in source.metadata.topics[topic].partitions
        ]
        positions = GroupPositions(source, group, MemberId)
        if self._creates:
            return patiently(lambda: positions.read(partitions), patience_s=self._patience_s)
        with suppress(ShoalError):  # a look reports that together with all else that it finds
            if has_coordinator(source, group):
                return patiently(lambda: positions.read(partitions), patience_s=self._patience_s)
        return {}

    def _plan(
        self,
        names: Mapping[str, str],
        source_configs: Mapping[str, Configs],
        deleted: Mapping[str, str],
    ) -> dict[str, PlannedTopic]:
        present = self._destination.metadata.topics
        missing = {name: copy for name, copy in names.items() if copy not in present and name not in deleted}
        for name, copy in missing.items():
            if name not in source_configs:
                raise ConfigError(
                    f"topic {copy} does not exist on {self._destination}, and this principal may not read "
                    f"the configuration of {name} on {self._source} to create it alike; allow "
                    "DESCRIBE_CONFIGS on it, or create the topic yourself with compression.type=producer"
                )
        self._warn_of_fewer_replicas(missing)
        return {
            name: PlannedTopic(
                name,
                copy,
                len(self._source.metadata.topics[name].partitions),
                self._creation(name, copy, source_configs[name]) if name in missing else None,
                len(present[copy].partitions) if copy in present else 0,
                deleted.get(name),
            )
            for name, copy in names.items()
        }

    def _creation(self, name: str, copy: str, source_configs: Configs) -> NewTopic:
        source = _state(self._source.metadata.topics[name], source_configs)
        return NewTopic(
            copy,
            source.partitions,
            self._replication_factor(name),
            configs_of_copy(
                source,
                knows_timestamp_after=any(
                    "log.message.timestamp.after.max.ms" in configs for configs in self._broker_configs
                ),
            ),
        )

    def _warn_of_growth(self, topics: Mapping[str, PlannedTopic]) -> None:
        growing = [topic for topic in topics.values() if topic.added_partitions]
        for topic in growing:
            _grow(topic, self._destination, self._patience_s, validate_only=True)
        if growing:
            copies = [topic.destination for topic in growing]
            self._warnings.append(
                f"{_topics(copies)} on {self._destination}: has fewer partitions than the source; the "
                "missing ones are added"
            )

    def _replication_factor(self, name: str) -> int:
        """Return the one asked for; else the source's, or as many as there are brokers."""
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
                "are brokers; the source has more"
            )

    # Brokers

    @cached_property
    def _broker_configs(self) -> list[dict[str, str | None]]:
        """Of those destination brokers that tell."""
        told = []
        refused = False
        for node_id in self._destination.metadata.brokers:
            # A broker that is down, or ACLs: neither is in the way of a mirror.
            try:
                told.append(describe_broker_config(self._destination, node_id))
            except BrokerError as error:
                refused = refused or error.code in _NOT_ALLOWED
            except ShoalError:
                continue
        if refused:
            self._warnings.append(
                f"the brokers of {self._destination} may not be described by this principal, so Kafka's "
                "defaults are assumed of producer.id.expiration.ms and of created topics' timestamps; allow "
                "DESCRIBE_CONFIGS on the cluster"
            )
        return told

    def _producer_id_expiration_ms(self) -> int:
        return _shortest_expiration_ms(self._broker_configs)


def producer_id_expiration_ms(cluster: Cluster) -> int:
    """Return the shortest ``producer.id.expiration.ms`` of the brokers that tell; else Kafka's default."""
    told = []
    for node_id in cluster.metadata.brokers:
        with suppress(ShoalError):  # one that is down, or ACLs
            told.append(describe_broker_config(cluster, node_id))
    return _shortest_expiration_ms(told)


def _shortest_expiration_ms(brokers: Iterable[Mapping[str, str | None]]) -> int:
    told = [
        int(text)
        for configs in brokers
        # What is no number tells nothing.
        if (text := configs.get("producer.id.expiration.ms")) and text.isdecimal()
    ]
    return min(told, default=DEFAULT_PRODUCER_ID_EXPIRATION_MS)


def _state(topic: TopicMetadata, configs: Configs | None) -> TopicState:
    return TopicState(len(topic.partitions), _replicas(topic), configs or {})


def _replicas(topic: TopicMetadata) -> int:
    return min((len(partition.replicas) for partition in topic.partitions.values()), default=0)


def _topics(names: Sequence[str]) -> str:
    """``topic a``, ``topics a, b and 3 more``"""
    return f"topic{'s' if len(names) > 1 else ''} {first_few(names)}"
