"""
Fetch record sets from one leader; the next request is under way while an answer is processed.

In a fetch session (KIP-227) the broker stores the wanted partitions and offsets.
A request lists only changes since the one before, and an answer only partitions
that have something new. So a thousand idle partitions cost next to nothing.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from ..error_codes import ErrorCode
from ..errors import ProtocolError, ShoalError
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from ..protocol.fetch import FetchResponse, decode_fetch_response
from ..protocol.topic_ids import TOPIC_IDS_FROM
from ..timing import DEFAULT_TIMING, Timing
from ..topic_partition import TopicPartition
from .config import IsolationLevel
from .connection import Connection, version_or_close
from .receiving import FreshMemory, ReceiveBuffer

__all__ = ["FetchFrom", "Fetcher"]

#: The bytes of a response besides record sets; a generous guess.
_RESPONSE_OVERHEAD = 64 * 1024

#: A broker's session may still contain forgotten partitions. An answer with more than these, beside the
#: wanted ones, is refused.
_MOST_UNASKED = 1000

#: The smallest limit of a partition, so that any batch of the default
#: max.message.bytes (1 MiB + 12) fits, at any place in the request.
SMALLEST_PARTITION_MAX_BYTES = 1024 * 1024 + 4096

_FIRST_VERSION_WITH_SESSIONS = 7
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

# FetchMetadata: the epochs of a request that creates a session, or has none.
_NO_SESSION = 0
_NEW_SESSION_EPOCH = 0
_WITHOUT_SESSION_EPOCH = -1
_LARGEST_EPOCH = 2**31 - 1


class FetchFrom(NamedTuple):
    """
    A partition, and the offset to fetch from.

    With the leader's epoch, a broker that leads in another epoch refuses the
    fetch (KIP-320). Then the caller has to check whether the log is the same.

    With the topic's id, a broker refuses the fetch if another topic has this
    name now (KIP-516).

    Attributes:
        known_end: An offset up to which the log has records, even if the
            broker's last answer has an earlier end; -1 for unknown.
        topic_id: None for unknown.

    """

    partition: TopicPartition
    offset: int
    leader_epoch: int = -1
    known_end: int = -1
    topic_id: uuid.UUID | None = None


class Fetcher:
    """
    Fetches on one connection, into one buffer, or memory of its own for each answer.

    A partition stays wanted, from the offset of its last :meth:`ask`, until
    :meth:`forget`. :meth:`send` and :meth:`receive` alternate. The record sets
    of a response are views of the buffer: valid until the next :meth:`receive`.

    A request is *full*, or lists only changes. Only the first partition of a
    full one always gets its next batch, of any size. If an answer has no part
    for a partition, the partition may have records all the same. So the next
    request is a full one in two cases: an answer is empty although the log has
    more, or a partition with records is left out for too long. It begins with
    the partitions that were left out for the longest time.

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
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        """
        Take over a connection.

        Args:
            connection: To the partitions' leader; closed with :meth:`close`.
            buffer_bytes: The maximum size of a response, except for a single
                larger batch.
            isolation_level: The fetches' isolation level.
            max_wait_ms: The longest time that the broker may wait for ``min_bytes``.
            min_bytes: The size that the broker waits for.
            partition_max_bytes: The maximum size of a partition in a response, except for its
                first batch; by default as large as the buffer allows.
            in_session: Whether to request a session; a broker has a limited
                number of them, and a few fetches are not worth one.
            keep_answers: Whether each response has memory of its own, and its record sets stay valid.
            timing: How long partitions count as busy, and may be left out.

        Raises:
            ProtocolError: The broker supports no version of Fetch that the client does; the connection
                is closed.

        """
        self._connection = connection
        self._buffer = FreshMemory() if keep_answers else ReceiveBuffer(buffer_bytes)
        self._min_bytes = min_bytes
        self._most_of_partition = partition_max_bytes
        self._max_bytes = buffer_bytes - _RESPONSE_OVERHEAD
        self._isolation_level = isolation_level
        self._max_wait_ms = max_wait_ms
        self._timing = timing
        self._newest_version = version_or_close(connection, ApiKey.FETCH)
        self._version = self._newest_version
        self._names: dict[uuid.UUID, str] = {}
        self._in_session = in_session and self._version >= _FIRST_VERSION_WITH_SESSIONS
        self._session_id = _NO_SESSION
        self._next_epoch = _NEW_SESSION_EPOCH
        self._wanted: dict[TopicPartition, FetchFrom] = {}
        self._changes: dict[TopicPartition, FetchFrom | None] = {}
        self._ends: dict[TopicPartition, int] = {}
        #: Partitions that have more than was sent, and since when, the longest first.
        self._behind: dict[TopicPartition, float] = {}
        #: Partitions that brought records, and when, the longest ago first.
        self._busy: dict[TopicPartition, float] = {}
        self._sent_at = 0.0
        self._begin_with: TopicPartition | None = None
        self._first_of_request: TopicPartition | None = None
        self._first_of_full: TopicPartition | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether a response is still to come."""
        return self._connection.in_flight > 0

    def is_overdue(self, answer_s: float) -> bool:
        """Return whether an answer takes longer than this, beside the time that the broker may wait."""
        limit_s = answer_s + self._max_wait_ms / 1000
        return self.is_waiting and time.monotonic() - self._sent_at > limit_s

    @property
    def connection(self) -> Connection:
        """The connection, for a selector."""
        return self._connection

    @property
    def wanted(self) -> Mapping[TopicPartition, FetchFrom]:
        """The partitions of the last request, whether it listed them or its session has them."""
        return self._wanted

    @property
    def first_of_full(self) -> TopicPartition | None:
        """The first partition of the request that was answered last; None if that was not a full one."""
        return self._first_of_full

    # The wanted partitions

    def ask(self, wanted: FetchFrom) -> None:
        """Fetch a partition from an offset on, from the next request on; it comes last in it."""
        self._changes.pop(wanted.partition, None)
        self._changes[wanted.partition] = wanted

    def forget(self, partition: TopicPartition) -> None:
        """Stop fetching a partition, from the next request on."""
        self._changes[partition] = None

    def start_over(self, begin_with: TopicPartition | None = None) -> None:
        """Make the next request a full one; it begins with ``begin_with``, if that is wanted then."""
        self._next_epoch = _NEW_SESSION_EPOCH
        self._begin_with = begin_with

    def _apply_changes(self) -> tuple[list[FetchFrom], list[FetchFrom]]:
        """Return the partitions to list and to forget in the session's next request."""
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
        """Check whether the broker has more of a partition than it sent; assume so of a new one."""
        end = self._ends.get(wanted.partition)
        if end is None or wanted.offset < max(end, wanted.known_end):
            self._behind.setdefault(wanted.partition, now)
        else:
            self._behind.pop(wanted.partition, None)

    # Requests

    def send(self, at_most_bytes: int | None = None) -> bool:
        """
        Send the next request, if anything is wanted.

        Args:
            at_most_bytes: A smaller size of the response than the buffer's; None for that.

        Returns:
            Whether a request was sent, so that an answer will come.

        """
        listed, forgotten = self._apply_changes()
        if not self._wanted:
            self.start_over()
            return False
        if self.lists_ids and any(each.topic_id is None for each in listed):
            self.start_over(self._begin_with)
        if self._next_epoch == _NEW_SESSION_EPOCH:
            listed, forgotten = self._everything(), []
            self._choose_version(listed)
            self._first_of_request = listed[0].partition
            # All partitions begin a new term.
            self._behind = dict.fromkeys(self._behind, time.monotonic())
        else:
            self._first_of_request = None
        epoch = self._next_epoch if self._in_session else _WITHOUT_SESSION_EPOCH
        max_bytes = self._max_bytes if at_most_bytes is None else min(self._max_bytes, at_most_bytes)
        self._send(listed, forgotten, epoch, self._max_wait_ms, max_bytes)
        return True

    @property
    def lists_ids(self) -> bool:
        """Whether the last request listed topics by id, so that the broker refuses one created again."""
        return self._version >= TOPIC_IDS_FROM

    def _choose_version(self, listed: Iterable[FetchFrom]) -> None:
        """List topics by id if each has one, until the next full request."""
        self._version = self._newest_version
        if self.lists_ids and any(each.topic_id is None for each in listed):
            self._version = TOPIC_IDS_FROM - 1

    def _everything(self) -> list[FetchFrom]:
        """Return all wanted partitions: the one to begin with, then those left out longest, then the rest."""
        first = [self._begin_with] if self._begin_with in self._wanted else []
        self._begin_with = None
        return [self._wanted[each] for each in dict.fromkeys([*first, *self._behind, *self._wanted])]

    def _send(
        self,
        listed: Iterable[FetchFrom],
        forgotten: Iterable[FetchFrom],
        epoch: int,
        max_wait_ms: int,
        max_bytes: int,
    ) -> None:
        request = request_class(ApiKey.FETCH)
        partition_max_bytes = self._partition_max_bytes()
        by_topic: dict[str | uuid.UUID, list[Any]] = defaultdict(list)
        for each in listed:
            by_topic[self._topic_of(each)].append(
                request.FetchTopic.FetchPartition(
                    partition=each.partition.partition,
                    current_leader_epoch=each.leader_epoch,
                    fetch_offset=each.offset,
                    partition_max_bytes=partition_max_bytes,
                )
            )
        numbers: dict[str | uuid.UUID, list[int]] = defaultdict(list)
        for each in forgotten:
            numbers[self._topic_of(each)].append(each.partition.partition)
        key = "topic_id" if self.lists_ids else "topic"
        self._sent_at = time.monotonic()
        self._connection.send(
            ApiKey.FETCH,
            self._version,
            max_wait_ms=max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=max_bytes,
            isolation_level=self._isolation_level.value,
            session_id=self._session_id,
            session_epoch=epoch,
            topics=[request.FetchTopic(**{key: topic}, partitions=each) for topic, each in by_topic.items()],
            forgotten_topics_data=[
                request.ForgottenTopic(**{key: topic}, partitions=each) for topic, each in numbers.items()
            ],
        )

    def _topic_of(self, wanted: FetchFrom) -> str | uuid.UUID:
        """Return the topic's key in the request: its id or its name."""
        if not self.lists_ids:
            return wanted.partition.topic
        assert wanted.topic_id is not None, "a request without all ids is sent by name"
        self._names[wanted.topic_id] = wanted.partition.topic
        return wanted.topic_id

    def _partition_max_bytes(self) -> int:
        """Divide a response among the partitions that have records, or had some lately."""
        if self._most_of_partition is not None:
            return self._most_of_partition
        busy_since = time.monotonic() - self._timing.busy_for_s
        while self._busy and next(iter(self._busy.values())) < busy_since:
            self._busy.pop(next(iter(self._busy)))
        share = self._max_bytes // max(1, len(self._behind), len(self._busy))
        return max(SMALLEST_PARTITION_MAX_BYTES, share)

    # Answers

    def receive(self) -> FetchResponse:
        """
        Receive the answer to the last :meth:`send`.

        The answer overwrites the record sets of the one before, unless answers are kept.
        If the broker has dropped the session, the answer has no partitions and
        no error, and the next request is a full one.

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
        self._update_ends(response)
        self._keep_session(response, was_full)
        if not was_full and not response.throttle_time_ms:
            self._look_for_the_left_out(response)
        return response

    def _keep_session(self, response: FetchResponse, was_full: bool) -> None:
        """Continue in the session that an answer belongs to."""
        if not was_full and response.session_id == self._session_id:
            self._next_epoch = self._next_epoch % _LARGEST_EPOCH + 1
            return
        self._next_epoch = _NEW_SESSION_EPOCH
        self._session_id = (
            max(_NO_SESSION, response.session_id) if was_full and self._in_session else _NO_SESSION
        )
        if self._session_id:
            answered = {TopicPartition(each.topic, each.partition) for each in response.partitions}
            # The session may lack the partitions that the answer lacks.
            if answered == self._wanted.keys():
                self._next_epoch = _NEW_SESSION_EPOCH + 1

    def _update_ends(self, response: FetchResponse) -> None:
        """Store the partitions' ends that an answer reports."""
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
            or time.monotonic() - longest_since > self._timing.longest_left_out_s
        ):
            self.start_over()

    def close(self) -> None:
        """Close the connection, and the session, which would keep its place at the broker for minutes."""
        if self._session_id and not self.is_waiting and not self._connection.closed:
            with suppress(ShoalError):
                self._send([], [], _WITHOUT_SESSION_EPOCH, max_wait_ms=0, max_bytes=self._max_bytes)
        self._connection.close()
