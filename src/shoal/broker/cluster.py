"""
Several embedded brokers as one cluster, in one process: for what only clusters do.

The nodes share their logs, groups and transactions: it is as if each
partition's followers were never behind, and nothing is ever lost. What a test
gets from it is leaders: each partition is led by one node, the others answer
NOT_LEADER_OR_FOLLOWER, and leadership moves when it is told to, or when a node
stops, with a new leader epoch. Any node serves any group, whichever one
FindCoordinator names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from .broker import Broker
from .topics import Topic

__all__ = ["BrokerCluster"]


class BrokerCluster:
    """
    Brokers with the ids 1 to ``size``. Use it as a context manager.

    Attributes:
        nodes: All of them, running or not; each has faults of its own.

    """

    def __init__(
        self,
        size: int,
        *,
        cluster_id: str | None = None,
        config: Mapping[str, str] | None = None,
        data: Path | None = None,
    ) -> None:
        """
        Make a cluster; it listens once it is started.

        Args:
            size: How many brokers.
            cluster_id: A random one if it is not given.
            config: Settings of all brokers.
            data: The directory of all of them; None keeps everything in memory.

        Raises:
            ConfigError: As :class:`~shoal.broker.Broker` says.

        """
        first = Broker(cluster_id=cluster_id, config=config, data=data)
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
        """Stop all nodes, without any election; keep everything, here and on the disk."""
        for node in self.nodes:
            node.hang_up()
        self.nodes[0].close()

    @property
    def bootstrap(self) -> str:
        """All nodes, for ``bootstrap.servers``."""
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def topics(self) -> Sequence[Topic]:
        return list(self.nodes[0].topics)

    def node(self, node_id: int) -> Broker:
        """Return a node by its id."""
        return self.nodes[node_id - 1]

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> Topic:
        """Create a topic without a client, as :meth:`~shoal.broker.Broker.create_topic` does."""
        return self.nodes[0].create_topic(name, partitions, config)

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the id of a partition's leader; -1 for none."""
        return self.nodes[0].leaders.of(topic, partition)

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Let another node lead a partition, from a new leader epoch on; also to one that does not run."""
        log = self.nodes[0].log(topic, partition)
        self.nodes[0].leaders.assign(topic, partition, node_id)
        log.begin_leader_epoch(log.leader_epoch + 1)

    def stop_node(self, node_id: int) -> None:
        """Stop a node; another one leads what it led, if one is left."""
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
        """Start a node again, on the same port; it leads what nobody else does."""
        self.node(node_id).listen()
