"""Fetch from all leaders at once, each with one request under way."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress

from ...error_codes import ErrorCode, named_code
from ...errors import AccessRefused, BrokerError, Disconnected, ProtocolError, ShoalError
from ...printable import logger
from ...protocol.fetch import FetchedPartition
from ...topic_partition import TopicPartition
from ..cluster import Cluster
from ..fetch import Fetcher
from ..fetchers import Fetchers
from ..offsets import epoch_end_offsets
from ..wakeup import Wakeup
from .partitions import ConsumedPartition
from .records import read_fetched
from .settings import ConsumerSettings

__all__ = ["Fetching"]

_log = logger("shoal.consumer")

#: The least time between two looks at the metadata.
_REFRESH_PAUSE_S = 0.1


class Fetching:
    """
    Connections to the leaders of a consumer's partitions, and the fetches on them.

    A partition is fetched only if none of its records wait to be returned. So
    memory holds at most one answer of each leader, and the records read from it.

    """

    def __init__(self, cluster: Cluster, settings: ConsumerSettings, wakeup: Wakeup) -> None:
        self._cluster = cluster
        self._settings = settings
        self._wakeup = wakeup
        self._fetchers = Fetchers(self._connect, settings.client.request_timeout_s)
        self._is_stale = False
        self._refresh_at = 0.0

    # Requests

    def send(self, states: Mapping[TopicPartition, ConsumedPartition]) -> None:
        """Send a fetch of all wanted partitions to each leader without a request under way."""
        now = time.monotonic()
        self._refresh(states, now)
        by_leader: dict[int, list[ConsumedPartition]] = {}
        for state in states.values():
            if state.is_fetchable and state.retry_at <= now:
                leader = self._leader(state)
                if leader is not None:
                    by_leader.setdefault(leader, []).append(state)
        for node_id in {*by_leader, *self._fetchers.leaders}:
            self._ask(node_id, by_leader.get(node_id, []))

    def _refresh(self, states: Mapping[TopicPartition, ConsumedPartition], now: float) -> None:
        """Refresh the metadata if a leader is unknown, or proved wrong."""
        known = self._cluster.known
        topics = {partition.topic for partition in states}
        if not topics or (not self._is_stale and known is not None and topics <= known.topics.keys()):
            return
        if now < self._refresh_at:
            return
        self._refresh_at = now + _REFRESH_PAUSE_S
        # A cluster that does not answer is asked again; meanwhile known leaders still serve fetches.
        with suppress(Disconnected):
            self._cluster.refresh(topics)
            self._is_stale = False

    def _leader(self, state: ConsumedPartition) -> int | None:
        """Return the leader by node id, once its log is known to be the one that was read."""
        try:
            found = self._cluster.partition(state.partition)
        except BrokerError as error:
            if not error.retriable:
                state.failure = error
            self._is_stale = True
            state.put_off()
            return None
        if found.leader_epoch != state.leader_epoch:
            if not self._is_same_log(state):
                return None
            state.leader_epoch = found.leader_epoch
        return found.leader

    def _is_same_log(self, state: ConsumedPartition) -> bool:
        """Whether all that was read is in the new leader's log; if not, go back to its end (KIP-320)."""
        if state.record_epoch < 0:
            return True
        end = epoch_end_offsets(self._cluster, {state.partition: state.record_epoch})[state.partition]
        if isinstance(end, ShoalError):
            self._is_stale = True
            state.put_off()
            return False
        assert state.position is not None
        if end is None or end >= state.position:
            return True
        if self._settings.reset_to is None:
            where = f"{state.partition} at offset {state.position} on {self._cluster}"
            state.failure = BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE, where, f"its log was truncated to {end}. Seek to continue"
            )
        else:
            state.seek(end)
        return state.failure is None

    def _ask(self, node_id: int, states: Collection[ConsumedPartition]) -> None:
        try:
            if self._fetchers.want(node_id, [each.fetch_from for each in states]):
                self._fetchers.send(node_id)
        except (Disconnected, ProtocolError):
            self._is_stale = True
            for state in states:
                state.put_off()

    def _connect(self, node_id: int) -> Fetcher:
        settings = self._settings
        return Fetcher(
            self._cluster.connect(node_id),
            buffer_bytes=settings.fetch_max_bytes,
            isolation_level=settings.client.isolation_level,
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            partition_max_bytes=settings.max_partition_fetch_bytes,
            keep_answers=True,
        )

    # Answers

    def receive(self, states: Mapping[TopicPartition, ConsumedPartition], timeout_s: float) -> None:
        """Wait for fetch responses or a wakeup, and keep the fetched records."""
        for asked, fetched, _ in self._fetchers.receive(self._wakeup, timeout_s):
            state = states.get(asked.partition)
            if isinstance(fetched, AccessRefused):
                raise fetched
            if isinstance(fetched, ShoalError):
                self._is_stale = True
                if state is not None:
                    state.put_off()
            elif state is not None and state.is_fetchable and asked.offset == state.position:
                self._keep(state, fetched)

    def _keep(self, state: ConsumedPartition, fetched: FetchedPartition) -> None:
        code = ErrorCode.of(fetched.error_code)
        assert state.position is not None
        if not code:
            state.backoff.reset()
            if len(fetched.record_set):
                state.fetched = read_fetched(state.partition, fetched, state.position, self._settings)
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE and self._settings.reset_to is not None:
            # Not to the committed offset, which is out of range as well.
            state.seek(None, self._settings.reset_to)
        elif code.may_pass:
            self._is_stale = True
            if not code.retriable:
                _log.warning(
                    "%s at offset %d: %s answers %s. The consumer retries",
                    state.partition,
                    state.position,
                    self._cluster,
                    named_code(fetched.error_code),
                )
            state.put_off()
        else:
            where = f"fetching {state.partition} at offset {state.position} from {self._cluster}"
            state.failure = BrokerError(fetched.error_code, where)

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is still to come."""
        return self._fetchers.is_waiting

    def close(self) -> None:
        """Close all connections."""
        self._fetchers.close()
