"""
The connection to one destination leader, and whether it takes several batches of a partition in a request.

The leader answers for each topic, and on a *marked* connection only (``client/multi_batch.py``). On a marked
connection, the sequence of each partition is its offset.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence

from ...client.cluster import Cluster
from ...client.connection import Connection, version_or_close
from ...client.lot import Gate, Limits, Lot, Sent
from ...client.multi_batch import marked, query_multi_batch
from ...client.send import send
from ...client.topic_listing import TopicListing
from ...protocol.apis import ApiKey
from ...topic_partition import TopicPartition

__all__ = ["DestinationLeader"]


class DestinationLeader:
    """
    The destination leader of a pair, which queries it, and of its sender.

    Attributes:
        connection: The connection that is used now; :meth:`query` may replace it.

    """

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        """Open the first connection to a leader of the destination cluster."""
        self._cluster = cluster
        self._node_id = node_id
        self._can_be_marked = True
        self._marked = False
        self.connection = self._connect()
        self._topic_ids: dict[TopicPartition, uuid.UUID | None] = {}
        self._listing = self._listing_of(self.connection)
        #: By topic, as the leader answered.
        self._takes: dict[str, bool] = {}

    def _connect(self, client_id: str | None = None) -> Connection:
        # A produce request must not outlive its sender: aborted on close.
        return self._cluster.connect(self._node_id, abort_on_close=True, client_id=client_id)

    def mark(self, *, is_allowed: bool) -> None:
        """Use a marked connection only if that is allowed: the sequence of each partition is its offset."""
        self._can_be_marked = is_allowed
        if self._marked and not is_allowed:
            self.connection.close()
            self.connection, self._marked = self._connect(), False
            self._listing = self._listing_of(self.connection)
            self._takes.clear()

    def keep_topic_ids(self, topic_ids: Mapping[TopicPartition, uuid.UUID | None]) -> None:
        """List topics by the ids that partitions are aligned with, if the cluster has such ids."""
        self._topic_ids.update(topic_ids)
        self._listing = self._listing_of(self.connection)

    def _listing_of(self, connection: Connection) -> TopicListing:
        return TopicListing.of(version_or_close(connection, ApiKey.PRODUCE), self._topic_ids)

    @property
    def lists_ids(self) -> bool:
        """Whether requests list topics by id, so that the broker refuses a topic that was created again."""
        return bool(self._listing.ids)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def takes_several(self, topic: str) -> bool:
        """Whether the next request may have several batches of a topic's partition."""
        return self._marked and self._takes.get(topic, False)

    def append(self, lots: Sequence[Lot], limits: Limits, gate: Gate) -> Sent:
        """Send lots, and wait until nothing is in flight; see :func:`.send`."""
        return send(self.connection, lots, limits, gate)

    def forget(self, topic: str) -> None:
        """Forget the answer for a topic: the broker may have been restarted without its agent."""
        self._takes.pop(topic, None)

    def query(self, bring_several: Iterable[TopicPartition], others: Iterable[TopicPartition]) -> None:
        """
        Query the leader about topics; if it takes several for any, continue on a marked connection.

        Args:
            bring_several: Partitions with several batches. Nothing is in flight.
            others: Partitions whose topics are queried at once: each query may take a connection.

        """
        unknown = {each.topic: each for each in bring_several if each.topic not in self._takes}
        if not self._can_be_marked or not unknown:
            return
        unknown |= {each.topic: each for each in others if each.topic not in self._takes}
        partitions = list(unknown.values())
        connection = (
            self.connection if self._marked else self._connect(marked(self._cluster.config.client_id))
        )
        listing = self._listing_of(connection)
        answers = query_multi_batch(connection, partitions, listing)
        # A topic without an answer is queried on the next connection.
        takes = {partition.topic: answers.get(partition, False) for partition in partitions}
        if any(takes.values()) and not self._marked:
            self.connection.close()
            self.connection, self._listing, self._marked = connection, listing, True
        elif not self._marked:
            connection.close()
        self._takes |= takes
