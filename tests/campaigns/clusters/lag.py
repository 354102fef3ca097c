"""How long after its producer each record arrives at the destination, during events and outside them."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self

from confluent_kafka import Consumer, TopicPartition

from bench.latency import Percentiles

__all__ = ["LAG_HEAD", "Arrival", "Arrivals", "Window", "lag_rows"]

#: The head of `lag_rows`.
LAG_HEAD = ("lag in ms", "records", "p50", "p90", "p99", "p99.9", "longest")

#: Time after an event that still counts as part of it: brokers are in sync again, and a mirror has started.
_SETTLES_S = 15.0

_POLL_S = 0.1


class Arrival(NamedTuple):
    """A record at the destination; times are seconds since 1970."""

    sent_s: float
    arrived_s: float


class Window(NamedTuple):
    """An event, from its beginning to its end; times are seconds since 1970."""

    event: str
    began_s: float
    ended_s: float

    def touches(self, arrival: Arrival) -> bool:
        """Whether a record was on its way during the event."""
        return arrival.sent_s <= self.ended_s + _SETTLES_S and arrival.arrived_s >= self.began_s


class Arrivals:
    """A thread that reads topics from their beginning, in no group: its rebalances would look like lag.

    Attributes:
        all: All arrivals.
    """

    def __init__(self, bootstrap: str, partitions: Mapping[str, int]) -> None:
        """Prepare.

        Args:
            partitions: The number of partitions of each topic; may grow while this reads.
        """
        self.all: list[Arrival] = []
        self._partitions = partitions
        self._read: set[tuple[str, int]] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="arrivals")
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "arrivals",  # required by librdkafka, never joined
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.error.backoff.ms": 20,
                "topic.metadata.refresh.interval.ms": 500,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,  # of brokers that are down
            }
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def _follow(self) -> None:
        while not self._over.is_set():
            there = {(topic, n) for topic, count in list(self._partitions.items()) for n in range(count)}
            for topic, number in there - self._read:
                self._consumer.incremental_assign([TopicPartition(topic, number, 0)])
            self._read = there
            message = self._consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                self.all.append(Arrival(message.timestamp()[1] / 1000, time.time()))


def lag_rows(arrivals: Sequence[Arrival], windows: Sequence[Window]) -> list[tuple[str, ...]]:
    """Return rows of milliseconds: of all arrivals, of those outside events, and of each kind of event."""
    by_event: dict[str, list[Window]] = defaultdict(list)
    for window in sorted(windows):
        by_event[window.event].append(window)
    undisturbed = [each for each in arrivals if not any(window.touches(each) for window in windows)]
    rows = [_row("whole run", arrivals), _row("outside events", undisturbed)]
    return rows + [
        _row(event, [each for each in arrivals if any(window.touches(each) for window in of_event)])
        for event, of_event in by_event.items()
    ]


def _row(name: str, arrivals: Iterable[Arrival]) -> tuple[str, ...]:
    found = Percentiles.of((each.arrived_s - each.sent_s) * 1000 for each in arrivals)
    ms = (found.p50, found.p90, found.p99, found.p999, found.longest)
    return name, f"{found.count:,}", *(f"{each:.1f}" if each < 100 else f"{each:,.0f}" for each in ms)
