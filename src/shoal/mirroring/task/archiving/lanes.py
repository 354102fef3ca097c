"""The fetches from the leaders of the source: one request to each is under way, and one thread receives."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from ....client.cluster import Cluster
from ....client.config import IsolationLevel
from ....client.fetch import Fetcher, FetchFrom
from ....client.wakeup import Wakeup, wait_for_answers
from ....errors import ShoalError, raise_for
from ....protocol.fetch import FetchedPartition
from ....topic_partition import TopicPartition
from ...control import WorkerControl
from ...model.copy_options import CopySettings
from ..throttle import Throttle
from .partition import ArchivedPartition

__all__ = ["Answer", "Lanes"]

_LEAST_BUFFER_BYTES = 1024 * 1024


class Answer(NamedTuple):
    """
    A leader's answer about one partition.

    Attributes:
        asked: The request.
        fetched: Its part of the response, or the error in place of it.
        has_next: Whether it has the partition's next batch, whole, if there is one. Only the first partition
            of a full request always gets it.

    """

    asked: FetchFrom
    fetched: FetchedPartition | ShoalError
    has_next: bool = False


class Lanes:
    """A fetcher for each leader, under one throttle."""

    def __init__(self, source: Cluster, settings: CopySettings, control: WorkerControl) -> None:
        self._source = source
        self._settings = settings
        self._throttle = Throttle(control)
        self._fetchers: dict[int, Fetcher] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is under way."""
        return not any(fetcher.is_waiting for fetcher in self._fetchers.values())

    @property
    def leaders(self) -> Collection[int]:
        """The leaders that something was fetched from."""
        return self._fetchers.keys()

    def send(self, leader: int, partitions: Collection[ArchivedPartition], leaders: int) -> None:
        """
        Request whatever partitions of a leader need, if it has answered the request before.

        Args:
            leader: Its node id.
            partitions: All of its partitions.
            leaders: The number of leaders that share the task's buffer.

        Raises:
            ShoalError: The leader cannot be reached.

        """
        fetcher, throttle = self._fetchers.get(leader), self._throttle
        if fetcher is not None and fetcher.is_waiting:
            return
        throttle.look()
        needed = [each for each in partitions if each.needs_data and each.source.topic not in throttle.paused]
        if fetcher is None:
            if not needed:
                return
            fetcher = self._fetchers[leader] = self._open(leader, leaders)
        left = dict(fetcher.wanted)
        for each in needed:
            before = left.pop(each.source, None)
            if before is None or before.offset != each.fetch_offset or before.topic_id != each.topic_id:
                fetcher.ask(FetchFrom(each.source, each.fetch_offset, each.leader_epoch, -1, each.topic_id))
        for source in left:
            fetcher.forget(source)
        if not throttle.may_fetch():
            return
        try:
            fetcher.send(at_most_bytes=throttle.fetch_bytes)
        except ShoalError:
            self._drop(leader)
            raise

    def _open(self, leader: int, leaders: int) -> Fetcher:
        timing = self._settings.timing
        return Fetcher(
            self._source.connect(leader),
            buffer_bytes=max(_LEAST_BUFFER_BYTES, self._settings.fetch_buffer_bytes // leaders),
            isolation_level=IsolationLevel.READ_COMMITTED,
            max_wait_ms=timing.fetch_max_wait_ms,
            timing=timing,
        )

    def _drop(self, leader: int) -> None:
        self._fetchers.pop(leader).close()

    def receive(self, wakeup: Wakeup, timeout_s: float) -> Iterator[Answer]:
        """Wait for answers, and yield the part of each partition, or the error of its leader."""
        waiting = {
            fetcher.connection: leader for leader, fetcher in self._fetchers.items() if fetcher.is_waiting
        }
        for connection in wait_for_answers(waiting, wakeup, timeout_s):
            fetcher = self._fetchers[waiting[connection]]
            wanted = dict(fetcher.wanted)
            try:
                response = fetcher.receive()
                raise_for(response.error_code, f"fetching from {self._source}")
            except ShoalError as error:
                self._drop(waiting[connection])
                yield from (Answer(each, error) for each in wanted.values())
                continue
            for fetched in response.partitions:
                asked = wanted.pop(TopicPartition(fetched.topic, fetched.partition), None)
                if asked is not None:  # a source may list a partition twice
                    self._throttle.spend(len(fetched.record_set))
                    yield Answer(asked, fetched, has_next=fetcher.first_of_full == asked.partition)

    def put_first(self, source: TopicPartition) -> None:
        """Let the next request to a partition's leader be a full one, with the partition first."""
        for fetcher in self._fetchers.values():
            if source in fetcher.wanted:
                fetcher.start_over(source)

    def close(self) -> None:
        """Close all connections."""
        for fetcher in self._fetchers.values():
            fetcher.close()
