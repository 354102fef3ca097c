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
from ..records.down_conversion import ConvertedCounts, DownConversion
from .budget import Budget

__all__ = [
    "CORES",
    "ConversionTotals",
    "ConvertedApi",
    "begin",
    "chunks",
    "held_bytes",
    "totals",
    "turn",
]

#: Turns of this process to convert or to decode.
CORES = Budget(os.cpu_count() or 1)


_NONE = ConvertedCounts()


class ConvertedApi(Enum):
    """The API whose records are converted: Fetch for old consumers, Produce for old producers."""

    FETCH = "fetch"
    PRODUCE = "produce"


@dataclass(frozen=True, slots=True)
class ConversionTotals:
    """
    Conversions of one API since the process started.

    Attributes:
        counts: The converted batches, records and bytes; a batch counts each time it is converted.
        cpu_s: CPU seconds of the converting threads.
        refused: Record sets that could not be converted.

    """

    counts: ConvertedCounts = _NONE
    cpu_s: float = 0.0
    refused: int = 0


_lock = threading.Lock()
_totals = dict.fromkeys(ConvertedApi, ConversionTotals())
_under_way: weakref.WeakSet[DownConversion] = weakref.WeakSet()


def totals() -> Mapping[ConvertedApi, ConversionTotals]:
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
    done: list[ConvertedCounts] = []
    refused = 0
    with CORES.share(network):
        before_s = time.thread_time()
        try:
            yield done
        except NotConvertible:
            refused = 1
            raise
        finally:
            cpu_s = time.thread_time() - before_s
            with _lock:
                total = _totals[api]
                _totals[api] = ConversionTotals(
                    total.counts.plus(done), total.cpu_s + cpu_s, total.refused + refused
                )


def begin(network: str, *args: Any, **kwargs: Any) -> DownConversion:
    """
    Begin a :class:`~..records.down_conversion.DownConversion`, in a turn: its first batch is converted.

    Raises:
        NotConvertible: As the conversion does.

    """
    with turn(ConvertedApi.FETCH, network) as done:
        conversion = DownConversion(*args, **kwargs)
        done += _taken(conversion)
    with _lock:
        _under_way.add(conversion)
    return conversion


def chunks(network: str, conversion: DownConversion) -> Iterator[bytearray]:
    """Yield the chunks of a conversion, each converted in a turn of its own."""
    converting = conversion.chunks()
    while True:
        with turn(ConvertedApi.FETCH, network) as done:
            chunk = next(converting, None)
            done += _taken(conversion)
        if chunk is None:
            return
        yield chunk
        del chunk  # else both this one and the next would be in memory


def _taken(conversion: DownConversion) -> list[ConvertedCounts]:
    done, conversion.counts = conversion.counts, _NONE
    return [done]
