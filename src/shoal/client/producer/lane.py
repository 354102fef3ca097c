"""A lane to a leader: one connection, and the thread that waits for it."""

from __future__ import annotations

import queue
import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from ...errors import ShoalError
from ...protocol.apis import ApiKey
from ...topic_partition import TopicPartition
from ..cluster import Cluster
from ..config import ClientConfig
from ..connection import Connection
from ..lot import Limits, Lot, Sent, open_gate
from ..metadata import Metadata
from ..multi_batch import marked, query_multi_batch
from ..send import send
from ..topic_listing import TopicListing

__all__ = ["Answer", "Lane"]

#: The result of a job: what landed, which topics take several batches, or an error.
Answer: TypeAlias = "Sent | Mapping[TopicPartition, bool] | Exception"

_Job: TypeAlias = "tuple[Metadata, Callable[[Connection], Answer]]"


class Lane:
    """
    Sends to one leader, one job at a time.

    A leader takes several batches of a partition in a request only if the client id has a mark. So such a
    lane is beside the one for other partitions.

    Attributes:
        takes_several: The leader's answer for each topic that it was asked about.

    """

    def __init__(
        self, config: ClientConfig, node_id: int, *, is_marked: bool, on_answer: Callable[[Answer], object]
    ) -> None:
        """
        Start the thread.

        Args:
            config: The cluster.
            node_id: The leader.
            is_marked: Whether requests may have several batches of a partition.
            on_answer: Receives the result of each job, in the lane's thread.

        """
        self._config = config
        self._node_id = node_id
        self._client_id = marked(config.client_id) if is_marked else None
        self._on_answer = on_answer
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._gate = open_gate()
        self._cluster = Cluster(config)
        self._connection: Connection | None = None
        self.takes_several: dict[str, bool] = {}
        self._thread = threading.Thread(target=self._run, name="shoal-producer-lane", daemon=True)
        self._thread.start()

    # For the owner's thread

    def send(self, metadata: Metadata, lots: Sequence[Lot], limits: Limits) -> None:
        """Send lots; the answer is a :class:`~shoal.client.lot.Sent`."""
        self._give(metadata, lambda connection: send(connection, lots, limits, self._gate))

    def ask(self, metadata: Metadata, partitions: Sequence[TopicPartition]) -> None:
        """Ask which topics take several batches, by a partition of each; the answer is by partition."""
        self._give(metadata, lambda connection: self._ask(connection, partitions))

    def _give(self, metadata: Metadata, job: Callable[[Connection], Answer]) -> None:
        self._jobs.put((metadata, job))

    def stop(self) -> None:
        """Send nothing more, and end the wait for the leader."""
        assert isinstance(self._gate, array)
        self._gate[0] = 0
        self._jobs.put(None)
        self._cluster.abort()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the thread."""
        self._thread.join(timeout_s)

    # The lane's thread

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._on_answer(self._do(*job))
        self._disconnect()

    def _do(self, metadata: Metadata, job: Callable[[Connection], Answer]) -> Answer:
        try:
            connection = self._connected(metadata)
            answer = job(connection)
        except Exception as error:
            self._disconnect()
            return error
        if connection.closed:
            self._disconnect()
        return answer

    def _connected(self, metadata: Metadata) -> Connection:
        connection = self._connection
        if connection is not None and (connection.closed or connection.has_hung_up()):
            self._disconnect()  # brokers close idle connections
        if self._connection is None:
            self._cluster = Cluster(self._config, metadata)
            self._connection = self._cluster.connect(self._node_id, client_id=self._client_id)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(ShoalError):
                self._connection.close()
        self._connection = None
        # The broker may come back without its agent.
        self.takes_several = {topic: takes for topic, takes in self.takes_several.items() if not takes}

    def _ask(
        self, connection: Connection, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, bool]:
        listing = TopicListing.of(connection.version(ApiKey.PRODUCE), None)
        answers = query_multi_batch(connection, partitions, listing)
        self.takes_several |= {partition.topic: takes for partition, takes in answers.items()}
        if not any(self.takes_several.values()):
            self._disconnect()
        return answers
