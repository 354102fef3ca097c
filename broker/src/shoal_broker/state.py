"""
The state that API handlers read and change.

A :class:`BrokerState` has no sockets and no threads: :class:`~.broker.Broker` adds them.
The nodes of a cluster (:mod:`.cluster`) share the topics, the groups and the transactions.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from shoal.net.turns import Turns
from shoal.protocol.apis import ApiKey

from .call import Call
from .clock import now_ms
from .config import BrokerConfig
from .coordination.fetch_sessions import FetchSessions
from .coordination.groups import Groups
from .coordination.leaders import Leaders
from .coordination.producer_ids import ProducerIds
from .coordination.purgatory import Purgatory
from .coordination.transactions import Transactions
from .faults import Faults
from .storage.data_directory import DataDirectory
from .storage.journal import Journal
from .storage.log import Log
from .topics import Topics

__all__ = ["Api", "BrokerState", "Handler"]


class Handler(Protocol):
    """
    Serve a request.

    The request and the response are messages of ``shoal.protocol``: for Produce and Fetch its dataclasses,
    otherwise the classes of its codec. The only error that a handler raises is
    :class:`~.coordination.purgatory.NobodyWaits`.

    """

    def __call__(self, state: BrokerState, call: Call, request: Any, /) -> Any:
        """Return the response."""


@dataclass(frozen=True, slots=True)
class Api:
    """
    One API.

    Attributes:
        oldest: The oldest version that the broker serves.
        handle: The function that serves its requests.

    """

    key: ApiKey
    oldest: int
    newest: int
    handle: Handler


class BrokerState:
    """
    One node's state, and the cluster's.

    Attributes:
        node_id: The node's id in the cluster.
        apis: The APIs that the node serves.
        faults: The failures that a test ordered (see :class:`~shoal_broker.Faults`).
        fetch_sessions: The partitions that each client fetches.
        purgatory: The requests that wait for logs to grow.
        large_requests: Turns at requests that take much memory.
        config: The broker's settings by Kafka's names, as text, defaults included. These and the following
            attributes belong to all nodes of a cluster.
        journal: The file of groups, transactions, topics and dynamic settings.
        producer_ids: The source of new producer ids.
        topics: The topics with their logs.
        groups: The consumer groups with their offsets.
        leaders: The nodes that run, and the leader of each partition.

    """

    config: BrokerConfig
    cluster_id: str
    journal: Journal
    producer_ids: ProducerIds
    topics: Topics
    groups: Groups
    transactions: Transactions
    leaders: Leaders

    def __init__(
        self,
        node_id: int,
        apis: Mapping[ApiKey, Api],
        config: BrokerConfig,
        *,
        cluster_id: str | None = None,
        data: DataDirectory | None = None,
        beside: BrokerState | None = None,
    ) -> None:
        """
        Read the state from a data directory, share another node's, or begin without topics.

        Args:
            apis: The APIs that the node serves.
            cluster_id: The cluster's id, by default the directory's or a random one.
            data: The directory; None keeps everything in memory.
            beside: Another node of the cluster, whose state this node shares.

        Raises:
            ConfigError: The directory belongs to another broker, or is damaged.
            ApiError: A dynamic setting in the directory is invalid.
            OSError: The directory cannot be read.

        """
        self.node_id = node_id
        self.apis = apis
        self.config = config
        self.faults = Faults()
        if beside is not None:
            self._share(beside)
        else:
            self._read(cluster_id, data)
        self.fetch_sessions = FetchSessions(int(self.config["max.incremental.fetch.session.cache.slots"]))
        self.purgatory = Purgatory()
        self.large_requests = Turns(1)

    def _share(self, other: BrokerState) -> None:
        self.cluster_id = other.cluster_id
        self.journal = other.journal
        self.producer_ids = other.producer_ids
        self.topics = other.topics
        self.groups = other.groups
        self.transactions = other.transactions
        self.leaders = other.leaders

    def _read(self, cluster_id: str | None, data: DataDirectory | None) -> None:
        self.cluster_id = cluster_id or _random_cluster_id()
        if data is not None:
            self.cluster_id = data.check_identity(cluster_id, self.node_id, self.cluster_id)
        self.journal = data.journal if data is not None else Journal()
        for _, dynamic in self.journal.facts("broker_config"):
            self.config.alter(dynamic)
        self.leaders = Leaders()
        self.producer_ids = ProducerIds(self.journal)
        self.topics = Topics(self.config, data)
        self.groups = Groups(self.config, self.journal)
        self.transactions = Transactions(
            self.config, self.topics, self.groups, self.producer_ids, self.journal
        )
        self.forget_expired_producers()

    def led_log(self, topic: str, partition: int) -> Log:
        """
        Return the log of a partition that this node leads.

        Raises:
            ApiError: With UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER or KAFKA_STORAGE_ERROR.

        """
        log = self.topics.log(topic, partition)
        self.check_leads(topic, partition)
        return log

    def check_leads(self, topic: str, partition: int) -> None:
        """
        Check that this node leads a partition, and that its log directory is online.

        Raises:
            ApiError: With NOT_LEADER_OR_FOLLOWER or KAFKA_STORAGE_ERROR.

        """
        self.topics.failure.check()
        self.leaders.check(self.node_id, topic, partition)

    def gave_up(self, call: Call) -> bool:
        """Return whether a request lost its reader: the broker stopped, or the client hung up."""
        return self.purgatory.is_closed or call.has_hung_up()

    @property
    def failure(self) -> str | None:
        """The reason why the log directory is offline, as a sentence; None if it is online."""
        return self.topics.failure.reason

    def forget_expired_producers(self) -> None:
        """Forget producers whose last batch is older than ``producer.id.expiration.ms``."""
        expiration_ms = int(self.config["producer.id.expiration.ms"])
        for topic in self.topics:
            for log in topic.logs:
                log.forget_expired_producers(now_ms(), expiration_ms)


def _random_cluster_id() -> str:
    """Return 22 characters of URL-safe base64, as in Kafka."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
