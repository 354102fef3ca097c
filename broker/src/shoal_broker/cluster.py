"""
Several embedded brokers as one cluster in one process, for tests of changes of leaders.

The nodes share their logs, groups and transactions, as if followers were never behind and nothing was ever
lost. Each partition has one leader, and the other nodes answer NOT_LEADER_OR_FOLLOWER. Leadership moves on
:meth:`BrokerCluster.move_leader`, or when a node stops, with a new leader epoch. Any node serves any group,
whatever FindCoordinator returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from .broker import Broker
from .topics import Topic

__all__ = ["BrokerCluster"]


class BrokerCluster:
    """
    Brokers with the ids 1 to ``size``. Use it as a context manager.

    Attributes:
        nodes: All nodes, running or not. Each has faults of its own.

    """

    def __init__(
        self,
        size: int,
        *,
        cluster_id: str | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """
        Begin without topics; :meth:`start` listens.

        Args:
            size: The number of brokers.
            cluster_id: By default a random one.
            config: Settings of all brokers.

        Raises:
            ConfigError: As for :class:`~shoal_broker.Broker`.

        """
        first = Broker(cluster_id=cluster_id, config=config)
        others = [Broker(node_id=number, beside=first) for number in range(2, size + 1)]
        self.nodes: Sequence[Broker] = (first, *others)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all nodes."""
        self.nodes[0].open()
        for node in self.nodes:
            node.listen()

    def stop(self) -> None:
        """Stop all nodes, without an election; the state stays."""
        for node in self.nodes:
            node.hang_up()
        self.nodes[0].close()

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, for ``bootstrap.servers``."""
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def topics(self) -> Sequence[Topic]:
        """All topics, with their logs."""
        return list(self.nodes[0].topics)

    def node(self, node_id: int) -> Broker:
        """Return the node with this id."""
        return self.nodes[node_id - 1]

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> Topic:
        """Create a topic without a client, as :meth:`~shoal_broker.Broker.create_topic` does."""
        return self.nodes[0].create_topic(name, partitions, config)

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the id of a partition's leader; -1 for none."""
        return self.nodes[0].leaders.of(topic, partition)

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make a node the leader of a partition, in a new leader epoch; the node need not run."""
        log = self.nodes[0].log(topic, partition)
        self.nodes[0].leaders.assign(topic, partition, node_id)
        log.begin_leader_epoch(log.leader_epoch + 1)

    def stop_node(self, node_id: int) -> None:
        """Stop a node; the others that run take over its partitions."""
        led = [
            (topic.name, number)
            for topic in self.topics
            for number in range(len(topic.logs))
            if self.leader_of(topic.name, number) == node_id
        ]
        self.node(node_id).hang_up()
        left = [node.node_id for node in self.nodes[0].leaders.nodes]
        for number, (topic_name, partition) in enumerate(led):
            if left:
                self.move_leader(topic_name, partition, left[number % len(left)])

    def start_node(self, node_id: int) -> None:
        """Start a node again on the same port; it leads the partitions that still have it as leader."""
        self.node(node_id).listen()
