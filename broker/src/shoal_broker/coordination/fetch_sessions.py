"""
Fetch sessions (KIP-227): the broker remembers a client's partitions, and responses have only news.

As in Kafka's ``FetchSession``: a request with epoch 0 asks for a session. Later requests count the epochs up
from 1, and list changes only. Epoch -1 means no session, and any request with a session's id and epoch 0 or
-1 closes it. The number of sessions is limited, and the least recently used one gives way to a new one.
Without any room, the response is complete and has session id 0.
"""

from __future__ import annotations

import secrets
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.fetch import FetchedPartition, FetchResponse

from ..api_error import ApiError

__all__ = ["FetchContext", "FetchSessions", "Wanted"]

_NO_SESSION = 0
_LARGEST = 2**31 - 1
_FULL_EPOCHS = (0, -1)
_FINAL_EPOCH = -1

#: The topic's id if the request has it, otherwise its name; and the partition.
_Key = tuple[str | uuid.UUID, int]

#: Kafka's default of ``max.incremental.fetch.session.cache.slots``.
_SLOTS = 1000

_Names = Mapping[uuid.UUID, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """
    A partition as this request, or an earlier one of the session, asks for it.

    Attributes:
        topic: The topic's name; empty if no topic has the id.
        partition: The number of the partition.
        fetch_offset: The first offset to read.
        max_bytes: The size limit of this partition.
        leader_epoch: The client's leader epoch, or -1.
        topic_id: None if the request lists topics by name.

    """

    topic: str
    partition: int
    fetch_offset: int
    max_bytes: int
    leader_epoch: int
    topic_id: uuid.UUID | None = None

    @property
    def key(self) -> _Key:
        """The key in the session."""
        return self.topic_id or self.topic, self.partition


@dataclass(slots=True)
class _Kept:
    """A partition in a session, with the offsets of the last response."""

    wanted: Wanted
    high_watermark: int = -1
    log_start_offset: int = -1

    def is_news(self, fetched: FetchedPartition) -> bool:
        """Return whether the response needs the partition (``CachedPartition.maybeUpdateResponseData``)."""
        before = self.high_watermark, self.log_start_offset
        self.high_watermark, self.log_start_offset = fetched.high_watermark, fetched.log_start_offset
        if fetched.error_code:
            self.high_watermark = -1  # so that the next response has its end, too
            return True
        return len(fetched.record_set) > 0 or before != (fetched.high_watermark, fetched.log_start_offset)


class _Session:
    def __init__(self, *, uses_ids: bool) -> None:
        self.id = _NO_SESSION
        self.uses_ids = uses_ids
        self.next_epoch = 1
        self.partitions: dict[_Key, _Kept] = {}

    def update(self, wanted: Iterable[Wanted], forgotten: Iterable[_Key] = ()) -> None:
        """Apply a request's changes; a partition that changes keeps its place."""
        for each in wanted:
            self.partitions.setdefault(each.key, _Kept(each)).wanted = each
        for key in forgotten:
            self.partitions.pop(key, None)

    def news(self, partitions: Iterable[FetchedPartition]) -> Iterator[FetchedPartition]:
        """Yield the partitions with news; those with records go behind the others for the next request."""
        for fetched in partitions:
            key = _key_of(fetched)
            if self.partitions[key].is_news(fetched):
                if len(fetched.record_set):
                    self.partitions[key] = self.partitions.pop(key)
                yield fetched


def _key_of(fetched: FetchedPartition) -> _Key:
    return fetched.topic_id or fetched.topic, fetched.partition


@dataclass(frozen=True, slots=True)
class FetchContext:
    """
    The partitions of a request, and its session.

    Attributes:
        wanted: The partitions, in the order in which they are served.
        session: The session of the request, or the one that it asks for; None for none.
        expected_epoch: The session's next epoch, unless another request uses the session meanwhile.

    """

    wanted: Sequence[Wanted]
    session: _Session | None = None
    expected_epoch: int = 1


class FetchSessions:
    """
    The sessions of a broker. Safe to use from several threads.

    Attributes:
        slots: The most sessions.

    """

    def __init__(self) -> None:
        self.slots = _SLOTS
        self._lock = threading.Lock()
        #: The least recently used one first.
        self._sessions: dict[int, _Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: Any, names: _Names | None = None) -> FetchContext:
        """
        Find the partitions and the session of a request.

        Args:
            names: The names of all topics by id, if the request lists topics by id.

        Raises:
            ApiError: With FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
                FETCH_SESSION_TOPIC_ID_ERROR.

        """
        # A map in Kafka, too: of a partition that is listed twice, the last entry counts.
        wanted = list({each.key: each for each in _wanted(request, names)}.values())
        uses_ids = names is not None
        with self._lock:
            if request.session_epoch in _FULL_EPOCHS:
                self._sessions.pop(request.session_id, None)
                is_final = request.session_epoch == _FINAL_EPOCH
                return FetchContext(wanted, None if is_final else _Session(uses_ids=uses_ids))
            session = self._session(request, uses_ids=uses_ids)
            session.update(wanted, _forgotten(request))
            del self._sessions[session.id]
            if not session.partitions:
                return FetchContext(wanted)
            self._sessions[session.id] = session
            session.next_epoch = session.next_epoch % _LARGEST + 1
            kept = [each.wanted for each in session.partitions.values()]
            return FetchContext(kept, session, session.next_epoch)

    def _session(self, request: Any, *, uses_ids: bool) -> _Session:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no session {request.session_id}")
        if session.next_epoch != request.session_epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"session {session.id} is at epoch {session.next_epoch}, not {request.session_epoch}",
            )
        if session.uses_ids != uses_ids:
            raise ApiError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"session {session.id} lists topics {'by id' if session.uses_ids else 'by name'}",
            )
        return session

    def answer(self, context: FetchContext, partitions: Sequence[FetchedPartition]) -> FetchResponse:
        """Return the response: in a session, of the partitions that were read, those with news."""
        session = context.session
        if session is None:
            return FetchResponse(0, ErrorCode.NONE, _NO_SESSION, partitions)
        with self._lock:
            if session.id == _NO_SESSION:
                session.update(context.wanted)
                for fetched in partitions:
                    session.partitions[_key_of(fetched)].is_news(fetched)
                self._add(session)
            elif session.next_epoch != context.expected_epoch:
                # Another request used the session meanwhile.
                return FetchResponse(0, ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, ())
            else:
                partitions = list(session.news(partitions))
            return FetchResponse(0, ErrorCode.NONE, session.id, partitions)

    def _add(self, session: _Session) -> None:
        """Give a new session an id, unless there are no slots."""
        if self.slots == 0:
            return
        if len(self._sessions) >= self.slots:
            del self._sessions[next(iter(self._sessions))]
        while session.id in (_NO_SESSION, *self._sessions):
            session.id = 1 + secrets.randbelow(_LARGEST)
        self._sessions[session.id] = session

    def partitions(self, session_id: int) -> set[tuple[str, int]]:
        """Return the partitions of a session; none if there is no such session."""
        with self._lock:
            session = self._sessions.get(session_id)
            kept = session.partitions.values() if session else ()
            return {(each.wanted.topic, each.wanted.partition) for each in kept}

    def forget_all(self) -> None:
        """Remove all sessions, as a restart does."""
        with self._lock:
            self._sessions.clear()


def _wanted(request: Any, names: _Names | None) -> Iterator[Wanted]:
    for topic in request.topics:
        name = topic.topic if names is None else names.get(topic.topic_id, "")
        for each in topic.partitions:
            yield Wanted(
                name,
                each.partition,
                each.fetch_offset,
                each.partition_max_bytes,
                each.current_leader_epoch,
                None if names is None else topic.topic_id,
            )


def _forgotten(request: Any) -> Iterator[_Key]:
    for topic in request.forgotten_topics_data:
        for partition in topic.partitions:
            yield topic.topic_id or topic.topic, partition
