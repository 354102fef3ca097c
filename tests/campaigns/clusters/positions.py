"""The positions that a mirror has committed, as the source's coordinator has them."""

from __future__ import annotations

from rig.wait import wait_until
from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, fetch_offsets
from shoal.client.config import ClientConfig
from shoal.errors import ShoalError
from shoal.net.address import parse_bootstrap
from shoal.topic_partition import TopicPartition

__all__ = ["CommittedPositions"]

_REQUEST_TIMEOUT_MS = 5_000


class CommittedPositions:
    """Reads a group's offsets; any thread may read.

    confluent-kafka reads metadata beyond their end, and so cannot read the positions.
    """

    def __init__(self, bootstrap: str, group: str) -> None:
        addresses = tuple(parse_bootstrap(bootstrap))
        self._config = ClientConfig("source", addresses, request_timeout_ms=_REQUEST_TIMEOUT_MS)
        self._group = group

    def read(self) -> dict[TopicPartition, Committed]:
        """Return the committed offset of each partition that has one.

        Raises:
            ShoalError: The coordinator does not answer now.
        """
        with Cluster(self._config) as cluster:
            return fetch_offsets(cluster, self._group, None)

    def await_read(self) -> dict[TopicPartition, Committed]:
        """Return the same as soon as the coordinator answers."""
        read: list[dict[TopicPartition, Committed]] = []

        def is_read() -> bool:
            try:
                read.append(self.read())
            except ShoalError:
                return False
            return True

        wait_until(is_read, f"the offsets of {self._group}", timeout_s=60)
        return read[0]
