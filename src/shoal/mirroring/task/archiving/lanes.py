"""The fetches from the leaders of the source, under the throttle of the task."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ....client.cluster import Cluster
from ....client.config import IsolationLevel
from ....client.fetch import Fetcher, FetchFrom
from ....client.fetchers import Answer, Fetchers
from ....client.wakeup import Wakeup
from ....errors import ShoalError
from ...control import WorkerControl
from ...model.copy_options import CopySettings
from ..throttle import Throttle
from .partition import ArchivedPartition

__all__ = ["Lanes"]

_LEAST_BUFFER_BYTES = 1024 * 1024


class Lanes(Fetchers):
    """A fetcher for each leader, under one throttle."""

    def __init__(self, source: Cluster, settings: CopySettings, control: WorkerControl) -> None:
        super().__init__(self._open)
        self._source = source
        self._settings = settings
        self._throttle = Throttle(control)
        #: The number of leaders that share the task's buffer.
        self._shares = 1

    def ask(self, leader: int, partitions: Collection[ArchivedPartition], leaders: int) -> None:
        """
        Request whatever partitions of a leader need, if it has answered the request before.

        Args:
            leader: Its node id.
            partitions: All of its partitions.
            leaders: The number of leaders that share the task's buffer.

        Raises:
            ShoalError: The leader cannot be reached.

        """
        throttle, self._shares = self._throttle, leaders
        throttle.look()
        wanted = [
            FetchFrom(each.source, each.fetch_offset, each.leader_epoch, topic_id=each.topic_id)
            for each in partitions
            if each.needs_data and each.source.topic not in throttle.paused
        ]
        if self.want(leader, wanted) and throttle.may_fetch():
            self.send(leader, throttle.fetch_bytes)

    def _open(self, leader: int) -> Fetcher:
        timing = self._settings.timing
        return Fetcher(
            self._source.connect(leader),
            buffer_bytes=max(_LEAST_BUFFER_BYTES, self._settings.fetch_buffer_bytes // self._shares),
            isolation_level=IsolationLevel.READ_COMMITTED,
            max_wait_ms=timing.fetch_max_wait_ms,
            timing=timing,
        )

    def receive(self, wakeup: Wakeup, timeout_s: float) -> Iterator[Answer]:
        """Wait for answers, and count their bytes; see :meth:`Fetchers.receive`."""
        for answer in super().receive(wakeup, timeout_s):
            if not isinstance(answer.fetched, ShoalError):
                self._throttle.spend(len(answer.fetched.record_set))
            yield answer
