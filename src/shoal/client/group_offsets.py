"""The committed offsets of many groups: one request for many of them, and only changes are decoded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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

    def read(self, groups: Iterable[str], *, stable: bool = False) -> dict[str, FetchedGroup | ShoalError]:
        """
        Return the committed offsets of each group, or its error; a group that does not exist has none.

        After an error the next call finds the group's coordinator again.

        Args:
            stable: Whether an offset that an open transaction has committed, too, is an error
                (UNSTABLE_OFFSET_COMMIT). A producer may end its transaction before the coordinator shows it.

        Raises:
            Disconnected: No broker that we know of answers.

        """
        names = list(groups)
        answers: dict[str, FetchedGroup | ShoalError] = dict(self._cluster.find_coordinators(names))
        by_node: dict[int, list[str]] = defaultdict(list)
        for name in names:
            if name not in answers:
                by_node[self._cluster.coordinator_node(name)].append(name)
        for node_id, coordinated in by_node.items():
            for start in range(0, len(coordinated), _GROUPS_AT_ONCE):
                some = coordinated[start : start + _GROUPS_AT_ONCE]
                answers |= self._read_some(node_id, some, stable=stable)
        # Groups that the caller no longer reads are forgotten, with their bytes.
        self._known = {name: answer for name, answer in answers.items() if not isinstance(answer, ShoalError)}
        return answers

    def _read_some(
        self, node_id: int, groups: Sequence[str], *, stable: bool
    ) -> Mapping[str, FetchedGroup | ShoalError]:
        try:
            connection = self._cluster.connection(node_id)
            if connection.versions[ApiKey.OFFSET_FETCH][1] < SEVERAL_GROUPS_FROM:
                found = {name: self._read_one(connection, name, stable=stable) for name in groups}
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
        self, connection: Connection, groups: Sequence[str], *, stable: bool
    ) -> dict[str, FetchedGroup]:
        entry = request_class(ApiKey.OFFSET_FETCH).OffsetFetchRequestGroup
        connection.send(
            ApiKey.OFFSET_FETCH,
            SEVERAL_GROUPS_FROM,
            groups=[entry(group_id=name, topics=None) for name in groups],
            require_stable=stable,
        )
        try:
            return decode_groups(bytes(connection.receive()), self._known)
        except BaseException:
            connection.close()  # after a malformed answer, the next one may begin anywhere
            raise

    def _read_one(self, connection: Connection, name: str, *, stable: bool) -> FetchedGroup:
        may_refuse = (
            {"require_stable": stable} if connection.version(ApiKey.OFFSET_FETCH) >= _STABLE_FROM else {}
        )
        response = connection.request(ApiKey.OFFSET_FETCH, group_id=name, topics=None, **may_refuse)
        before = self._known.get(name)
        topics = {topic.name: _topic(topic, before) for topic in response.topics}
        if before is not None and not response.error_code and topics == dict(before.topics):
            return before
        return FetchedGroup(_NO_BYTES, topics, response.error_code)


def _topic(answered: Any, before: FetchedGroup | None) -> FetchedTopic:
    partitions = {
        each.partition_index: CommittedValue(each.committed_offset, each.metadata or "", each.error_code)
        for each in answered.partitions
    }
    known = before.topics.get(answered.name) if before is not None else None
    if known is not None and known.partitions == partitions:
        return known
    return FetchedTopic(_NO_BYTES, partitions)
