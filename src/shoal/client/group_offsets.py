"""The committed offsets of groups, as their coordinators answer (OffsetFetch)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from ..error_codes import ErrorCode
from ..errors import BrokerError, ShoalError
from ..protocol.apis import ApiKey
from ..protocol.codec import decode_response, request_class
from ..topic_partition import TopicPartition, by_topic
from .cluster import Cluster
from .connection import Connection
from .coordinator import COORDINATOR_MOVED

__all__ = ["CommittedValue", "read_groups", "read_offsets"]

#: From this version of OffsetFetch on, a request may name several groups (KIP-709, Kafka 3.0).
_SEVERAL_GROUPS_FROM = 8

#: The number of groups in one request. With 100 partitions each and shoal's marks, the answer is small enough
#: for the quick decoder (``LARGEST_FOR_COMPILED``). The bound of a response is 64 MiB.
_GROUPS_AT_ONCE = 4

#: The number of requests that are sent before the first answer is read: the coordinator may be far away.
_REQUESTS_AT_ONCE = 16

#: From this version on, a request may refuse offsets that an open transaction would change (KIP-447, Kafka
#: 2.5). Before, an answer has the offset of before the transaction.
_STABLE_FROM = 7

#: The number of partitions in requests that name them. An answer without offsets has 20 bytes for each.
PARTITIONS_AT_ONCE = 10_000


class CommittedValue(NamedTuple):
    """
    A partition's entry.

    Attributes:
        offset: The committed offset; -1 if there is none.
        error_code: The code of the partition, or 0.

    """

    offset: int
    metadata: str
    error_code: int


_Answer: TypeAlias = Mapping[TopicPartition, CommittedValue] | ShoalError
_Answers: TypeAlias = dict[str, _Answer]


def read_groups(
    cluster: Cluster,
    groups: Iterable[str],
    *,
    stable: bool = False,
    partitions: Mapping[str, Collection[TopicPartition]] | None = None,
) -> dict[str, Mapping[TopicPartition, CommittedValue] | ShoalError]:
    """
    Return all committed offsets of each group, or its error; a group that does not exist has none.

    After an error the next call finds the group's coordinator again.

    Args:
        stable: Whether an offset that an open transaction has committed, too, is an error
            (UNSTABLE_OFFSET_COMMIT). A producer may end its transaction before the coordinator shows it. Only
            a stable read shows all commits if the coordinator has just moved; see :mod:`.committed_offsets`.
        partitions: If ``stable``, the partitions by group of which the answer shows such an error also if the
            group never committed there.

    Raises:
        Disconnected: No broker that we know of answers.

    """
    names = list(groups)
    answers: _Answers = dict(cluster.find_coordinators(names))
    for node_id, coordinated in _by_node(cluster, (name for name in names if name not in answers)).items():
        answers |= read_offsets(cluster, node_id, dict.fromkeys(coordinated), stable=stable)
    if stable and partitions:
        _add_pending(cluster, answers, partitions)
    return answers


def _add_pending(
    cluster: Cluster, answers: _Answers, partitions: Mapping[str, Collection[TopicPartition]]
) -> None:
    """
    Add the partitions in which only an open transaction has an offset of a group.

    A request for all offsets of a group does not show these: the coordinator answers for the partitions with
    a committed offset (``OffsetMetadataManager.fetchAllOffsets``). So they are asked for by name.
    """
    lacking = {
        name: found
        for name, answer in answers.items()
        if not isinstance(answer, ShoalError)
        and (found := [each for each in partitions.get(name, ()) if each not in answer])
    }
    # An earlier error may have made the cluster forget a coordinator.
    answers |= cluster.find_coordinators(lacking)
    asked = (name for name in lacking if not isinstance(answers[name], ShoalError))
    for node_id, coordinated in _by_node(cluster, asked).items():
        for some in _in_requests({name: lacking[name] for name in coordinated}):
            more = read_offsets(cluster, node_id, some, stable=True, oldest=_STABLE_FROM)
            for name, answer in more.items():
                answers[name] = _merged(answers[name], answer)


def _by_node(cluster: Cluster, groups: Iterable[str]) -> dict[int, list[str]]:
    by_node: dict[int, list[str]] = defaultdict(list)
    for name in groups:
        by_node[cluster.coordinator_node(name)].append(name)
    return by_node


def read_offsets(
    cluster: Cluster,
    node_id: int,
    groups: Mapping[str, Collection[TopicPartition] | None],
    *,
    stable: bool,
    oldest: int = 0,
) -> dict[str, Mapping[TopicPartition, CommittedValue] | ShoalError]:
    """
    Read the offsets of groups that one node coordinates, or the error of each.

    After an error the cluster finds the coordinator again.

    Args:
        groups: The partitions to read of each group; None for all.
        stable: See :func:`read_groups`.
        oldest: The oldest version that shows what the caller looks for; an older broker has no answers.

    """
    answers: _Answers = {}
    names = list(groups)
    for start in range(0, len(names), _GROUPS_AT_ONCE * _REQUESTS_AT_ONCE):
        some = names[start : start + _GROUPS_AT_ONCE * _REQUESTS_AT_ONCE]
        try:
            connection = cluster.connection(node_id)
            if (version := connection.version(ApiKey.OFFSET_FETCH)) < oldest:
                continue
            wanted = {name: groups[name] for name in some}
            answers |= _ask(cluster, connection, version, wanted, stable=stable)
        except ShoalError as error:
            for name in some:
                cluster.forget_coordinator(name)
            answers |= dict.fromkeys(some, error)
    return answers


def _ask(
    cluster: Cluster,
    connection: Connection,
    version: int,
    groups: Mapping[str, Collection[TopicPartition] | None],
    *,
    stable: bool,
) -> _Answers:
    """Send all requests, then read their answers."""
    names = list(groups)
    size = _GROUPS_AT_ONCE if version >= _SEVERAL_GROUPS_FROM else 1
    parts = [tuple(names[start : start + size]) for start in range(0, len(names), size)]
    answers: _Answers = {}
    try:
        for part in parts:
            fields = _fields(version, {name: groups[name] for name in part})
            connection.send(ApiKey.OFFSET_FETCH, version, **fields, require_stable=stable)
        for part in parts:
            answers |= _decode(cluster, connection, version, part, connection.receive())
    except BaseException:
        connection.close()  # the next request would receive the response to one of these
        raise
    return answers


def _fields(version: int, groups: Mapping[str, Collection[TopicPartition] | None]) -> dict[str, Any]:
    request = request_class(ApiKey.OFFSET_FETCH)
    if version < _SEVERAL_GROUPS_FROM:
        ((name, partitions),) = groups.items()
        return {"group_id": name, "topics": _entries(request.OffsetFetchRequestTopic, partitions)}
    entry = request.OffsetFetchRequestGroup
    topic = entry.OffsetFetchRequestTopics
    return {
        "groups": [
            entry(group_id=name, topics=_entries(topic, partitions)) for name, partitions in groups.items()
        ]
    }


def _decode(
    cluster: Cluster, connection: Connection, version: int, names: tuple[str, ...], frame: memoryview
) -> _Answers:
    response = decode_response(ApiKey.OFFSET_FETCH, version, frame, connection.sizes.values)
    several = version >= _SEVERAL_GROUPS_FROM
    found = {each.group_id: each for each in response.groups} if several else {names[0]: response}
    return {name: _read(cluster, name, found.get(name)) for name in names}


def _entries(topic_class: Any, partitions: Collection[TopicPartition] | None) -> list[Any] | None:
    if partitions is None:
        return None
    numbers = by_topic(partitions, lambda each: each.partition)
    return [topic_class(name=name, partition_indexes=each) for name, each in numbers.items()]


def _read(cluster: Cluster, name: str, answered: Any) -> _Answer:
    where = f"reading the offsets of group {name!r} on {cluster}"
    if answered is None:
        return BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, where, "the answer does not name it")
    code = answered.error_code or 0
    if code in COORDINATOR_MOVED:
        cluster.forget_coordinator(name)
    if code and code != ErrorCode.GROUP_ID_NOT_FOUND:
        return BrokerError(code, where)
    return {
        TopicPartition(topic.name, each.partition_index): CommittedValue(
            each.committed_offset, each.metadata or "", each.error_code
        )
        for topic in (() if code else answered.topics)
        for each in topic.partitions
    }


def _in_requests(
    groups: Mapping[str, Collection[TopicPartition]],
) -> Iterator[dict[str, list[TopicPartition]]]:
    """Yield the partitions of groups in parts that a request may have."""
    every = [(group, each) for group, partitions in groups.items() for each in partitions]
    for start in range(0, len(every), PARTITIONS_AT_ONCE):
        part: dict[str, list[TopicPartition]] = defaultdict(list)
        for group, each in every[start : start + PARTITIONS_AT_ONCE]:
            part[group].append(each)
        yield part


def _merged(answer: _Answer, more: _Answer) -> _Answer:
    """Return an answer with the offsets of another one, and with those that are pending."""
    if isinstance(answer, ShoalError) or isinstance(more, ShoalError):
        return answer if isinstance(answer, ShoalError) else more
    added = {
        partition: value
        for partition, value in more.items()
        if value.offset >= 0 or value.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    }
    return {**answer, **added}
