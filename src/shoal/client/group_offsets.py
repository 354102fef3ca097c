"""The committed offsets of many groups: one request for many of them, and only changes are decoded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from ..error_codes import ErrorCode
from ..errors import BrokerError, ShoalError
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from ..protocol.offset_fetch import (
    SEVERAL_GROUPS_FROM,
    CommittedValue,
    FetchedGroup,
    FetchedTopic,
    decode_groups,
)
from .cluster import Cluster
from .connection import Connection

__all__ = ["GroupOffsetsReader"]

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

#: Answers of brokers before OffsetFetch 8 are compared as values, not as bytes.
_NO_BYTES = b""


class GroupOffsetsReader:
    """
    Reads all committed offsets of groups.

    An answer is the same object as the last one as long as nothing changed (:class:`FetchedGroup`), and so
    are its topics.
    """

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
        answers = self._read_all(groups, stable=stable)
        # Groups that the caller no longer reads are forgotten, with their bytes.
        self._known = {name: answer for name, answer in answers.items() if not isinstance(answer, ShoalError)}
        if stable and partitions:
            self._add_pending(answers, partitions)
        return answers

    def _read_all(self, groups: Iterable[str], *, stable: bool) -> dict[str, FetchedGroup | ShoalError]:
        names = list(groups)
        answers: dict[str, FetchedGroup | ShoalError] = dict(self._cluster.find_coordinators(names))
        for node_id, coordinated in self._by_node(name for name in names if name not in answers).items():
            for start in range(0, len(coordinated), _GROUPS_AT_ONCE):
                some = coordinated[start : start + _GROUPS_AT_ONCE]
                answers |= self._read_some(node_id, dict.fromkeys(some), stable=stable)
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
                for name, more in self._read_some(node_id, some, stable=True).items():
                    answers[name] = _merged(answers[name], more)

    def _by_node(self, groups: Iterable[str]) -> dict[int, list[str]]:
        by_node: dict[int, list[str]] = defaultdict(list)
        for name in groups:
            by_node[self._cluster.coordinator_node(name)].append(name)
        return by_node

    def _read_some(
        self, node_id: int, groups: Mapping[str, _Partitions | None], *, stable: bool
    ) -> Mapping[str, FetchedGroup | ShoalError]:
        """Read the offsets of groups that one node coordinates: of some partitions, or of all (None)."""
        try:
            connection = self._cluster.connection(node_id)
            if connection.versions[ApiKey.OFFSET_FETCH][1] < SEVERAL_GROUPS_FROM:
                found = {
                    name: self._read_one(connection, name, partitions, stable=stable)
                    for name, partitions in groups.items()
                }
            else:
                found = self._read_together(connection, groups, stable=stable)
        except ShoalError as error:
            for name in groups:
                self._cluster.forget_coordinator(name)
            return dict.fromkeys(groups, error)
        return {name: self._checked(name, found.get(name)) for name in groups}

    def _checked(self, name: str, group: FetchedGroup | None) -> FetchedGroup | ShoalError:
        where = f"reading the offsets of group {name!r} on {self._cluster}"
        if group is None:
            return BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, where, "the answer does not name it")
        if not group.error_code:
            return group
        if group.error_code in _MOVED:
            self._cluster.forget_coordinator(name)
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return FetchedGroup(_NO_BYTES, {}, 0)
        return BrokerError(group.error_code, where)

    def _read_together(
        self, connection: Connection, groups: Mapping[str, _Partitions | None], *, stable: bool
    ) -> dict[str, FetchedGroup]:
        entry = request_class(ApiKey.OFFSET_FETCH).OffsetFetchRequestGroup
        topic = entry.OffsetFetchRequestTopics
        connection.send(
            ApiKey.OFFSET_FETCH,
            SEVERAL_GROUPS_FROM,
            groups=[
                entry(group_id=name, topics=_entries(topic, partitions))
                for name, partitions in groups.items()
            ],
            require_stable=stable,
        )
        try:
            return decode_groups(bytes(connection.receive()), self._known)
        except BaseException:
            connection.close()  # after a malformed answer, the next one may begin anywhere
            raise

    def _read_one(
        self, connection: Connection, name: str, partitions: _Partitions | None, *, stable: bool
    ) -> FetchedGroup:
        is_refusing = connection.version(ApiKey.OFFSET_FETCH) >= _STABLE_FROM
        if partitions is not None and not is_refusing:
            return FetchedGroup(_NO_BYTES, {}, 0)  # the answer would show no transaction
        may_refuse = {"require_stable": stable} if is_refusing else {}
        topics = _entries(request_class(ApiKey.OFFSET_FETCH).OffsetFetchRequestTopic, partitions)
        response = connection.request(ApiKey.OFFSET_FETCH, group_id=name, topics=topics, **may_refuse)
        before = self._known.get(name)
        found = {topic.name: _topic(topic, before) for topic in response.topics}
        if before is not None and not response.error_code and found == dict(before.topics):
            return before
        return FetchedGroup(_NO_BYTES, found, response.error_code)


def _entries(topic_class: Any, partitions: _Partitions | None) -> list[Any] | None:
    if partitions is None:
        return None
    return [topic_class(name=name, partition_indexes=list(numbers)) for name, numbers in partitions.items()]


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
            topics[name] = FetchedTopic(_NO_BYTES, {**before, **added})
    return replace(answer, raw=_NO_BYTES, topics=topics)


def _topic(answered: Any, before: FetchedGroup | None) -> FetchedTopic:
    partitions = {
        each.partition_index: CommittedValue(each.committed_offset, each.metadata or "", each.error_code)
        for each in answered.partitions
    }
    known = before.topics.get(answered.name) if before is not None else None
    if known is not None and known.partitions == partitions:
        return known
    return FetchedTopic(_NO_BYTES, partitions)
