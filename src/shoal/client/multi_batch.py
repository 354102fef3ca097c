"""
A check: does a broker accept several batches of a partition in one Produce request?

A leader answers for each topic, and on a connection with a *marked* client id only
(:class:`ProduceConnection`). There it compares the sequences of a partition with its log end.

KIP-712 announces that by a new version of the API. Other changes have taken its number since, and a broker
with the agent announces the same versions as before. So the client sends requests that no broker can write.

Each request has two batches of a partition, and acks=2, which no broker supports. The broker answers
INVALID_REQUIRED_ACKS before it reads a log, a producer's state or the partition's leader. A stock broker
refuses earlier: two batches are INVALID_RECORD. In the first request the second batch follows the first by
its sequence, in the second request it does not:

======================================  ======================  ====================
broker                                  following               not following
======================================  ======================  ====================
accepts several, and checks sequences   INVALID_REQUIRED_ACKS   INVALID_RECORD
stock                                   INVALID_RECORD          INVALID_RECORD
checks acks before the batches          INVALID_REQUIRED_ACKS   INVALID_REQUIRED_ACKS
======================================  ======================  ====================

Only the first row is a yes. A broker of the third row might write the first batch and drop the second without
an error.

The answer does not depend on the partition's state or configuration. If a broker accepted acks=2, it would
still refuse both batches, since their checksums are wrong.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..error_codes import ErrorCode
from ..records import ENTRY, Codec, Record, stamp, write_batch
from ..records.batch import CRC_OFFSET
from ..records.record import write_body
from ..topic_partition import TopicPartition
from .connection import Connection
from .lot import Limits, Lot, open_gate
from .send import send

__all__ = ["MARK", "ProduceConnection", "marked", "query_multi_batch"]

#: The prefix of the client ids that may send several batches: to other clients the agent is a stock broker.
MARK = "shoal-multi-batch"

#: Neither 0 nor 1 nor -1.
_NO_ACKS = 2
_LIMITS = Limits(forgotten_up_to_ms=0, timeout_ms=0, acks=_NO_ACKS)

_PRODUCER_ID = 0x73686F616C  # any id: no broker reads it
_NOTHING = Record(0, -1, write_body(b"", None))

_FOLLOWING, _NOT_FOLLOWING = (0, 1), (0, 2)

#: No answer: the topic may not be known at all brokers yet, or the leader may have moved.
_ASK_LATER = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


def marked(client_id: str) -> str:
    """Return the client id for requests with several batches."""
    return client_id if client_id.startswith(MARK) else f"{MARK}.{client_id}"


def query_multi_batch(
    connection: Connection, partitions: Mapping[TopicPartition, uuid.UUID | None]
) -> dict[TopicPartition, bool]:
    """
    Find out which partitions take several batches in a request from this client.

    Args:
        connection: A connection with no request in flight.
        partitions: One partition of each topic, with the topic's id if there is one: a broker may answer
            differently by topic.

    Returns:
        The answer for each partition, unless the broker had none.

    Raises:
        ShoalError: The connection failed, or the response is malformed; the connection is closed.

    """
    following = _answers(connection, partitions, _FOLLOWING)
    not_following = _answers(connection, partitions, _NOT_FOLLOWING)
    return {
        partition: following[partition] is ErrorCode.INVALID_REQUIRED_ACKS
        and not_following[partition] is ErrorCode.INVALID_RECORD
        for partition in partitions
        if not {following[partition], not_following[partition]} & _ASK_LATER
    }


def _answers(
    connection: Connection, partitions: Mapping[TopicPartition, uuid.UUID | None], sequences: Sequence[int]
) -> dict[TopicPartition, ErrorCode]:
    batches = [_unwritable_batch(sequence) for sequence in sequences]
    sizes = [len(batch) for batch in batches]
    entries = b"".join(ENTRY.pack(size, 1, -1, -1) for size in sizes)
    lots = [
        Lot(partition, batches, entries, 0, together_bytes=sum(sizes), topic_id=topic_id)
        for partition, topic_id in partitions.items()
    ]
    sent = send(connection, lots, _LIMITS, open_gate())
    if sent.failure is not None:
        raise sent.failure
    codes = {lots[place].partition: ErrorCode.of(each.error_code) for place, each in sent.refused.items()}
    return dict.fromkeys(partitions, ErrorCode.NONE) | codes


def _unwritable_batch(sequence: int) -> memoryview:
    batch = write_batch([_NOTHING], Codec.NONE)
    stamp(batch, _PRODUCER_ID, 0, sequence)
    for at in range(CRC_OFFSET, CRC_OFFSET + 4):
        batch.view[at] ^= 0xFF
    return batch.view


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
