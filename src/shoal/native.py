"""
The choice between the native module and Python, made once for each process.

``shoal._native`` (the directory ``native``, Rust) has the innermost loops once more,
without the interpreter's lock. Python's versions are the reference: the tests run
both over the same cases. The wheels for Linux have the module, and an installation
from sources compiles it if there is cargo. shoal takes it if Python can import it,
unless ``SHOAL_PURE_PYTHON=1`` is set.
"""

from __future__ import annotations

import importlib
import os
import warnings
from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias, cast

__all__ = ["NATIVE", "LotRow", "Native", "RefusedRow"]

#: The version of the signatures below; a module with another one is not used.
_INTERFACE = 12


class LotRow(NamedTuple):
    """
    A lot to send: a partition's stamped batches, in the order of their offsets.

    Attributes:
        topic: The place of its topic in the list of topics.
        batches: The buffers that have them: all batches are these bytes, one behind the other.
        entries: A :data:`shoal.records.ENTRY` for each batch.
        base_offset: The offset at which the first has to land.
        newest_ms: A timestamp in the destination's producer state; None until something has landed.
        together_bytes: The most bytes of its batches in one request; 0 for one batch.
        lands_later: Whether batches may also land at a later offset.

    """

    topic: int
    partition: int
    batches: Sequence[memoryview]
    entries: bytes
    base_offset: int
    newest_ms: int | None
    together_bytes: int
    lands_later: bool


#: A lot's place, and the fields of :class:`shoal.client.lot.Refused`.
RefusedRow: TypeAlias = tuple[int, int, int, int, int, str | None]


class Native(Protocol):
    """The functions of ``shoal._native``; each names its reference in Python."""

    def stamp_plain(
        self,
        record_set: memoryview,
        position: int,
        *,
        first_offset: int,
        end_offset: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        transactional: bool,
        append_time: bool,
    ) -> tuple[int, int, bytes]:
        """See :func:`shoal.records.stamp_plain`."""

    def fingerprint_plain(
        self,
        record_set: memoryview,
        position: int,
        *,
        first_offset: int,
        end_offset: int,
        transactional: bool,
    ) -> bytes:
        """See :func:`shoal.records.fingerprint_plain`."""

    def join_plain(
        self,
        record_set: memoryview,
        position: int,
        *,
        first_offset: int,
        end_offset: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        transactional: bool,
        append_time: bool,
        below_bytes: int,
        to: memoryview,
        decompress: Callable[[int, bytes, int], bytes | bytearray | memoryview | None],
    ) -> tuple[int, int, bytes]:
        """
        See :func:`shoal.records.join_plain`.

        Args:
            decompress: Gets the id of a codec, records, and the most bytes that may come out; returns None
                for a batch that is to be left.

        """

    def send(
        self,
        descriptor: int,
        tls: object,
        topics: Sequence[bytes],
        lots: Sequence[LotRow],
        *,
        version: int,
        client_id: bytes,
        acks: int,
        timeout_ms: int,
        correlation_id: int,
        max_in_flight: int,
        refill_at: int,
        request_bytes: int,
        forgotten_up_to_ms: int,
        max_answer_bytes: int,
        wait_ms: int,
        gate: array[int],
    ) -> tuple[str, object, list[int], list[RefusedRow], list[tuple[int, int, int]], int]:
        """
        Send lots, and compare the answers; see :func:`shoal.client.send.send`.

        ``shoal.client.send_in_python`` is the reference in Python. Signal handlers run while the sender
        waits, and their exceptions leave through this call.

        Args:
            descriptor: The descriptor of a connected socket, with nothing in flight or unread.
            tls: The ``ssl.SSLSocket`` itself, which waits for nothing; None without TLS.
            topics: Each as requests list it: its name as a compact string, or its id from v13 on.
            lots: At most one of each partition.
            version: The version of Produce, from 9 on.
            client_id: The client id in the header of the requests.
            acks: See :class:`shoal.client.lot.Limits`.
            timeout_ms: The broker's limit for acknowledgements.
            correlation_id: The first request's; the others have the following ids.
            max_in_flight: At most 5 requests.
            refill_at: Send more once so few requests are in flight.
            request_bytes: Add no further partition to a request of this size.
            forgotten_up_to_ms: The leader may forget a producer whose last batch has no newer timestamp.
            max_answer_bytes: The size of the largest answer.
            wait_ms: The limit of each wait for the broker.
            gate: See :data:`shoal.client.lot.Gate`.

        Returns:
            1. The end: ``done``, or ``gate closed``. After all others the caller closes the connection:
               ``cut`` if the gate closed within a request, ``wrong id``, ``malformed``, ``surplus`` for bytes
               without a request, ``too large``, ``closed``, ``timed out``, ``failed``.
            2. The size that was too large, or the errno or OSError of a failure, or None.
            3. The number of batches of each lot that have landed.
            4. The first refusal of each lot that had one.
            5. The batches that landed later: the lot's place, the first batch, and its offset.
            6. The number of correlation ids that were used.

        Raises:
            ValueError: An argument would break a rule above.

        """


def _load() -> Native | None:
    if os.environ.get("SHOAL_PURE_PYTHON") == "1":
        return None
    try:
        module = importlib.import_module("shoal._native")
    except ModuleNotFoundError:
        return None
    except ImportError as error:
        warnings.warn(f"shoal's native module cannot be loaded, so shoal uses Python: {error}", stacklevel=2)
        return None
    if getattr(module, "INTERFACE", None) != _INTERFACE:
        warnings.warn(
            "shoal's native module is of other sources, so shoal uses Python. "
            "Run make native, or install shoal again",
            stacklevel=2,
        )
        return None
    return cast(Native, module)


#: The native module; None if shoal uses Python.
NATIVE = _load()
