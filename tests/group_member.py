"""The only member of a group, whose every request is sent by the test itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from shoal.client.cluster import Cluster
from shoal.client.coordinator import Coordinator, MemberId
from shoal.protocol.consumer_protocol import encode_assignment, encode_subscription
from shoal.topic_partition import TopicPartition


class GroupMember:
    """Join, send heartbeats and leave, by a protocol name that no other member has."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        *,
        protocol: str,
        instance_id: str,
        session_timeout_ms: int = 30_000,
        user_data: bytes | None = None,
    ) -> None:
        self._coordinator = Coordinator(cluster, group)
        self._protocol = protocol
        self._session_timeout_ms = session_timeout_ms
        self._user_data = user_data
        self.membership = MemberId(instance_id=instance_id)

    def join(self, assignment: Iterable[TopicPartition] = ()) -> MemberId:
        assignment = list(assignment)
        topics = sorted({partition.topic for partition in assignment})
        joined = self._coordinator.join(
            self.membership,
            {self._protocol: encode_subscription(topics, self._user_data)},
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._session_timeout_ms,
        )
        parts = {joined.member_id: encode_assignment(assignment)} if joined.is_leader else {}
        self._coordinator.sync(joined, self.membership.instance_id, parts)
        self.membership = replace(self.membership, member_id=joined.member_id, generation=joined.generation)
        return self.membership

    def heartbeat(self) -> None:
        self._coordinator.heartbeat(self.membership)

    def leave(self) -> None:
        if self.membership.member_id:
            self._coordinator.leave(self.membership)
            self.membership = MemberId(instance_id=self.membership.instance_id)
