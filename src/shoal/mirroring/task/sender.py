"""Send everything that partitions have queued, and let them react to each answer."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ...client.cluster import Cluster
from ...client.lot import Limits, Lot, Refused, Sent
from ...errors import Stopped
from ..control import WorkerControl
from ..model.copy_options import CopySettings
from .destination_leader import DestinationLeader
from .partition import PartitionCopy
from .refusals import Reaction, land_elsewhere, refuse
from .small_batches import SmallBatchesWatch

__all__ = ["Sender"]

#: The margin before ``producer.id.expiration.ms``: a quarter of it, and at least half an hour. This machine's
#: clock may be so much behind the brokers', which may forget an id at once when they restart.
_FORGETTING_MARGIN_PART, _LEAST_FORGETTING_MARGIN_MS = 4, 30 * 60 * 1000


def wall_clock_ms() -> float:
    """Return this machine's wall-clock time, which measures the age of records and may be wrong."""
    return time.time() * 1000


class Sender:
    """Sends the queued batches of partitions that share a destination leader."""

    def __init__(
        self,
        end: DestinationLeader,
        destination: Cluster,
        settings: CopySettings,
        control: WorkerControl,
        small_batches: SmallBatchesWatch,
    ) -> None:
        """
        Prepare to send.

        Args:
            end: Appends the batches.
            destination: The destination cluster, for names in messages.
            control: Holds the lease, which is checked before each system call that sends.
            small_batches: Looks at what is sent.

        """
        self._end = end
        self._destination = destination
        self._settings = settings
        self._control = control
        self._small_batches = small_batches
        expiration_ms = settings.producer_id_expiration_ms
        margin_ms = max(expiration_ms // _FORGETTING_MARGIN_PART, _LEAST_FORGETTING_MARGIN_MS)
        self._remembered_for_ms = max(0, expiration_ms - margin_ms)

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
                sent = self._end.append(lots, self._limits, gate)
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
        is_several = copy.sequence_is_offset and self._end.takes_several(copy.destination.topic)
        return copy.progress.to_send(copy.destination, copy.destination_topic_id, multi_batch=is_several)

    @property
    def _limits(self) -> Limits:
        return Limits(
            int(wall_clock_ms() - self._remembered_for_ms), max_in_flight=self._settings.max_in_flight
        )

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
            self._end.forget(copy.destination.topic)
