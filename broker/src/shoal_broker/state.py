"""
The state that API handlers read and change.

A :class:`BrokerState` has no sockets and no threads: :class:`~.broker.Broker` adds them.
The nodes of a cluster (:mod:`.cluster`) share the topics, the groups and the transactions.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shoal.protocol.apis import ApiKey

from .call import Call
from .clock import now_ms
from .coordination.fetch_sessions import FetchSessions
from .coordination.groups import Groups
from .coordination.leaders import Leaders
from .coordination.purgatory import Purgatory
from .coordination.transactions import Transactions
from .faults import Faults
from .storage.log import Log
from .topics import Topics

__all__ = ["Api", "BrokerState"]


@dataclass(frozen=True, slots=True)
class Api:
    """
    One API.

    Attributes:
        oldest: The oldest version that the broker serves.
        handle: Returns the response to a request. Both are messages of ``shoal.protocol``: for Produce and
            Fetch its dataclasses, otherwise the classes of its codec. It raises no error but
            :class:`~.coordination.purgatory.NobodyWaits`.

    """

    key: ApiKey
    oldest: int
    newest: int
    handle: Callable[[BrokerState, Call, Any], Any]


class BrokerState:
    """
    One node's state, and the cluster's.

    Attributes:
        node_id: The node's id in the cluster.
        apis: The APIs that the node serves.
        faults: The failures that a test ordered (see :class:`~shoal_broker.Faults`).
        fetch_sessions: The partitions that each client fetches.
        purgatory: The requests that wait for logs to grow.
        config: The broker's settings by Kafka's names, as text, defaults included. These and the following
            attributes belong to all nodes of a cluster.
        topics: The topics with their logs.
        groups: The consumer groups with their offsets.
        transactions: The transactional ids, and the source of producer ids.
        leaders: The nodes that run, and the leader of each partition.

    """

    config: dict[str, str]
    cluster_id: str
    topics: Topics
    groups: Groups
    transactions: Transactions
    leaders: Leaders

    def __init__(
        self,
        node_id: int,
        apis: Mapping[ApiKey, Api],
        config: dict[str, str],
        *,
        cluster_id: str | None = None,
        beside: BrokerState | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Begin without topics, or share another node's state.

        Args:
            apis: The APIs that the node serves.
            cluster_id: The cluster's id, by default a random one.
            beside: Another node of the cluster, whose state this node shares.
            clock: The monotonic time in seconds, for sessions, rebalances and transactions.

        """
        self.node_id = node_id
        self.apis = apis
        self.config = config
        self.faults = Faults()
        if beside is not None:
            self._share(beside)
        else:
            self._begin(cluster_id, clock)
        self.fetch_sessions = FetchSessions()
        self.purgatory = Purgatory()

    def _share(self, other: BrokerState) -> None:
        self.cluster_id = other.cluster_id
        self.topics = other.topics
        self.groups = other.groups
        self.transactions = other.transactions
        self.leaders = other.leaders

    def _begin(self, cluster_id: str | None, clock: Callable[[], float]) -> None:
        self.cluster_id = cluster_id or secrets.token_urlsafe(16)  # as many characters as in Kafka
        self.leaders = Leaders()
        self.topics = Topics()
        self.groups = Groups(clock)
        self.transactions = Transactions(self.topics, self.groups, clock)

    def led_log(self, topic: str, partition: int) -> Log:
        """
        Return the log of a partition that this node leads.

        Raises:
            ApiError: With UNKNOWN_TOPIC_OR_PARTITION or NOT_LEADER_OR_FOLLOWER.

        """
        log = self.topics.log(topic, partition)
        self.leaders.check(self.node_id, topic, partition)
        return log

    def gave_up(self, call: Call) -> bool:
        """Return whether a request lost its reader: the broker stopped, or the client hung up."""
        return self.purgatory.is_closed or call.has_hung_up()

    def forget_expired_producers(self) -> None:
        """Forget producers whose last batch is older than ``producer.id.expiration.ms``."""
        expiration_ms = int(self.config["producer.id.expiration.ms"])
        for topic in self.topics:
            for log in topic.logs:
                log.forget_expired_producers(now_ms(), expiration_ms)

    def forget_old_offsets(self) -> None:
        """Forget the offsets whose retention time, or else ``offsets.retention.minutes``, is over."""
        self.groups.forget_old_offsets(int(self.config["offsets.retention.minutes"]) * 60_000)
