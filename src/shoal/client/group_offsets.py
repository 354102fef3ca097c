"""
The committed offsets of groups, as their coordinators answer (OffsetFetch).

A mirror reads the offsets of all its groups every few seconds, and most of them are those of the last time.
So a :class:`GroupOffsetsReader` keeps the object of an unchanged group, and of each unchanged topic in one
that changed. The caller compares by identity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ..error_codes import ErrorCode
from ..errors import BrokerError, ShoalError
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from .cluster import Cluster
from .connection import Connection

__all__ = ["CommittedValue", "FetchedGroup", "FetchedTopic", "GroupOffsetsReader", "read_offsets"]

#: From this version of OffsetFetch on, a request may name several groups (KIP-709, Kafka 3.0).
SEVERAL_GROUPS_FROM = 8

#: The number of groups in one request. The bound of a response is 64 MiB: 16,000 partitions for each group,
#: with the longest metadata that brokers accept by default.
_GROUPS_AT_ONCE = 16

#: From this version on, a request may refuse offsets that an open transaction would change (KIP-447, Kafka
#: 2.5). Before, an answer has the offset of before the transaction.
_STABLE_FROM = 7

#: The number of partitions in requests that name them. An answer without offsets has 20 bytes for each.
PARTITIONS_AT_ONCE = 10_000

#: Partitions by topic.
_Partitions: TypeAlias = Mapping[str, Collection[int]]

_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


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


@dataclass(frozen=True, slots=True, eq=False)
class FetchedTopic:
    """The offsets of one topic, by partition; the same object as long as they are the same."""

    partitions: Mapping[int, CommittedValue]


@dataclass(frozen=True, slots=True, eq=False)
class FetchedGroup:
    """The offsets of one group, by topic; the same object as long as they are the same."""

    topics: Mapping[str, FetchedTopic]


class GroupOffsetsReader:
    """Reads all committed offsets of groups again and again; see the module."""

    def __init__(self, cluster: Cluster) -> None:
        """Send the requests through a cluster's connections."""
        self._cluster = cluster
        self._known: dict[str, FetchedGroup] = {}

    def read(
        self, groups: Iterable[str], *, stable: bool = False, partitions: _Partitions | None = None
    ) -> dict[str, FetchedGroup | ShoalError]:
        """
        Return the committed offsets of each group, or its error; a group that does not exist has none.

        After an error the next call finds the group's coordinator again.

        Args:
            stable: Whether an offset that an open transaction has committed, too, is an error
                (UNSTABLE_OFFSET_COMMIT). A producer may end its transaction before the coordinator shows it.
                Only a stable read shows all commits if the coordinator has just moved; see
                :mod:`.committed_offsets`.
            partitions: If ``stable``, the partitions of which the answer shows such an error also if the
                group never committed there.

        Raises:
            Disconnected: No broker that we know of answers.

        """
        names = list(groups)
        answers: dict[str, FetchedGroup | ShoalError] = dict(self._cluster.find_coordinators(names))
        for node_id, coordinated in self._by_node(name for name in names if name not in answers).items():
            wanted = dict.fromkeys(coordinated)
            answers |= read_offsets(self._cluster, node_id, wanted, stable=stable, known=self._known)
        # Groups that the caller no longer reads are forgotten.
        self._known = {name: answer for name, answer in answers.items() if isinstance(answer, FetchedGroup)}
        if stable and partitions:
            self._add_pending(answers, partitions)
        return answers

    def _add_pending(self, answers: dict[str, FetchedGroup | ShoalError], partitions: _Partitions) -> None:
        """
        Add the partitions in which only an open transaction has an offset of a group.

        A request for all offsets of a group does not show these: the coordinator answers for the partitions
        with a committed offset (``OffsetMetadataManager.fetchAllOffsets``). So they are asked for by name.
        """
        lacking = {
            name: _lacking(answer, partitions)
            for name, answer in answers.items()
            if isinstance(answer, FetchedGroup)
        }
        # An earlier error may have made the cluster forget a coordinator.
        answers |= self._cluster.find_coordinators(lacking)
        asked = (name for name in lacking if isinstance(answers[name], FetchedGroup))
        for node_id, coordinated in self._by_node(asked).items():
            for some in _in_requests({name: lacking[name] for name in coordinated}):
                more = read_offsets(self._cluster, node_id, some, stable=True, oldest=_STABLE_FROM)
                for name, answer in more.items():
                    answers[name] = _merged(answers[name], answer)

    def _by_node(self, groups: Iterable[str]) -> dict[int, list[str]]:
        by_node: dict[int, list[str]] = defaultdict(list)
        for name in groups:
            by_node[self._cluster.coordinator_node(name)].append(name)
        return by_node


def read_offsets(
    cluster: Cluster,
    node_id: int,
    groups: Mapping[str, _Partitions | None],
    *,
    stable: bool,
    known: Mapping[str, FetchedGroup] | None = None,
    oldest: int = 0,
) -> dict[str, FetchedGroup | ShoalError]:
    """
    Read the offsets of groups that one node coordinates, or the error of each.

    After an error the cluster finds the coordinator again.

    Args:
        groups: The partitions to read of each group; None for all.
        stable: See :meth:`GroupOffsetsReader.read`.
        known: The last answers; equal ones are returned as they are.
        oldest: The oldest version that shows what the caller looks for; an older broker has no answers.

    """
    answers: dict[str, FetchedGroup | ShoalError] = {}
    names = list(groups)
    for start in range(0, len(names), _GROUPS_AT_ONCE):
        some = {name: groups[name] for name in names[start : start + _GROUPS_AT_ONCE]}
        try:
            connection = cluster.connection(node_id)
            if connection.versions[ApiKey.OFFSET_FETCH][1] < oldest:
                continue
            answered = _ask(connection, some, stable=stable)
        except ShoalError as error:
            for name in some:
                cluster.forget_coordinator(name)
            answers |= dict.fromkeys(some, error)
        else:
            answers |= {name: _read(cluster, name, answered.get(name), known or {}) for name in some}
    return answers


def _ask(
    connection: Connection, groups: Mapping[str, _Partitions | None], *, stable: bool
) -> Mapping[str, Any]:
    """Return the answer about each group, by one request if the broker takes several groups."""
    request = request_class(ApiKey.OFFSET_FETCH)
    if connection.versions[ApiKey.OFFSET_FETCH][1] < SEVERAL_GROUPS_FROM:
        topic = request.OffsetFetchRequestTopic
        return {
            name: connection.request(
                ApiKey.OFFSET_FETCH, group_id=name, topics=_entries(topic, partitions), require_stable=stable
            )
            for name, partitions in groups.items()
        }
    entry = request.OffsetFetchRequestGroup
    entries = [
        entry(group_id=name, topics=_entries(entry.OffsetFetchRequestTopics, partitions))
        for name, partitions in groups.items()
    ]
    response = connection.request_version(
        ApiKey.OFFSET_FETCH, SEVERAL_GROUPS_FROM, groups=entries, require_stable=stable
    )
    return {each.group_id: each for each in response.groups}


def _entries(topic_class: Any, partitions: _Partitions | None) -> list[Any] | None:
    if partitions is None:
        return None
    return [topic_class(name=name, partition_indexes=list(numbers)) for name, numbers in partitions.items()]


def _read(
    cluster: Cluster, name: str, answered: Any, known: Mapping[str, FetchedGroup]
) -> FetchedGroup | ShoalError:
    where = f"reading the offsets of group {name!r} on {cluster}"
    if answered is None:
        return BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, where, "the answer does not name it")
    code = answered.error_code or 0
    if code in _MOVED:
        cluster.forget_coordinator(name)
    if code and code != ErrorCode.GROUP_ID_NOT_FOUND:
        return BrokerError(code, where)
    before = known.get(name)
    topics = {} if code else {topic.name: _topic(topic, before) for topic in answered.topics}
    return before if before is not None and dict(before.topics) == topics else FetchedGroup(topics)


def _topic(answered: Any, before: FetchedGroup | None) -> FetchedTopic:
    partitions = {
        each.partition_index: CommittedValue(each.committed_offset, each.metadata or "", each.error_code)
        for each in answered.partitions
    }
    known = before.topics.get(answered.name) if before is not None else None
    return known if known is not None and known.partitions == partitions else FetchedTopic(partitions)


def _lacking(answer: FetchedGroup, partitions: _Partitions) -> dict[str, list[int]]:
    """Return the partitions that an answer does not have."""
    found: dict[str, list[int]] = {}
    for name, numbers in partitions.items():
        topic = answer.topics.get(name)
        present: Collection[int] = () if topic is None else topic.partitions
        lacking = [each for each in numbers if each not in present]
        if lacking:
            found[name] = lacking
    return found


def _in_requests(groups: Mapping[str, _Partitions]) -> Iterator[dict[str, dict[str, list[int]]]]:
    """Yield the partitions of groups in parts that a request may have."""
    every = [
        (group, topic, each)
        for group, partitions in groups.items()
        for topic, numbers in partitions.items()
        for each in numbers
    ]
    for start in range(0, len(every), PARTITIONS_AT_ONCE):
        part: dict[str, dict[str, list[int]]] = {}
        for group, topic, number in every[start : start + PARTITIONS_AT_ONCE]:
            part.setdefault(group, {}).setdefault(topic, []).append(number)
        yield part


def _merged(answer: FetchedGroup | ShoalError, more: FetchedGroup | ShoalError) -> FetchedGroup | ShoalError:
    """Return an answer with the offsets of another one, and with those that are pending."""
    if isinstance(answer, ShoalError) or isinstance(more, ShoalError):
        return answer if isinstance(answer, ShoalError) else more
    topics = dict(answer.topics)
    for name, topic in more.topics.items():
        added = {
            number: value
            for number, value in topic.partitions.items()
            if value.offset >= 0 or value.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        }
        if added:
            before = topics[name].partitions if name in topics else {}
            topics[name] = FetchedTopic({**before, **added})
    return FetchedGroup(topics)
