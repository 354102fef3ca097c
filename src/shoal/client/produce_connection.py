"""
A connection to a leader for batches, on which a request may have several of a partition (KIP-712).

A leader answers for each topic whether it takes several, and on a *marked* connection only
(:mod:`.multi_batch`). There it compares the sequences of a partition with its log end.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping

from ..topic_partition import TopicPartition
from .connection import Connection
from .multi_batch import marked, query_multi_batch

__all__ = ["ProduceConnection"]


class ProduceConnection:
    """
    The connection to one leader that is in use: at first without a mark, later perhaps with it.

    Attributes:
        current: The connection.
        is_marked: Whether its client id is marked.

    """

    def __init__(self, connect: Callable[[str | None], Connection], client_id: str) -> None:
        """
        Open the first connection.

        Args:
            connect: Connects to the leader by a client id; None stands for the usual one.
            client_id: The usual one.

        """
        self._connect = connect
        self._client_id = client_id
        self.is_marked = False
        #: The leader's answer about each topic.
        self._takes: dict[str, bool] = {}
        self.current = connect(None)

    def takes_several(self, topic: str) -> bool:
        """Return whether a request may have several batches of a partition of this topic."""
        return self._takes.get(topic, False)

    def has_asked(self, topics: Iterable[str]) -> bool:
        """Return whether the leader has answered about each topic."""
        return all(topic in self._takes for topic in topics)

    def ask(
        self, partitions: Iterable[TopicPartition], ids: Mapping[TopicPartition, uuid.UUID | None] | None
    ) -> None:
        """
        Ask the leader about new topics; if it takes several for any, continue on a marked connection.

        Args:
            partitions: One of each topic, or more. Nothing is in flight.
            ids: The ids of the topics.

        """
        asked = {each.topic: each for each in partitions if each.topic not in self._takes}
        if not asked:
            return
        connection = self.current if self.is_marked else self._connect(marked(self._client_id))
        answers = query_multi_batch(connection, {each: (ids or {}).get(each) for each in asked.values()})
        self._takes |= {partition.topic: takes for partition, takes in answers.items()}
        if not self.is_marked:
            self.is_marked = any(answers.values())
            if self.is_marked:
                connection, self.current = self.current, connection
            connection.close()

    def forget(self, topic: str) -> None:
        """Ask about a topic again: the broker may have been restarted without its agent."""
        self._takes.pop(topic, None)

    def unmark(self) -> None:
        """Continue without a mark: the sequences of a partition are not its offsets."""
        if self.is_marked:
            self.close()
            self._takes.clear()
            self.current, self.is_marked = self._connect(None), False

    def close(self) -> None:
        """Close the connection."""
        self.current.close()
