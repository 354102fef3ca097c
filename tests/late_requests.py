"""Late requests of a killed process: the test chooses when they arrive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.client.coordinator import MemberId
from shoal.client.produce import ProduceConnection
from shoal.mirroring.task import worker
from shoal.protocol.produce import ProduceOutcome
from shoal.topic_partition import TopicPartition
from tests.two_brokers import Killed, Watched

__all__ = ["Doomed", "Requests", "arrive"]


class Requests:
    """The batches that workers sent, one in each request, as raw bytes.

    Attributes:
        sent: A copy of each.
        killed: Whether the doomed worker was killed.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sender: ModuleType = worker) -> None:
        """Record the requests of every worker of this process, or of another sending module."""
        self.sent: list[bytes] = []
        self.killed = False
        self._left: int | None = None
        requests = self

        class Watched(ProduceConnection):
            def prepare(self, batches: Mapping[TopicPartition, Sequence[memoryview]]) -> None:
                requests._take(batches)
                super().prepare(batches)

            def pump(self, *args: Any, **options: Any) -> None:
                """Send request by request."""

        monkeypatch.setattr(sender, "ProduceConnection", Watched)

    def die_after(self, requests: int) -> None:
        """Kill a worker after it has sent this many requests, and one more that never leaves."""
        self._left = requests
        self.killed = False

    def _take(self, batches: Mapping[TopicPartition, Sequence[memoryview]]) -> None:
        self.sent.extend(bytes(view) for views in batches.values() for view in views)
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self._left = None
                self.killed = True
                raise Killed


class Doomed(Watched):
    """The control of a task that is killed in the middle of sending: it commits nothing any more."""

    def __init__(self, requests: Requests) -> None:
        super().__init__()
        self._requests = requests

    def membership(self) -> MemberId:
        if self._requests.killed:
            raise Killed
        return super().membership()


def arrive(
    destination: ClientConfig, requests: Sequence[bytes], topic: str = "topic"
) -> list[ProduceOutcome]:
    """Deliver requests, one after the other, on a separate connection; return the responses."""
    partition = TopicPartition(topic, 0)
    with Cluster(destination) as cluster:
        cluster.refresh({topic})
        producer = ProduceConnection(cluster.connect(cluster.partition(partition).leader), timeout_ms=10_000)
        try:
            outcomes = []
            for request in requests:
                producer.send({partition: (memoryview(bytearray(request)),)})
                outcomes.append(producer.receive()[partition])
            return outcomes
        finally:
            producer.close()
