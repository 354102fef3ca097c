"""
The committed offsets of consumer groups: read and committed.

A mirror commits to a group on the source cluster, as a consumer would: Kafka's own tools then show its
position and its lag.

All reads here require stable offsets (``require_stable``, KIP-447), as those of Kafka's consumers do. A
coordinator of Kafka 4 answers other reads up to the high watermark of its log (``CoordinatorRuntime``,
``lastCommittedOffset``). A broker that has just become the coordinator may not have the last one yet. Offsets
that were committed last seem to be absent then. Brokers before Kafka 2.5 ignore the flag and need none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from ..error_codes import ErrorCode
from ..errors import BrokerError, Disconnected, ShoalError
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from ..topic_partition import TopicPartition, by_topic
from .cluster import Cluster
from .connection import Connection
from .coordinator import MemberId, ask_coordinator, raise_for_group
from .group_offsets import CommittedValue, read_groups, read_offsets
from .groups import list_groups

__all__ = [
    "Committed",
    "commit_offsets",
    "committed_by_groups",
    "fetch_offsets",
    "kept_names",
    "takes_retention",
]

#: The oldest and the newest version of OffsetCommit with a retention time. In later ones the broker decides
#: (KIP-211).
_OLDEST_WITH_RETENTION, _NEWEST_WITH_RETENTION = 2, 4

#: The coordinator writes the offsets of a request as one batch, of max.message.bytes (1 MB by default) at
#: most. An offset takes 100 bytes, the names of its group and its topic, and its metadata.
AT_ONCE_BYTES = 500_000
_OFFSET_BYTES = 100

#: Codes that refuse one partition of a commit, and not the others.
_OF_ONE_PARTITION = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)


@dataclass(frozen=True, slots=True)
class Committed:
    """
    A committed offset with its metadata.

    Attributes:
        offset: The next offset to read.
        metadata: A text of the committer, up to 4,096 bytes.

    Examples:
        >>> import shoal
        >>> orders = shoal.TopicPartition("orders", 0)
        >>> with shoal.RawConsumer({"bootstrap.servers": "localhost:9092", "group.id": "till"}) as consumer:
        ...     _ = consumer.commit({orders: 2}, metadata="closed at noon")
        ...     consumer.committed([orders])[orders]
        Committed(offset=2, metadata='closed at noon')

    """

    offset: int
    metadata: str


def fetch_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, Committed]:
    """
    Return the committed offsets of a group: of some partitions, or of all (None).

    The result has only partitions with a committed offset.

    Raises:
        BrokerError: The coordinator refuses the group or one of its partitions. It does so, too, while an
            open transaction has another offset of the group (UNSTABLE_OFFSET_COMMIT, retriable).

    """
    asked = None if partitions is None else list(partitions)
    names = kept_names(cluster, cluster.metadata.topics if asked is None else {each.topic for each in asked})
    wanted = None if asked is None else [each._replace(topic=names[each.topic]) for each in asked]
    if wanted == []:
        return {}
    is_restore = cluster.config.keeper is not None
    cluster = cluster.keeper
    answers = read_offsets(cluster, cluster.coordinator_node(group), {group: wanted}, stable=True)
    answer = answers[group]
    if isinstance(answer, ShoalError):
        raise answer
    archived = {kept: name for name, kept in names.items()}
    return {
        TopicPartition(archived.get(each.topic, each.topic), each.partition): committed
        for each, committed in _committed(cluster, group, answer).items()
        # The group has the positions of all restores from an archive.
        if not is_restore or each.topic in archived
    }


def kept_names(cluster: Cluster, topics: Iterable[str]) -> dict[str, str]:
    """Return the names under which the offsets of topics are kept: others for a restore with --rename."""
    kept_as = cluster.config.kept_as
    return {name: name if kept_as is None else kept_as(name) for name in topics}


def _committed(
    cluster: Cluster, group: str, answer: Mapping[TopicPartition, CommittedValue]
) -> dict[TopicPartition, Committed]:
    for value in answer.values():
        raise_for_group(cluster, group, value.error_code, "reading the positions")
    return {
        partition: Committed(value.offset, value.metadata)
        for partition, value in answer.items()
        if value.offset >= 0
    }


def committed_by_groups(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> Iterator[tuple[str, dict[TopicPartition, Committed]]]:
    """
    Yield each consumer group that committed positions of some partitions, and the positions.

    A cluster lists the groups that the principal may describe. The result lacks brokers and groups that
    refuse or do not answer.

    """
    wanted = set(partitions)
    if not wanted:
        return
    names = [each.name for each in list_groups(cluster).groups.values() if each.commits_offsets]
    for name, answer in read_groups(cluster, names, stable=True).items():
        committed: dict[TopicPartition, Committed] = {}
        if not isinstance(answer, ShoalError):
            with suppress(ShoalError):
                committed = _committed(cluster, name, answer)
        found = {partition: each for partition, each in committed.items() if partition in wanted}
        if found:
            yield name, found


def takes_retention(cluster: Cluster, group: str) -> bool:
    """
    Return whether the coordinator of a group keeps an offset for the time that the committer asks for.

    Raises:
        ShoalError: The coordinator is unknown, or does not answer.

    """
    return _version_with_retention(cluster.coordinator(group)) is not None


def _version_with_retention(connection: Connection) -> int | None:
    """Return the newest version of OffsetCommit with a retention time; None if the broker has none."""
    oldest, newest = connection.versions.get(ApiKey.OFFSET_COMMIT, (0, -1))
    version = min(newest, _NEWEST_WITH_RETENTION)
    return version if version >= max(oldest, _OLDEST_WITH_RETENTION) else None


def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    membership: MemberId,
    *,
    retention_ms: int | None = None,
    shorter: Callable[[TopicPartition], Committed] | None = None,
) -> dict[TopicPartition, BrokerError]:
    """
    Commit offsets, by as few requests as a coordinator takes.

    Args:
        retention_ms: The time in milliseconds for which the coordinator keeps the offsets, from now on, if it
            takes one (:func:`takes_retention`). None leaves that to ``offsets.retention.minutes``. The
            versions with a retention time have no instance id: a fenced static member gets UNKNOWN_MEMBER_ID
            with them, in place of FENCED_INSTANCE_ID.
        shorter: Returns an offset with less metadata. A broker may allow less than Kafka's default.

    Returns:
        The error of each refused partition.

    Raises:
        BrokerError: The coordinator refuses the whole commit.
        Disconnected: Some are committed, and it is unknown which.

    """
    refused: dict[TopicPartition, BrokerError] = {}
    parts, has_begun = [*_in_parts(group, offsets)], False
    while parts:
        part = parts.pop(0)
        try:
            found = _commit_part(cluster, group, part, membership, retention_ms)
        except BrokerError as error:
            if not has_begun:
                raise
            raise Disconnected(cluster.config.servers, str(error)) from error
        has_begun = True
        again = {
            each: less
            for each, error in found.items()
            if shorter and error.code is ErrorCode.OFFSET_METADATA_TOO_LARGE
            if (less := shorter(each)) != part[each]
        }
        refused |= {each: error for each, error in found.items() if each not in again}
        parts += _in_parts(group, again)
    return refused


def _in_parts(
    group: str, offsets: Mapping[TopicPartition, Committed]
) -> Iterator[dict[TopicPartition, Committed]]:
    part: dict[TopicPartition, Committed] = {}
    size = 0
    for partition, committed in offsets.items():
        more = _OFFSET_BYTES + len(f"{group}{partition.topic}{committed.metadata}".encode())
        if part and size + more > AT_ONCE_BYTES:
            yield part
            part, size = {}, 0
        part[partition] = committed
        size += more
    if part:
        yield part


def _commit_part(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    membership: MemberId,
    retention_ms: int | None,
) -> dict[TopicPartition, BrokerError]:
    topic = request_class(ApiKey.OFFSET_COMMIT).OffsetCommitRequestTopic
    names = kept_names(cluster, {each.topic for each in offsets})
    archived = {kept: name for name, kept in names.items()}
    entries = by_topic(
        offsets,
        lambda each: topic.OffsetCommitRequestPartition(
            partition_index=each.partition,
            committed_offset=offsets[each].offset,
            committed_leader_epoch=-1,
            committed_metadata=offsets[each].metadata,
        ),
    )
    response = ask_coordinator(
        cluster,
        group,
        ApiKey.OFFSET_COMMIT,
        None if retention_ms is None else _version_with_retention,
        group_id=group,
        generation_id_or_member_epoch=membership.generation,
        member_id=membership.member_id,
        group_instance_id=membership.instance_id,
        retention_time_ms=-1 if retention_ms is None else retention_ms,
        topics=[topic(name=names[name], partitions=each) for name, each in entries.items()],
    )
    refused = {
        TopicPartition(archived.get(answered.name, answered.name), each.partition_index): BrokerError(
            each.error_code,
            f"committing {answered.name}-{each.partition_index} to group {group!r} on {cluster}",
        )
        for answered in response.topics
        for each in answered.partitions
        if each.error_code
    }
    for error in refused.values():
        if error.code not in _OF_ONE_PARTITION:
            raise_for_group(cluster, group, error.raw_code, "committing the positions")
    return refused
