"""
Send the stamped batches of many partitions to their leader, and return what landed.

The rules of exactly once that the sender keeps (docs/architecture.md, "The rules"):

- A request lists a partition once. A broker keeps the last of two, drops the other and reports success.
- At most 5 requests are in flight: a broker remembers so many batches of a producer.
- The first request of a partition after an alignment is in flight alone until it has landed. So is each
  request while the destination may have forgotten the producer: it would take the next batch even if the
  one before failed.
- A batch has landed if its answer has no error, and the offset that the batches before it leave to it; or a
  later one, if other programs may write to the partition.
- After any other answer nothing more of that partition is sent or counted. The other partitions go on.
- The gate is read before each system call that sends. If it is closed, nothing more is sent.

``native/src/sender.rs`` keeps the same rules without the interpreter's lock, and ``send_in_python.py`` is its
reference.
"""

from __future__ import annotations

import os
import ssl
from array import array
from collections.abc import Sequence

from ..errors import Disconnected, ProtocolError, ShoalError, Stopped
from ..native import NATIVE, LotRow, Native
from ..protocol.apis import ApiKey
from ..protocol.produce import FLEXIBLE_FROM, MOST_IN_FLIGHT
from ..protocol.topic_ids import write_topic
from .connection import Connection
from .lot import HAS_BOOT_TIME, REFILL_AT, Gate, Later, Limits, Lot, Refused, Sent, TopicListing
from .send_in_python import send_in_python

__all__ = ["failure_of", "send"]


def send(connection: Connection, lots: Sequence[Lot], limits: Limits, gate: Gate) -> Sent:
    """
    Send lots, and wait until nothing is in flight.

    Args:
        connection: A connection to the leader of all partitions, with nothing in flight. A login that ends
            soon is renewed first (KIP-368).
        lots: At most one of each partition. Their buffers must not change until this returns.
        limits: The limits of requests.
        gate: Closed by another thread, or by time.

    Raises:
        ValueError: A lot, a limit or a request in flight would break a rule of this module.
        ProtocolError: The broker supports no version of Produce that shoal does.

    """
    listing = TopicListing.of(
        connection.version(ApiKey.PRODUCE), {lot.partition: lot.topic_id for lot in lots}
    )
    _check(listing, lots, limits)
    try:
        _make_ready(connection)
    except ShoalError as error:
        return Sent([0] * len(lots), {}, error)
    try:
        can_be_native = HAS_BOOT_TIME and listing.version >= FLEXIBLE_FROM
        if NATIVE is None or not can_be_native or not isinstance(gate, array):
            end, landed, refused, later = send_in_python(connection, listing, lots, limits, gate)
            failure = end if isinstance(end, ShoalError | None) else failure_of(connection, end)
            return Sent(landed, refused, failure, later)
        return _send_natively(NATIVE, connection, listing, lots, limits, gate)
    except BaseException:
        # Ctrl-C while the sender waits: the outcome of the requests in flight is unknown.
        connection.close()
        raise


def _check(listing: TopicListing, lots: Sequence[Lot], limits: Limits) -> None:
    if len({lot.partition for lot in lots}) < len(lots):
        raise ValueError("a partition has two lots")
    if listing.ids and len(listing.names) < len({lot.partition.topic for lot in lots}):
        raise ValueError("two topics have one id")  # a request would list their partitions twice
    if not 1 <= limits.max_in_flight <= MOST_IN_FLIGHT:
        raise ValueError(f"{limits.max_in_flight} requests in flight are not 1 to {MOST_IN_FLIGHT}")
    if limits.request_bytes < 1:
        raise ValueError(f"requests of {limits.request_bytes} bytes would never get a batch")


def _make_ready(connection: Connection) -> None:
    if connection.closed:
        raise Disconnected(str(connection.address), "the connection is closed")
    if connection.in_flight:
        raise ValueError(f"{connection.in_flight} requests are in flight")
    connection.renew_login_in_time()
    if connection.is_readable:
        raise failure_of(connection, "surplus")


def _send_natively(
    native: Native,
    connection: Connection,
    listing: TopicListing,
    lots: Sequence[Lot],
    limits: Limits,
    gate: array[int],
) -> Sent:
    topics: dict[bytes, int] = {}
    rows = []
    for lot in lots:
        topic = write_topic(listing.ids.get(lot.partition, lot.partition.topic), compact=True)
        place = topics.setdefault(topic, len(topics))
        rows.append(LotRow(place, lot.partition.partition, *lot[1:6], lot.lands_later))
    largest = connection.sizes.largest(ApiKey.PRODUCE)
    with connection.lend(gate) as lent:
        end, detail, landed, refused, later, requests = native.send(
            lent.fileno(),
            lent if isinstance(lent, ssl.SSLSocket) else None,
            list(topics),
            rows,
            version=listing.version,
            client_id=connection.client_id.encode(),
            acks=limits.acks,
            timeout_ms=limits.timeout_ms,
            correlation_id=connection.skip_correlation_ids(0),
            max_in_flight=limits.max_in_flight,
            refill_at=REFILL_AT,
            request_bytes=limits.request_bytes,
            forgotten_up_to_ms=limits.forgotten_up_to_ms,
            max_answer_bytes=largest,
            wait_ms=int(connection.timeout_s * 1000),
            gate=gate,
        )
    connection.skip_correlation_ids(requests)
    failure = None if end == "done" else failure_of(connection, end, detail, largest)
    return Sent(
        landed, {row[0]: Refused(*row[1:]) for row in refused}, failure, tuple(Later(*row) for row in later)
    )


def failure_of(connection: Connection, end: str, detail: object = None, largest: int = 0) -> ShoalError:
    """
    Return the error that a sender ended with, and close the connection if it cannot be used any more.

    Args:
        connection: The connection.
        end: See :meth:`shoal.native.Native.send`.
        detail: See there.
        largest: The largest size of an answer in bytes.

    """
    match end:
        case "gate closed":
            return Stopped("the lease ended before all batches were sent")
        case "closed":
            return connection.fail(ConnectionResetError("the broker closed the connection"))
        case "timed out":
            return connection.fail(BlockingIOError("no answer"))
        case "failed":
            error = detail if isinstance(detail, OSError) else OSError(detail, os.strerror(int(str(detail))))
            return connection.fail(error)
    connection.close()
    if end == "cut":
        return Stopped("the lease ended within a request")
    if end == "too large":
        return connection.sizes.too_large(connection.address, ApiKey.PRODUCE.name, int(str(detail)), largest)
    fault = {
        "wrong id": "a response to another request than PRODUCE",
        "surplus": "bytes without a request",
        "malformed": "a response that does not fit its PRODUCE request",
    }[end]
    return ProtocolError(f"{connection.address} sent {fault}")
