"""
The destination's end of a pair: it sends all that partitions have queued, and they react to each answer.

A leader may take several batches of a partition in a request (``client/multi_batch.py``). On a marked
connection, the sequence of each partition is its offset.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Collection, Sequence

from ...client.cluster import Cluster
from ...client.connection import Connection, version_or_close
from ...client.lot import Limits, Lot, Refused, Sent, TopicListing
from ...client.multi_batch import ProduceConnection
from ...client.send import send
from ...errors import Stopped
from ...protocol.apis import ApiKey
from ...topic_partition import TopicPartition
from ..control import WorkerControl
from ..model.copy_options import CopySettings
from ..model.reports import TaskReport
from .partition import PartitionCopy
from .refusals import Reaction, land_elsewhere, refuse
from .small_batches import SmallBatchesWatch

__all__ = ["Sender"]

#: The margin before ``producer.id.expiration.ms``: a quarter of it, and at least half an hour. This machine's
#: clock may be so much behind the brokers', which may forget an id at once when they restart.
_FORGETTING_MARGIN_PART, _LEAST_FORGETTING_MARGIN_MS = 4, 30 * 60 * 1000


class Sender:
    """
    Sends the queued batches of partitions that share a destination leader.

    Attributes:
        lists_ids: Whether requests list topics by id, so that the broker refuses a topic that was created
            again.

    """

    def __init__(
        self,
        destination: Cluster,
        node_id: int,
        settings: CopySettings,
        control: WorkerControl,
        report: Callable[[TaskReport], object],
    ) -> None:
        """
        Open the first connection.

        Args:
            destination: The destination cluster.
            node_id: The leader.
            settings: The mirror's settings.
            control: Holds the lease, which is checked before each system call that sends.
            report: Receives the finding that requests limit the mirror.

        """
        self._destination = destination
        self._node_id = node_id
        self._settings = settings
        self._control = control
        is_joining = settings.rebatch is not None
        for_s = math.inf if is_joining else settings.timing.small_batches_s
        self._small_batches = SmallBatchesWatch(for_s, report)
        expiration_ms = settings.producer_id_expiration_ms
        margin_ms = max(expiration_ms // _FORGETTING_MARGIN_PART, _LEAST_FORGETTING_MARGIN_MS)
        self._remembered_for_ms = max(0, expiration_ms - margin_ms)
        self._can_be_marked = True
        self.lists_ids = False
        self._connection = ProduceConnection(self._connect, destination.config.client_id)
        self._version = version_or_close(self._connection.current, ApiKey.PRODUCE)

    def _connect(self, client_id: str | None) -> Connection:
        # A produce request must not outlive its sender: aborted on close.
        return self._destination.connect(self._node_id, abort_on_close=True, client_id=client_id)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def admit(self, copies: Collection[PartitionCopy]) -> None:
        """
        Begin with new partitions.

        Args:
            copies: All of them. If some sequence is not its offset, the connection is marked no more.

        """
        self._can_be_marked = all(copy.sequence_is_offset for copy in copies)
        if not self._can_be_marked:
            self._connection.unmark()
        self.lists_ids = bool(TopicListing.of(self._version, _ids_of(copies)).ids)

    # Several batches in a request

    def query(self, bring_several: Collection[PartitionCopy], copies: Collection[PartitionCopy]) -> None:
        """
        Query the leader about topics; if it takes several for any, continue on a marked connection.

        Args:
            bring_several: Partitions with several batches. Nothing is in flight.
            copies: All partitions, whose topics are queried at once: each query may take a connection.

        """
        if not self._can_be_marked or self._connection.has_asked(
            each.destination.topic for each in bring_several
        ):
            return
        partitions = [each.destination for each in [*bring_several, *copies]]
        self._connection.ask(partitions, _ids_of(copies))

    # Sending

    def send_all(self, copies: Sequence[PartitionCopy]) -> None:
        """
        Send everything that partitions have queued, and wait until nothing is in flight.

        Afterwards each partition has nothing queued, or has to be aligned.

        Raises:
            Stopped, BrokerError: The lease is over.
            ShoalError: The connection cannot be used any more.

        """
        copies = [copy for copy in copies if copy.progress.has_queued]
        if not copies:
            return
        with self._control.gate() as gate:
            try:
                lots = [self._lot_of(copy) for copy in copies]
                began_at = time.monotonic()
                sent = send(self._connection.current, lots, self._limits, gate)
                self._small_batches.see(lots, time.monotonic() - began_at)
                self._land(copies, sent)
            finally:
                for copy in copies:
                    if copy.progress.has_queued:
                        copy.lose_track()  # the log's end has the outcome of what was sent
        if isinstance(sent.failure, Stopped):
            self._control.check_lease()  # it knows whether the lease can be renewed
        elif sent.failure is not None:
            raise sent.failure

    def _lot_of(self, copy: PartitionCopy) -> Lot:
        is_several = copy.sequence_is_offset and self._connection.takes_several(copy.destination.topic)
        return copy.progress.to_send(copy.destination, copy.destination_topic_id, multi_batch=is_several)

    @property
    def _limits(self) -> Limits:
        now_ms = self._settings.timing.clock.wall() * 1000
        return Limits(int(now_ms - self._remembered_for_ms), max_in_flight=self._settings.max_in_flight)

    def _land(self, copies: Sequence[PartitionCopy], sent: Sent) -> None:
        done = [0] * len(copies)
        for place, first, base_offset in sent.later:
            copy = copies[place]
            copy.land(first - done[place])
            copy.progress.displace(base_offset)
            done[place] = first
        for copy, before, landed in zip(copies, done, sent.landed, strict=True):
            copy.land(landed - before)
        for place, refused in sent.refused.items():
            self._react(copies[place], refused)

    def _react(self, copy: PartitionCopy, refused: Refused) -> None:
        if not refused.error_code:
            land_elsewhere(copy, refused.base_offset, self._destination)
        elif refuse(copy, refused, self._destination, self._settings) is Reaction.SEND_LESS:
            # The broker may have been restarted without its agent.
            self._connection.forget(copy.destination.topic)


def _ids_of(copies: Collection[PartitionCopy]) -> dict[TopicPartition, uuid.UUID | None]:
    return {copy.destination: copy.destination_topic_id for copy in copies}
