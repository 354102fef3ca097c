"""The lag of a mirror: ``python -m bench.lag --help``.

A producer sends records one by one, at random moments, without a linger. Two consumers of the same kind
wait for them, one at each cluster. A record's lag is the time from the call of ``produce`` to its arrival at
the consumer. The lag of the source's own consumer is the part that no mirror can avoid.
"""

import argparse
import itertools
import math
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.chart import line_layer, svg
from bench.latency import Percentiles
from bench.measure import MoverFailed, TreeCpu
from bench.mirror_maker_2 import MirrorMaker2
from bench.mover import Job, Mover, PlainCommand
from bench.report import machine, markdown, versions
from bench.topics import PARTITIONS
from rig import BENCH_JVM, KafkaCluster, create_topic, two_clusters, wait_until
from rig.process import spawn, tail

__all__ = ["LAG_MOVERS", "Lag", "measure_lag"]

_RESULTS = Path(__file__).parent / "results.md"
_CHART = Path(__file__).parent / "lag.svg"
_HEAP = "1g"
_VALUE_BYTES = 1000
_NUMBER = struct.Struct(">q")

_STARTS_S = 180.0
#: Time for every mover to compile its code.
_WARM_UP_S = 30.0
_ARRIVES_S = 60.0
_ENDS_S = 30.0

_numbers = itertools.count(1)


def _service(job: Job) -> Sequence[str]:
    between = ["--from", job.source, "--to", job.destination, "--group", job.copy]
    topics = ["--topics", job.topic, "--rename", f"{job.topic}={job.copy}"]
    return [sys.executable, "-m", "shoal", "mirror", *between, *topics]


LAG_MOVERS: dict[str, Mover] = {
    "shoal": PlainCommand("shoal", _service),
    "mm2": MirrorMaker2("MirrorMaker 2", linger_ms=0),
}
"""Movers that do not end by themselves."""


@dataclass(frozen=True)
class Lag:
    """One mover's run.

    Attributes:
        mover: Its name.
        source_ms: Time from the call of ``produce`` to the source's own consumer, of each measured record.
        destination_ms: Time to the consumer at the destination.
        seconds: Duration of the measurement.
        cpu_s: User and system time of the mover in that time.
        load: The machine's load average over a minute before the mover was started.
    """

    mover: str
    source_ms: Sequence[float]
    destination_ms: Sequence[float]
    seconds: float
    cpu_s: float
    load: float


class _Arrivals:
    """A consumer's thread; `at_ns` is the arrival time of each record, by number, 0 for never."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.at_ns = array("q")
        self.repeated = 0
        self._over = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench-lag",  # required by librdkafka, never joined
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._read, name="arrivals")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            now_ns = time.time_ns()
            (number,) = _NUMBER.unpack_from(message.value() or b"")
            self.at_ns.extend([0] * (number + 1 - len(self.at_ns)))
            self.repeated += self.at_ns[number] != 0
            self.at_ns[number] = now_ns


class _Load:
    """A producer's thread; `sent_ns` is the time of each record's sending, by number."""

    def __init__(self, bootstrap: str, topic: str, records_per_s: float) -> None:
        self.sent_ns = array("q")
        self.failures: list[str] = []
        self._topic = topic
        self._rate = records_per_s
        self._over = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True}
        )
        self._thread = threading.Thread(target=self._send, name="load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _send(self) -> None:
        dice = random.Random(0)
        padding = dice.randbytes(_VALUE_BYTES - _NUMBER.size)
        due = time.monotonic()
        while not self._over.is_set():
            due += dice.expovariate(self._rate)
            time.sleep(max(0.0, due - time.monotonic()))
            value = _NUMBER.pack(len(self.sent_ns)) + padding
            self.sent_ns.append(time.time_ns())
            partition = dice.randrange(PARTITIONS)
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)
        if unsent := self._producer.flush(_ARRIVES_S):
            self.failures.append(f"{unsent} records were not acknowledged")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))


def measure_lag(
    mover: Mover, source: KafkaCluster, destination: KafkaCluster, seconds: float, records_per_s: float
) -> Lag:
    """Run a mover beside a steady load.

    Raises:
        MoverFailed: The mover ended, or a record did not arrive, or one arrived twice.
    """
    load_average = os.getloadavg()[0]
    topic = f"lag{next(_numbers)}"
    create_topic(source.bootstrap, topic, PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="bench-lag-") as directory:
        job = Job(source.bootstrap, destination.bootstrap, topic, f"{topic}_copy", "none", Path(directory))
        with (
            mover.command(job) as command,
            _running(command.arguments, job.directory) as process,
            TreeCpu(process.pid) as cpu_s,
            _Load(source.bootstrap, topic, records_per_s) as load,
            _Arrivals(source.bootstrap, topic) as at_source,
        ):
            assert command.copy is not None
            _await_topic(destination, command.copy, process, job.directory)
            with _Arrivals(destination.bootstrap, command.copy) as at_destination:
                wait_until(lambda: len(at_destination.at_ns) > 0, "the first record", _STARTS_S)
                time.sleep(_WARM_UP_S)  # the time itself is the purpose, here and below
                first, cpu_before = len(load.sent_ns), cpu_s()
                time.sleep(seconds)
                last, cpu_after = len(load.sent_ns), cpu_s()
                load.stop()
                _await_all(load, at_destination, mover.name)
                _await_all(load, at_source, "the source's consumer")
    if load.failures or at_destination.repeated:
        raise MoverFailed(f"{mover.name}: {at_destination.repeated} records twice; {load.failures[:1]}")

    def lags(arrivals: _Arrivals) -> list[float]:
        return [(arrivals.at_ns[number] - load.sent_ns[number]) / 1e6 for number in range(first, last)]

    return Lag(
        mover.name,
        lags(at_source),
        lags(at_destination),
        seconds,
        cpu_after - cpu_before,
        load_average,
    )


@contextmanager
def _running(arguments: Sequence[str], directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = spawn(arguments, directory / "mover.log", {"XDG_STATE_HOME": str(directory / "state")})
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_topic(
    cluster: KafkaCluster, topic: str, process: subprocess.Popen[bytes], directory: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def is_there() -> bool:
        if process.poll() is not None:
            log = tail(directory / "mover.log")
            raise MoverFailed(f"the mover ended with {process.returncode}:\n{log}")
        found = admin.list_topics(timeout=30).topics.get(topic)
        return found is not None and len(found.partitions) == PARTITIONS

    wait_until(is_there, f"{topic} at the destination", _STARTS_S)


def _await_all(load: _Load, arrivals: _Arrivals, name: str) -> None:
    count = len(load.sent_ns)

    def all_arrived() -> bool:
        return len(arrivals.at_ns) == count and 0 not in arrivals.at_ns

    wait_until(all_arrived, f"all {count} records at {name}", _ARRIVES_S)


def table(lags: Sequence[Lag]) -> str:
    """Return a Markdown table: a row for each mover, and one for the source's own consumer beside each."""
    head = ("lag in ms", "records", "p50", "p90", "p99", "p99.9", "longest", "CPU of a core", "load before")
    rows: list[Sequence[str]] = []
    for lag in lags:
        rows += [
            (lag.mover, *_cells(lag.destination_ms), f"{lag.cpu_s / lag.seconds:.0%}", f"{lag.load:.1f}"),
            (f"the source's own consumer, beside {lag.mover}", *_cells(lag.source_ms), "", ""),
        ]
    return markdown(head, rows)


def _cells(times_ms: Sequence[float]) -> list[str]:
    found = Percentiles.of(times_ms)
    times = (found.p50, found.p90, found.p99, found.p999, found.longest)
    return [f"{found.count:,}", *(f"{each:,.1f}" for each in times)]


def chart(lags: Sequence[Lag], title: str) -> str:
    """Return the distributions as SVG: the part of the records that has arrived after each time."""
    by_line = {lag.mover: lag.destination_ms for lag in lags}
    by_line["the source's own consumer"] = list(itertools.chain(*(lag.source_ms for lag in lags)))
    rows: list[dict[str, Any]] = []
    for line, times_ms in by_line.items():
        ordered = sorted(times_ms)
        for number in range(1, 501):
            rank = math.ceil(number / 500 * len(ordered))
            rows.append({"ms": round(ordered[rank - 1], 2), "percent": number / 5, "line": line})
    lines = line_layer(
        rows, ("ms", "lag, ms"), ("percent", "records, %"), list(by_line), logarithmic_x=True, stepped=True
    )
    return svg([{"layer": [lines], "width": 700, "height": 300}], title)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.lag", description=__doc__)
    parser.add_argument("--movers", nargs="+", choices=list(LAG_MOVERS), default=list(LAG_MOVERS))
    parser.add_argument(
        "--seconds", type=float, default=150, help="duration of the measurement (default: 150)"
    )
    parser.add_argument("--records-per-s", type=float, default=200, help="rate of the load (default: 200)")
    parser.add_argument("--append", action="store_true", help=f"append the table to bench/{_RESULTS.name}")
    return parser.parse_args()


def main() -> None:
    """Measure each mover, one after the other, between the same two clusters."""
    arguments = _parse()
    with two_clusters(jvm=BENCH_JVM, heap=_HEAP) as (source, destination):
        lags = []
        for name in arguments.movers:
            print(f"{name}, {arguments.seconds:g} s", file=sys.stderr, flush=True)
            lags.append(
                measure_lag(LAG_MOVERS[name], source, destination, arguments.seconds, arguments.records_per_s)
            )
    text = table(lags)
    print(text)
    if arguments.append:
        title = f"Lag at {arguments.records_per_s:g} records/s"
        _CHART.write_text(chart(lags, title))
        head = [
            f"## {datetime.now(UTC):%Y-%m-%d}, lag",
            "",
            f"`python -m bench.lag`: {arguments.records_per_s:g} records/s of {_VALUE_BYTES} bytes over "
            f"{PARTITIONS} partitions, {arguments.seconds:g} s after a warm-up of {_WARM_UP_S:g} s.",
            f"{machine()}; two Kafka brokers, load, consumers and mover on this machine, loopback; "
            f"{versions('confluent-kafka', 'pyspark')}.",
            "Every record is from the call of `produce` to its arrival at a consumer.",
            "",
            f"![Distribution of the lag]({_CHART.name})",
            "",
        ]
        with _RESULTS.open("a") as file:
            file.write("\n" + "\n".join(head) + "\n" + text + "\n")


if __name__ == "__main__":
    main()
