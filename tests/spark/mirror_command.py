"""``shoal mirror`` as its user runs it: a process of its own, between two embedded brokers."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from rig.shoal import SHOAL, Shoal
from tests.world.clusters import TwoBrokers
from tests.world.contents import content_of

__all__ = [
    "RECORDS",
    "TIMEOUT_S",
    "Mirror",
    "assert_copied",
    "brokers_with_orders",
    "complaints",
    "copied",
    "executors_of",
    "load",
]

#: A machine that does much else takes ten times as long as an idle one.
TIMEOUT_S = 280
PARTITIONS = 4
RECORDS = 1_000


@contextmanager
def brokers_with_orders() -> Iterator[TwoBrokers]:
    """Two brokers; the source has a topic with so many records."""
    with TwoBrokers.started() as brokers:
        brokers.source.create_topic("orders", PARTITIONS)
        load(brokers)
        yield brokers


def load(brokers: TwoBrokers) -> None:
    """Add records to the source's topic."""
    producer = Producer({"bootstrap.servers": brokers.source.bootstrap, "compression.type": "lz4"})
    for number in range(RECORDS):
        producer.produce("orders", f"record {number}", key=f"{number}", partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def copied(brokers: TwoBrokers) -> int:
    """Return how many records the destination has by now."""
    topic = brokers.destination.topics.get("orders")
    return sum(log.log_end_offset for log in topic.logs) if topic else 0


def assert_copied(brokers: TwoBrokers, records: int) -> None:
    """Compare record by record, as another client decodes them."""
    copies = [content_of(brokers.destination.log("orders", each)) for each in range(PARTITIONS)]
    assert copies == [content_of(brokers.source.log("orders", each)) for each in range(PARTITIONS)]
    assert sum(map(len, copies)) == records


def complaints(stderr: str) -> str:
    """
    Return a mirror's lines on stderr without times, except for its stop and waits for an answer.

    On a machine that does much else the test's own brokers may answer late.
    """
    lines = _TIME.sub("", stderr).splitlines(keepends=True)
    return "".join(line for line in lines if not _EXPECTED.search(line))


_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", re.MULTILINE)
_EXPECTED = re.compile(r" waiting: .* broker( \S+)? to answer$|^shoal: stopping(:| on )")


class Mirror(Shoal):
    """A running ``shoal mirror`` of the topic; its state is in ``room``."""

    def __init__(
        self,
        brokers: TwoBrokers,
        room: Path,
        *args: str,
        python: str = sys.executable,
        program: Sequence[str] = SHOAL,
    ) -> None:
        verb = ("mirror", *brokers.between, "--topics", "orders", "--json")
        super().__init__(*verb, *args, state=room / "state", python=python, program=program)

    def result(self) -> tuple[int | None, str, dict[str, Any]]:
        """Wait for its end; return its exit code, its complaints and its last line."""
        last = self.wait(TIMEOUT_S)
        return self.exit_code, complaints(self.stderr), last


def executors_of(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return the executors of Spark among processes."""
    found: dict[str, psutil.Process] = {}
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            line = " ".join(each.cmdline())
            if "CoarseGrainedExecutorBackend" in line and each.name() == "java":
                # A process just forked by an executor has its command line, too.
                found.setdefault(line, each)
    return list(found.values())
