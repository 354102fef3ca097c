"""Lots of stamped batches for :func:`shoal.client.send.send`, its limits, topic names, and its result."""

from __future__ import annotations

import time
import uuid
from array import array
from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ..errors import ShoalError
from ..protocol.produce import MOST_IN_FLIGHT
from ..protocol.topic_ids import TOPIC_IDS_FROM
from ..records import ENTRY
from ..topic_partition import TopicPartition

__all__ = [
    "ACKS_ALL",
    "HAS_BOOT_TIME",
    "REFILL_AT",
    "Gate",
    "Later",
    "Limits",
    "Lot",
    "Refused",
    "Sent",
    "TopicListing",
    "is_open",
    "open_gate",
]

#: All in-sync replicas acknowledge a batch before its answer.
ACKS_ALL = -1

#: Two words. Nothing is sent once the clock of leases has reached the first: ns of CLOCK_BOOTTIME, where
#: there is one. Another thread may set it meanwhile, to 0 to stop. The second is for the native sender, which
#: keeps the time of the last response there; ``Connection.last_response_at`` returns it. The native sender
#: needs an ``array("Q")``.
Gate: TypeAlias = MutableSequence[int]

#: Whether the clock of leases is CLOCK_BOOTTIME, which the native sender reads.
HAS_BOOT_TIME = hasattr(time, "CLOCK_BOOTTIME")
_CLOCK = time.CLOCK_BOOTTIME if HAS_BOOT_TIME else time.CLOCK_MONOTONIC
_NEVER = 2**64 - 1

#: Several requests go out in one system call if so few are left that the broker could run out of work: with
#: small batches a system call costs more than their bytes.
REFILL_AT = 2


class Lot(NamedTuple):
    """
    Batches of a partition, stamped, in the order of their offsets.

    Attributes:
        partition: The partition at the destination.
        batches: The buffers that have them, one behind the other. Each batch lies in one buffer.
        entries: An :data:`~shoal.records.ENTRY` for each batch.
        base_offset: The offset at which the first has to land. If the mirror is the only writer, its sequence
            is the same.
        newest_ms: A timestamp that the leader's state of the producer has since the alignment. None if there
            is none, so that the first request is in flight alone. See :meth:`newest_after`.
        together_bytes: The most bytes of its batches in one request; 0 for one batch in each request. A
            broker that takes no several batches refuses more (KIP-712).
        topic_id: The topic's id. If all lots have one and the broker supports it, requests list topics by id.
        lands_later: Whether other programs may write to the partition: a batch has landed at a later offset,
            too, and those behind it are expected behind that.

    """

    partition: TopicPartition
    batches: Sequence[memoryview]
    entries: bytes
    base_offset: int
    newest_ms: int | None = None
    together_bytes: int = 0
    topic_id: uuid.UUID | None = None
    lands_later: bool = False

    def newest_after(self, landed: int) -> int | None:
        """Return the ``newest_ms`` of the partition's next lot if so many batches of this one have landed."""
        if not landed:
            return self.newest_ms
        newest_ms: int = ENTRY.unpack_from(self.entries, (landed - 1) * ENTRY.size)[2]
        return newest_ms if newest_ms >= 0 else None


class Limits(NamedTuple):
    """
    The limits of requests.

    Attributes:
        forgotten_up_to_ms: The leader may forget a producer whose last batch has no newer timestamp.
        request_bytes: A request of so many bytes of batches gets no further partition. Brokers refuse more
            than 100 MiB (socket.request.max.bytes).
        max_in_flight: The most requests in flight, 1 to 5.
        timeout_ms: The broker's limit for the acknowledgements of the in-sync replicas.
        acks: The acknowledgements that a batch needs.

    """

    forgotten_up_to_ms: int
    request_bytes: int = 8 * 1024 * 1024
    max_in_flight: int = MOST_IN_FLIGHT
    timeout_ms: int = 30_000
    acks: int = ACKS_ALL


class Refused(NamedTuple):
    """
    An answer that is not "no error, at the expected offset".

    Attributes:
        first: The first batch of the lot in the refused request.
        end: The batch after the last.
        error_code: The error code; 0 if the batches landed elsewhere.
        base_offset: The offset in the answer; -1 after most errors.
        message: The broker's message, if any.

    """

    first: int
    end: int
    error_code: int
    base_offset: int
    message: str | None


class Later(NamedTuple):
    """
    Batches that landed behind the offset that those before them leave to them.

    Attributes:
        place: The place of the lot.
        first: The first of the batches.
        base_offset: The offset at which it landed.

    """

    place: int
    first: int
    base_offset: int


class Sent(NamedTuple):
    """
    The result of :func:`~shoal.client.send.send`; nothing is in flight.

    Attributes:
        landed: The number of batches of each lot that landed at their offsets, from the first on.
        refused: The first refusal of each lot that had one, by the lot's place. Later batches of the lot may
            have been in flight; the log's end has their outcome.
        failure: The reason why the sender ended before all lots were landed or refused. The outcome of each
            batch that has not landed is unknown. :class:`~shoal.errors.Stopped` if the gate closed. The
            connection is closed, unless the gate closed between two requests.
        later: Where batches landed later, in their order; only of lots for which that is allowed.

    """

    landed: list[int]
    refused: dict[int, Refused]
    failure: ShoalError | None
    later: Sequence[Later] = ()


_Batches: TypeAlias = "list[tuple[int, Sequence[memoryview]]]"


@dataclass(frozen=True, slots=True)
class TopicListing:
    """
    The names or ids by which the requests of a connection list topics.

    Attributes:
        version: The version of the requests.
        ids: The topic's id of each partition; empty if requests list topics by name.
        names: The name of each of these ids.

    """

    version: int
    ids: Mapping[TopicPartition, uuid.UUID]
    names: Mapping[uuid.UUID, str]

    @classmethod
    def of(cls, newest_version: int, ids: Mapping[TopicPartition, uuid.UUID | None] | None) -> TopicListing:
        """
        List topics by id if the broker supports it and all ids are known.

        Args:
            newest_version: The newest version that client and broker support.
            ids: The topic's id, if known, of each partition that requests will list.

        """
        known = {partition: each for partition, each in (ids or {}).items() if each is not None}
        if newest_version < TOPIC_IDS_FROM or not ids or len(known) < len(ids):
            return cls(min(newest_version, TOPIC_IDS_FROM - 1), {}, {})
        return cls(newest_version, known, {each: partition.topic for partition, each in known.items()})

    def by_topic(
        self, batches: Mapping[TopicPartition, Sequence[memoryview]]
    ) -> Mapping[str, _Batches] | Mapping[uuid.UUID, _Batches]:
        """Group batches by the topic's name or id, as the request lists it."""
        # By the id's number: a UUID is hashed in Python, which takes as long as the rest of this.
        grouped: dict[object, tuple[Any, _Batches]] = {}
        for partition, views in batches.items():
            topic: Any = self.ids[partition] if self.ids else partition[0]
            listed = grouped.setdefault(topic.int if self.ids else topic, (topic, []))
            listed[1].append((partition[1], views))
        return dict(grouped.values())


def open_gate() -> Gate:
    """Return a gate that stays open, for a sender without a lease."""
    return array("Q", [_NEVER, 0])


def is_open(gate: Gate) -> bool:
    """Return whether something may still be sent."""
    return time.clock_gettime_ns(_CLOCK) < gate[0]
