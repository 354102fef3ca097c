"""
Fetch record sets from one leader, the next request under way while one is worked on.

In a fetch session (KIP-227) the broker keeps what is wanted: a request lists
only what changed since the one before, an answer only partitions that have
something new. A thousand idle partitions then cost next to nothing.
"""

from __future__ import annotations

import math
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from ..error_codes import ErrorCode
from ..errors import ProtocolError, ShoalError
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from ..protocol.fetch import FetchResponse, decode_fetch_response
from ..protocol.topic_ids import TOPIC_IDS_FROM
from ..topic_partition import TopicPartition
from .buffers import FreshMemory, ReceiveBuffer
from .config import IsolationLevel
from .connection import Connection, version_or_close

__all__ = ["FetchFrom", "Fetcher"]

#: What a response needs besides record sets; a generous guess.
_RESPONSE_OVERHEAD = 64 * 1024

#: A broker's session may still have partitions that were forgotten. More than these, beside those that are
#: wanted, are no answer.
_MOST_UNASKED = 1000

#: A partition may always send this much, so that any batch of the default
#: max.message.bytes (1 MiB + 12) fits wherever in the request it stands.
_SMALLEST_PARTITION_MAX_BYTES = 1024 * 1024 + 4096

_FIRST_VERSION_WITH_SESSIONS = 7
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

# FetchMetadata: what a request does with its session.
_NO_SESSION = 0
_NEW_SESSION_EPOCH = 0
_WITHOUT_SESSION_EPOCH = -1
_LARGEST_EPOCH = 2**31 - 1

#: A broker serves who has data by turns. Who is left out for so long is asked for first, in a full request.
_LONGEST_LEFT_OUT_S = 5.0

#: Who had records so lately is supposed to have more soon.
_BUSY_FOR_S = 10.0


class FetchFrom(NamedTuple):
    """
    Where to go on in a partition.

    With the leader's epoch, a broker that leads it in another epoch refuses
    (KIP-320): who asks then finds out whether the log is still the same.

    With the topic's id, a broker that has another topic of this name now
    refuses (KIP-516).

    Attributes:
        known_end: Up to where there has to be something, whatever the broker
            said of the partition's end; -1 where that is not known.
        topic_id: None if it is not known.

    """

    partition: TopicPartition
    offset: int
    leader_epoch: int = -1
    known_end: int = -1
    topic_id: uuid.UUID | None = None


class Fetcher:
    """
    Fetches on one connection, into one buffer, or memory of its own for each answer.

    What is wanted stays wanted, from where it was asked for last, until it is
    asked for from elsewhere or forgotten. :meth:`send` and :meth:`receive`
    alternate. The record sets of a response are views of the buffer: valid
    until the next :meth:`receive`.

    A request is *full* or lists what changed. Only the first partition of a
    full one is sure to get its next batch, whatever its size and whatever
    the others get; and where an answer has no part for a partition, that
    says nothing. So the next request is a full one, beginning with those
    that were left out for the longest time, when an answer brings nothing
    although there should be something, and when a partition that has
    something is left out for too long.

    A request lists topics by id if the broker supports it and all of them
    have one, else by name. The requests of a session are all of one kind.

    """

    def __init__(
        self,
        connection: Connection,
        *,
        buffer_bytes: int,
        isolation_level: IsolationLevel,
        max_wait_ms: int,
        min_bytes: int = 1,
        partition_max_bytes: int | None = None,
        in_session: bool = True,
        keep_answers: bool = False,
    ) -> None:
        """
        Take over a connection.

        Args:
            connection: To the partitions' leader; closed with :meth:`close`.
            buffer_bytes: The most that one response may carry, a single
                larger batch excepted.
            isolation_level: What is seen of transactions.
            max_wait_ms: How long the broker may wait for the first byte.
            min_bytes: How much the broker waits for.
            partition_max_bytes: The most of a partition in a response, its first batch excepted;
                by default as much as there is room for.
            in_session: Whether to ask for a session; a broker has a limited
                number of them, and a few fetches are not worth one.
            keep_answers: Whether each response has memory of its own, and its record sets stay valid.

        Raises:
            ProtocolError: The broker speaks no version of Fetch that we do; the connection is closed.

        """
        self._connection = connection
        self._buffer = FreshMemory() if keep_answers else ReceiveBuffer(buffer_bytes)
        self._min_bytes = min_bytes
        self._most_of_partition = partition_max_bytes
        self._max_bytes = buffer_bytes - _RESPONSE_OVERHEAD
        self._isolation_level = isolation_level
        self._max_wait_ms = max_wait_ms
        self._newest_version = version_or_close(connection, ApiKey.FETCH)
        self._version = self._newest_version
        self._names: dict[uuid.UUID, str] = {}
        self._in_session = in_session and self._version >= _FIRST_VERSION_WITH_SESSIONS
        self._session_id = _NO_SESSION
        self._next_epoch = _NEW_SESSION_EPOCH
        self._wanted: dict[TopicPartition, FetchFrom] = {}
        self._changes: dict[TopicPartition, FetchFrom | None] = {}
        self._ends: dict[TopicPartition, int] = {}
        #: Which have more than was sent, and since when, the longest first.
        self._behind: dict[TopicPartition, float] = {}
        #: Which brought records, and when, the longest ago first.
        self._busy: dict[TopicPartition, float] = {}
        self._begin_with: TopicPartition | None = None
        self._first_of_request: TopicPartition | None = None
        self._first_of_full: TopicPartition | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether a response is to be received."""
        return self._connection.in_flight > 0

    @property
    def connection(self) -> Connection:
        """What is to be waited on."""
        return self._connection

    @property
    def wanted(self) -> Mapping[TopicPartition, FetchFrom]:
        """What the last request asked for, by listing it or by its session."""
        return self._wanted

    @property
    def first_of_full(self) -> TopicPartition | None:
        """The first partition of the request that was answered last; None where that was not a full one."""
        return self._first_of_full

    # What is wanted

    def ask(self, wanted: FetchFrom) -> None:
        """Want a partition from an offset on, behind all others that are wanted; from the next request on."""
        self._changes.pop(wanted.partition, None)
        self._changes[wanted.partition] = wanted

    def forget(self, partition: TopicPartition) -> None:
        """Want nothing of a partition any more, from the next request on."""
        self._changes[partition] = None

    def start_over(self, begin_with: TopicPartition | None = None) -> None:
        """Let the next request be a full one; it begins with a certain partition, if that is wanted then."""
        self._next_epoch = _NEW_SESSION_EPOCH
        self._begin_with = begin_with

    def _apply_changes(self) -> tuple[list[FetchFrom], list[FetchFrom]]:
        """Return what has to be listed in the session's next request, and what has to be forgotten."""
        listed: list[FetchFrom] = []
        forgotten: list[FetchFrom] = []
        now = time.monotonic()
        for partition, wanted in self._changes.items():
            before = self._wanted.pop(partition, None)
            if wanted is None:
                self._behind.pop(partition, None)
                self._busy.pop(partition, None)
                if before is not None:
                    forgotten.append(before)
                continue
            self._wanted[partition] = wanted
            if (
                before is not None
                and before.topic_id is not wanted.topic_id
                and before.topic_id != wanted.topic_id
            ):
                self.start_over(self._begin_with)  # to the session it is another partition
            if before is None or (before.offset, before.leader_epoch) != wanted[1:3]:
                listed.append(wanted)
                self._behind.pop(partition, None)
            self._look_behind(wanted, now)
        self._changes.clear()
        return listed, forgotten

    def _look_behind(self, wanted: FetchFrom, now: float) -> None:
        """Find out whether the broker has more of a partition than it sent; of a new one, suppose so."""
        end = self._ends.get(wanted.partition)
        if end is None or wanted.offset < max(end, wanted.known_end):
            self._behind.setdefault(wanted.partition, now)
        else:
            self._behind.pop(wanted.partition, None)

    # Requests

    def send(self, at_most_ms: float = math.inf) -> bool:
        """
        Send the next request, if anything is wanted.

        Args:
            at_most_ms: How long the broker may wait for the first byte, where that is less than ever.

        Returns:
            Whether there is one, and so an answer to receive.

        """
        listed, forgotten = self._apply_changes()
        if not self._wanted:
            self.start_over()
            return False
        if self._lists_ids and any(each.topic_id is None for each in listed):
            self.start_over(self._begin_with)
        if self._next_epoch == _NEW_SESSION_EPOCH:
            listed, forgotten = self._everything(), []
            self._choose_version(listed)
            self._first_of_request = listed[0].partition
            # Everyone gets the same time from here on.
            self._behind = dict.fromkeys(self._behind, time.monotonic())
        else:
            self._first_of_request = None
        epoch = self._next_epoch if self._in_session else _WITHOUT_SESSION_EPOCH
        self._send(listed, forgotten, epoch, int(min(self._max_wait_ms, at_most_ms)))
        return True

    @property
    def _lists_ids(self) -> bool:
        return self._version >= TOPIC_IDS_FROM

    def _choose_version(self, listed: Iterable[FetchFrom]) -> None:
        """List topics by id if each has one, until the next full request."""
        self._version = self._newest_version
        if self._lists_ids and any(each.topic_id is None for each in listed):
            self._version = TOPIC_IDS_FROM - 1

    def _everything(self) -> list[FetchFrom]:
        """Return all that is wanted: who is to be first, who was left out the longest, then the rest."""
        first = [self._begin_with] if self._begin_with in self._wanted else []
        self._begin_with = None
        return [self._wanted[each] for each in dict.fromkeys([*first, *self._behind, *self._wanted])]

    def _send(
        self, listed: Iterable[FetchFrom], forgotten: Iterable[FetchFrom], epoch: int, max_wait_ms: int
    ) -> None:
        request = request_class(ApiKey.FETCH)
        partition_max_bytes = self._partition_max_bytes()
        entries = defaultdict(list)
        for each in listed:
            entries[self._topic_of(each)].append(
                request.FetchTopic.FetchPartition(
                    partition=each.partition.partition,
                    current_leader_epoch=each.leader_epoch,
                    fetch_offset=each.offset,
                    partition_max_bytes=partition_max_bytes,
                )
            )
        numbers = defaultdict(list)
        for each in forgotten:
            numbers[self._topic_of(each)].append(each.partition.partition)
        topic = "topic_id" if self._lists_ids else "topic"
        self._connection.send(
            ApiKey.FETCH,
            self._version,
            max_wait_ms=max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=self._isolation_level.value,
            session_id=self._session_id,
            session_epoch=epoch,
            topics=[request.FetchTopic(**{topic: key}, partitions=each) for key, each in entries.items()],
            forgotten_topics_data=[
                request.ForgottenTopic(**{topic: key}, partitions=each) for key, each in numbers.items()
            ],
            rack_id="",
        )

    def _topic_of(self, wanted: FetchFrom) -> str | uuid.UUID:
        """Return what the request lists the topic by."""
        if not self._lists_ids:
            return wanted.partition.topic
        assert wanted.topic_id is not None, "a request without all ids is sent by name"
        self._names[wanted.topic_id] = wanted.partition.topic
        return wanted.topic_id

    def _partition_max_bytes(self) -> int:
        """Divide a response among those that have something to send, or had it lately."""
        if self._most_of_partition is not None:
            return self._most_of_partition
        busy_since = time.monotonic() - _BUSY_FOR_S
        while self._busy and next(iter(self._busy.values())) < busy_since:
            self._busy.pop(next(iter(self._busy)))
        share = self._max_bytes // max(1, len(self._behind), len(self._busy))
        return max(_SMALLEST_PARTITION_MAX_BYTES, share)

    # Answers

    def receive(self) -> FetchResponse:
        """
        Receive the answer to the last :meth:`send`; what the one before referred to is overwritten,
        unless answers are kept.

        Where the broker does not know the session any more, that is an answer
        without partitions and without an error: the next request is a full one.

        """
        frame = self._connection.receive(self._buffer)
        try:
            response = decode_fetch_response(
                frame, self._version, self._names, len(self._wanted) + _MOST_UNASKED
            )
        except ProtocolError:
            self._connection.close()
            raise
        self._first_of_full, self._first_of_request = self._first_of_request, None
        was_full = self._first_of_full is not None
        if response.error_code:
            self._next_epoch = _NEW_SESSION_EPOCH
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = _NO_SESSION
            if response.error_code in _SESSION_ERRORS and not was_full:
                return replace(response, error_code=ErrorCode.NONE, partitions=())
            return response
        self._hear(response)
        self._keep_session(response, was_full)
        if not was_full and not response.throttle_time_ms:
            self._look_for_the_left_out(response)
        return response

    def _keep_session(self, response: FetchResponse, was_full: bool) -> None:
        """Go on in the session that an answer belongs to."""
        if not was_full and response.session_id == self._session_id:
            self._next_epoch = self._next_epoch % _LARGEST_EPOCH + 1
            return
        self._next_epoch = _NEW_SESSION_EPOCH
        self._session_id = (
            max(_NO_SESSION, response.session_id) if was_full and self._in_session else _NO_SESSION
        )
        if self._session_id:
            answered = {TopicPartition(each.topic, each.partition) for each in response.partitions}
            # What it did not answer it may not have in the session either.
            if answered == self._wanted.keys():
                self._next_epoch = _NEW_SESSION_EPOCH + 1

    def _hear(self, response: FetchResponse) -> None:
        """Keep what an answer says of the partitions' ends."""
        committed = self._isolation_level is IsolationLevel.READ_COMMITTED
        now = time.monotonic()
        for fetched in response.partitions:
            wanted = self._wanted.get(TopicPartition(fetched.topic, fetched.partition))
            if wanted is not None and not fetched.error_code:
                self._ends[wanted.partition] = fetched.end_offset(committed=committed)
                if len(fetched.record_set):
                    self._behind.pop(wanted.partition, None)  # it had its turn
                    self._busy.pop(wanted.partition, None)
                    self._busy[wanted.partition] = now
                self._look_behind(wanted, now)

    def _look_for_the_left_out(self, response: FetchResponse) -> None:
        if not self._behind:
            return
        longest_since = next(iter(self._behind.values()))
        if (
            not any(len(each.record_set) for each in response.partitions)
            or time.monotonic() - longest_since > _LONGEST_LEFT_OUT_S
        ):
            self.start_over()

    def close(self) -> None:
        """Close the connection, and the session, which would keep its place at the broker for minutes."""
        if self._session_id and not self.is_waiting and not self._connection.closed:
            with suppress(ShoalError):
                self._send([], [], _WITHOUT_SESSION_EPOCH, max_wait_ms=0)
        self._connection.close()
