"""
Conversions between batches and messages of magic 0 and 1: by turns, and counted.

As many conversions run at a time as there are cores. A conversion takes two to three times the memory of the
expanded batch, and the system can interrupt its thread in the middle. Without turns, the batches of all
clients would be in memory at once. A conversion never waits for a socket, so that turns come soon.
:mod:`.budget` decides which client is next.

Turns and counts are of the process: if it has several gateways, they share them.
Kafka's names for the counts are ``FetchMessageConversionsPerSec`` and ``ProduceMessageConversionsPerSec``,
``MessageConversionsTimeMs``, ``TemporaryMemoryBytes``.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..errors import NotConvertible
from ..net.budget import Budget
from ..numbers import counter, summed
from ..records.down_conversion import ConvertedCounts, DownConversion

__all__ = ["CORES", "LARGE", "Conversions", "ConvertedApi", "begin", "chunks", "held_bytes", "totals", "turn"]

#: Turns of this process to convert or to decode, and to decode a large message.
CORES, LARGE = Budget(os.cpu_count() or 1), Budget(1)


class ConvertedApi(Enum):
    """The API whose records are converted: Fetch for old consumers, Produce for old producers."""

    FETCH = "fetch"
    PRODUCE = "produce"


@dataclass(frozen=True, slots=True)
class Conversions:
    """The conversions of one API since the process started; a batch counts each time it is converted."""

    batches: int = counter("shoal_conversion_batches_total", "Batches that were converted.")
    messages: int = counter("shoal_conversion_messages_total", "Records in these batches.")
    source_bytes: int = counter(
        "shoal_conversion_source_bytes_total", "Bytes of these batches before they were converted."
    )
    converted_bytes: int = counter(
        "shoal_conversion_bytes_total", "Bytes of these batches after they were converted."
    )
    cpu_s: float = counter("shoal_conversion_cpu_seconds_total", "CPU seconds that conversions took.")
    refused: int = counter("shoal_conversion_refused_total", "Record sets that could not be converted.")


_lock = threading.Lock()
_totals = dict.fromkeys(ConvertedApi, Conversions())
_under_way: weakref.WeakSet[DownConversion] = weakref.WeakSet()


def totals() -> Mapping[ConvertedApi, Conversions]:
    """Return the current totals by API."""
    with _lock:
        return dict(_totals)


def held_bytes() -> int:
    """Return the number of converted bytes that wait for the sockets of clients."""
    with _lock:
        return sum(each.held_bytes for each in _under_way)


@contextmanager
def turn(api: ConvertedApi, network: str) -> Iterator[list[ConvertedCounts]]:
    """Wait for a turn for this client, and count the conversions in it, which the caller adds to the list."""
    done = [ConvertedCounts()]
    refused = 0
    with CORES.share(network):
        before_s = time.thread_time()
        try:
            yield done
        except NotConvertible:
            refused = 1
            raise
        finally:
            counts = ConvertedCounts(*map(sum, zip(*done, strict=True)))
            found = Conversions(*counts, time.thread_time() - before_s, refused)
            with _lock:
                _totals[api] = Conversions(**summed(Conversions, [_totals[api], found]))


def begin(network: str, *args: Any, **kwargs: Any) -> DownConversion:
    """
    Begin a :class:`~..records.down_conversion.DownConversion`, in a turn: its first batch is converted.

    Raises:
        NotConvertible: As the conversion does.

    """
    with turn(ConvertedApi.FETCH, network) as done:
        conversion = DownConversion(*args, **kwargs, counts=done)
    with _lock:
        _under_way.add(conversion)
    return conversion


def chunks(network: str, conversion: DownConversion) -> Iterator[bytearray]:
    """Yield the chunks of a conversion, each converted in a turn of its own."""
    converting = conversion.chunks()
    while True:
        with turn(ConvertedApi.FETCH, network) as conversion.counts:
            chunk = next(converting, None)
        if chunk is None:
            return
        yield chunk
        del chunk  # else both this one and the next would be in memory
