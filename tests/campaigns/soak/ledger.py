"""The sent and the arrived records, one by one.

Every record has its topic, its partition and its number there. The numbers count all sent records from 0
without gaps, including those of aborted transactions.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from rig.judge import Order, Places, Verdict

__all__ = ["Arrival", "Fate", "Ledger", "read_value", "write_value"]


class Fate(IntEnum):
    """The result of sending a record to the source."""

    OPEN = 0
    COMMITTED = 1
    ABORTED = 2
    UNKNOWN = 3
    """A commit without a response: only the source's log shows the result."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A record at the destination; times are nanoseconds since 1970."""

    sent_ns: int
    arrived_ns: int

    @property
    def lag_ms(self) -> float:
        return (self.arrived_ns - self.sent_ns) / 1e6


@dataclass
class _Partition:
    """Fates and arrivals of a partition's records, by sequence number."""

    sent_ns: array[int] = field(default_factory=lambda: array("q"))
    fates: bytearray = field(default_factory=bytearray)
    arrived_ns: array[int] = field(default_factory=lambda: array("q"))
    places: Places = field(default_factory=Places)
    settled: int = 0
    wrong: Verdict = field(default_factory=Verdict)

    def settle(self) -> int:
        """Advance to the oldest record that can still arrive; return its number."""
        end = len(self.fates)
        while self.settled < end and (
            self.arrived_ns[self.settled] or self.fates[self.settled] in (Fate.ABORTED, Fate.UNKNOWN)
        ):
            self.settled += 1
        return self.settled


class Ledger:
    """The records of all partitions, updated by the threads of the producers and of the consumer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._never_sent = 0

    def open(self, topic: str, partition: int) -> int:
        """Return the number of the next record to send."""
        with self._lock:
            kept = self._partitions.setdefault((topic, partition), _Partition())
            kept.sent_ns.append(time.time_ns())
            kept.fates.append(Fate.OPEN)
            kept.arrived_ns.append(0)
            return len(kept.fates) - 1

    def close(self, topic: str, partition: int, number: int, fate: Fate) -> None:
        """Record the fate of a record."""
        with self._lock:
            self._partitions[topic, partition].fates[number] = fate

    def visible_from_now(self, records: Iterable[tuple[str, int, int]]) -> None:
        """Start the lag of these records now: a transaction's records are readable once it is committed."""
        now_ns = time.time_ns()
        with self._lock:
            for topic, partition, number in records:
                self._partitions[topic, partition].sent_ns[number] = now_ns

    def arrive(self, topic: str, partition: int, number: int) -> None:
        """Record an arrival at the destination, now, and what is wrong with it."""
        now_ns = time.time_ns()
        with self._lock:
            kept = self._partitions.get((topic, partition))
            if kept is None or number >= len(kept.fates):
                self._never_sent += 1
                return
            if kept.fates[number] == Fate.ABORTED:
                kept.wrong += Verdict(foreign=1)
            else:
                match kept.places.arrive(number):
                    case Order.AGAIN:
                        kept.wrong += Verdict(twice=1)
                    case Order.LATE:
                        kept.wrong += Verdict(late=1)
            kept.arrived_ns[number] = kept.arrived_ns[number] or now_ns

    def stray(self) -> None:
        """Record an arrival of an unknown record, or in another partition than it was sent to."""
        with self._lock:
            self._never_sent += 1

    def first_arrival_ns(self, topic: str, partitions: Iterable[int]) -> int | None:
        """Return the time of the first arrival in some partitions; None if there is none."""
        with self._lock:
            found = [
                min(filter(None, kept.arrived_ns), default=None)
                for kept in (self._partitions.get((topic, partition)) for partition in partitions)
                if kept is not None
            ]
        return min((each for each in found if each is not None), default=None)

    def missing(self) -> dict[tuple[str, int], int]:
        """Return the oldest record that has not arrived, for each partition that lacks one."""
        with self._lock:
            return {
                partition: kept.settle()
                for partition, kept in self._partitions.items()
                if kept.settle() < len(kept.fates)
            }

    def oldest_missing_s(self) -> float:
        """Return the age of the oldest record that has not arrived; 0 if there is none."""
        now_ns = time.time_ns()
        with self._lock:
            oldest = [
                kept.sent_ns[kept.settled]
                for kept in self._partitions.values()
                if kept.settle() < len(kept.fates)
            ]
        return (now_ns - min(oldest)) / 1e9 if oldest else 0.0

    def verdict(self) -> Verdict:
        """Judge, after the last record was sent and all had time to arrive."""
        with self._lock:
            found = Verdict(foreign=self._never_sent)
            for kept in self._partitions.values():
                arrived = len(kept.fates) - kept.arrived_ns.count(0)
                missing = sum(
                    fate == Fate.COMMITTED and not arrived_ns
                    for fate, arrived_ns in zip(kept.fates, kept.arrived_ns, strict=True)
                )
                found += kept.wrong + Verdict(kept.fates.count(Fate.COMMITTED), arrived, missing)
            return found

    def count(self) -> tuple[int, int]:
        """Return how many records were sent and how many have arrived so far."""
        with self._lock:
            every = list(self._partitions.values())
            sent = sum(len(kept.fates) for kept in every)
            return sent, sent - sum(kept.arrived_ns.count(0) for kept in every)

    def arrivals(self) -> Iterator[Arrival]:
        """Yield all arrivals, by partition. Do not call it while records arrive."""
        for kept in self._partitions.values():
            for sent_ns, arrived_ns in zip(kept.sent_ns, kept.arrived_ns, strict=True):
                if arrived_ns:
                    yield Arrival(sent_ns, arrived_ns)


def write_value(topic: str, partition: int, number: int, padding: bytes) -> bytes:
    """Return a record's value, which `read_value` parses."""
    return f"{topic}/{partition}/{number}/".encode() + padding


def read_value(value: bytes | None) -> tuple[str, int, int]:
    """Return topic, partition and number of a value.

    Raises:
        ValueError: The value is not one of `write_value`.
    """
    topic, partition, number, _ = (value or b"").split(b"/", 3)
    return topic.decode(), int(partition), int(number)
