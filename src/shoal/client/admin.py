"""Topics and configurations: describe, create, grow; and producer ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..error_codes import ErrorCode
from ..errors import BrokerError, ProtocolError, raise_for
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from .cluster import Cluster

__all__ = [
    "IDEMPOTENT_WRITE",
    "NOT_ALLOWED",
    "ConfigEntry",
    "NewTopic",
    "alter_topic_configs",
    "create_partitions",
    "create_topic",
    "describe_broker_config",
    "describe_topic_configs",
    "init_producer_id",
    "validate_topic",
]

T = TypeVar("T")

#: The codes of a topic or a broker that this principal may not describe.
NOT_ALLOWED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})

#: The rights behind CLUSTER_AUTHORIZATION_FAILED.
IDEMPOTENT_WRITE = "IDEMPOTENT_WRITE on the cluster, or WRITE on a topic of it"
_CREATE = "CREATE on the cluster, or on the topic"

_TOPIC = 2
_BROKER = 4

#: The number of topics in one DescribeConfigs request. Kafka 4.1 returns some 1.5 KB for each, so that a
#: response has a megabyte at most.
_DESCRIBED_AT_ONCE = 500

#: ``AlterConfigOp.OpType``
_SET, _DELETE = 0, 1

#: The ConfigSource of a value that is set on the topic itself, in DescribeConfigs.
_DYNAMIC_TOPIC_CONFIG = 1


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A configuration's value, and whether it was set on the topic (not a default)."""

    value: str | None
    set_on_topic: bool

    @property
    def words(self) -> frozenset[str]:
        """The items of a list, as ``cleanup.policy`` is one."""
        return frozenset(each.strip() for each in (self.value or "").split(","))


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


def describe_topic_configs(
    cluster: Cluster, topics: Iterable[str], refused: list[str] | None = None
) -> dict[str, dict[str, ConfigEntry]]:
    """
    Return the configuration of each topic, with the defaults.

    Args:
        refused: Receives the topics that this principal may not describe; None if that is an error.

    Raises:
        BrokerError: A topic does not exist, or this principal may not describe it.

    """
    names = list(topics)
    configs: dict[str, dict[str, ConfigEntry]] = {}
    for start in range(0, len(names), _DESCRIBED_AT_ONCE):
        configs |= _describe_some(cluster, names[start : start + _DESCRIBED_AT_ONCE], refused)
    return configs


def _describe_some(
    cluster: Cluster, topics: Sequence[str], refused: list[str] | None
) -> dict[str, dict[str, ConfigEntry]]:
    resource = request_class(ApiKey.DESCRIBE_CONFIGS).DescribeConfigsResource
    resources = [
        resource(resource_type=_TOPIC, resource_name=name, configuration_keys=None) for name in topics
    ]
    response = cluster.ask_anyone(ApiKey.DESCRIBE_CONFIGS, resources=resources)
    configs = {}
    for result in response.results:
        if refused is not None and result.error_code in NOT_ALLOWED:
            refused.append(result.resource_name)
            continue
        raise_for(
            result.error_code,
            f"the configuration of topic {result.resource_name} on {cluster}",
            result.error_message,
        )
        configs[result.resource_name] = _entries(result.configs)
    return configs


def _entries(configs: Iterable[Any]) -> dict[str, ConfigEntry]:
    return {
        each.name: ConfigEntry(each.value, each.config_source == _DYNAMIC_TOPIC_CONFIG) for each in configs
    }


def describe_broker_config(cluster: Cluster, node_id: int) -> dict[str, str | None]:
    """
    Return one broker's configuration.

    Raises:
        BrokerError: This principal may not describe it.

    """
    resource = request_class(ApiKey.DESCRIBE_CONFIGS).DescribeConfigsResource(
        resource_type=_BROKER, resource_name=str(node_id), configuration_keys=None
    )
    response = cluster.connection(node_id).request(ApiKey.DESCRIBE_CONFIGS, resources=[resource])
    where = f"the configuration of broker {node_id} of {cluster}"
    result = _only(response.results, where)
    raise_for(result.error_code, where, result.error_message, "DESCRIBE_CONFIGS on the cluster")
    return {entry.name: entry.value for entry in result.configs}


def alter_topic_configs(
    cluster: Cluster, changes: Mapping[str, Mapping[str, str | None]]
) -> dict[str, BrokerError]:
    """
    Set configurations of topics, and let others return to their defaults (KIP-339).

    Args:
        changes: For each topic the new values, by name; None for the default.

    Returns:
        The error of each topic that the cluster refuses; nothing of it was changed.

    Raises:
        ProtocolError: The cluster is older than Kafka 2.3, and has no such request.

    """
    resource = request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS).AlterConfigsResource
    names = list(changes)
    refused = {}
    for start in range(0, len(names), _DESCRIBED_AT_ONCE):
        resources = [
            resource(
                resource_type=_TOPIC,
                resource_name=name,
                configs=[
                    resource.AlterableConfig(
                        name=config, config_operation=_DELETE if value is None else _SET, value=value
                    )
                    for config, value in changes[name].items()
                ],
            )
            for name in names[start : start + _DESCRIBED_AT_ONCE]
        ]
        response = cluster.ask_anyone(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=resources)
        for result in response.responses:
            if result.error_code:
                where = f"the configuration of topic {result.resource_name} on {cluster}"
                refused[result.resource_name] = BrokerError(result.error_code, where, result.error_message)
    return refused


def create_topic(cluster: Cluster, topic: NewTopic) -> None:
    """
    Create a topic; it is no error if it exists already.

    Raises:
        BrokerError: The cluster refuses; the error has its message.

    """
    result = _create(cluster, topic, validate_only=False)
    if result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
        raise_for(
            result.error_code, f"creating topic {topic.name} on {cluster}", result.error_message, _CREATE
        )


def validate_topic(cluster: Cluster, topic: NewTopic) -> dict[str, ConfigEntry] | None:
    """
    Check whether the cluster would create a topic, without creating it.

    Returns:
        The configuration of the topic, with the defaults. Before Kafka 2.4 it has only the given values. None
        if this principal may not read it.

    Raises:
        BrokerError: The cluster would refuse, for example with TOPIC_ALREADY_EXISTS.

    """
    result = _create(cluster, topic, validate_only=True)
    raise_for(result.error_code, f"creating topic {topic.name} on {cluster}", result.error_message, _CREATE)
    if result.topic_config_error_code:
        return None
    return _entries(result.configs or ()) or {
        name: ConfigEntry(value, True) for name, value in topic.configs.items()
    }


def _create(cluster: Cluster, topic: NewTopic, *, validate_only: bool) -> Any:
    creatable = request_class(ApiKey.CREATE_TOPICS).CreatableTopic
    response = cluster.controller().request(
        ApiKey.CREATE_TOPICS,
        topics=[
            creatable(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=[],
                configs=[
                    creatable.CreatableTopicConfig(name=name, value=value)
                    for name, value in topic.configs.items()
                ],
            )
        ],
        timeout_ms=cluster.config.request_timeout_ms,
        validate_only=validate_only,
    )
    return _only(response.topics, f"creating topic {topic.name} on {cluster}")


def create_partitions(cluster: Cluster, topic: str, count: int, *, validate_only: bool = False) -> None:
    """
    Add partitions to a topic.

    Args:
        count: The new number of partitions.
        validate_only: Check the request without a change.

    Raises:
        BrokerError: The cluster refuses; with INVALID_PARTITIONS if the topic has as many already.

    """
    partitions_topic = request_class(ApiKey.CREATE_PARTITIONS).CreatePartitionsTopic
    response = cluster.controller().request(
        ApiKey.CREATE_PARTITIONS,
        topics=[partitions_topic(name=topic, count=count, assignments=None)],
        timeout_ms=cluster.config.request_timeout_ms,
        validate_only=validate_only,
    )
    where = f"adding partitions to topic {topic} on {cluster}"
    result = _only(response.results, where)
    raise_for(result.error_code, where, result.error_message)


def _only(results: Sequence[T], where: str) -> T:
    if len(results) != 1:
        raise ProtocolError(f"{where}: an answer with {len(results)} results")
    return results[0]


def init_producer_id(cluster: Cluster) -> tuple[int, int]:
    """
    Request a new idempotent producer id.

    Returns:
        The producer id and its epoch.

    Raises:
        BrokerError: The cluster refuses, or is not ready yet (retriable).
        ProtocolError: The response has an invalid id or epoch.

    """
    response = cluster.ask_anyone(
        ApiKey.INIT_PRODUCER_ID,
        transactional_id=None,
        transaction_timeout_ms=cluster.config.request_timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )
    raise_for(response.error_code, f"a producer id from {cluster}", right=IDEMPOTENT_WRITE)
    if response.producer_id < 0 or response.producer_epoch < 0:
        # Brokers take a negative id for no producer, and would accept a batch twice.
        raise ProtocolError(
            f"{cluster} hands out producer id {response.producer_id} with epoch {response.producer_epoch}"
        )
    return response.producer_id, response.producer_epoch
