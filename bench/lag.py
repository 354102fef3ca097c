"""The lag of a mirror at a low load: the row ``lag``.

A producer sends records one by one, at random moments, without a linger. Two consumers of the same kind
wait for them, one at each cluster. A record's lag is the time from the call of ``produce`` to its arrival at
the consumer. The lag of the source's own consumer is the part that no mirror can avoid.
"""

import itertools
import random
import signal
import struct
import subprocess
import tempfile
import time
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.account import running
from bench.figures import YARDSTICK
from bench.in_threads import InThreads
from bench.latency import Percentiles
from bench.measure import MoverFailed
from bench.mirror_maker_2 import MirrorMaker2
from bench.mover import Job, Mover, PlainCommand
from bench.movers import usual_codes
from bench.report import say
from bench.rows import Row, Settings, in_turn
from bench.runs import Section
from bench.shoal_movers import Code
from bench.topics import PARTITIONS
from bench.yardstick import Yardstick
from rig import KafkaCluster, create_topic, wait_until
from rig.process import tail

__all__ = ["LAG", "Lag", "measure_lag"]

_VALUE_BYTES = 1000
_RECORDS_PER_S = 200
_SECONDS = 100.0
_NUMBER = struct.Struct(">q")

_STARTS_S = 180.0
#: Time for every mover to compile its code.
_WARM_UP_S = 15.0
_ARRIVES_S = 60.0
_ENDS_S = 30.0

_numbers = itertools.count(1)


def _service(code: Code) -> Mover:
    def arguments(job: Job) -> Sequence[str]:
        between = ["--from", job.source, "--to", job.destination, "--group", job.copy]
        topics = ["--topics", job.topic, "--rename", f"{job.topic}={job.copy}"]
        return code.command("mirror", *between, *topics)

    return PlainCommand(f"shoal, {code.name}", arguments, code.environment, code.directory)


@dataclass(frozen=True)
class Lag:
    """One mover's run.

    Attributes:
        source_ms: Time from the call of ``produce`` to the source's own consumer, of each measured record.
        destination_ms: Time to the consumer at the destination.
        seconds: Duration of the measurement.
        cpu_s: User and system time of all the mover's processes in that time.
        pss: Their memory at its end, in bytes; a shared page is divided among its processes.
        yardstick_ms: `bench.yardstick` beside it.
    """

    source_ms: Sequence[float]
    destination_ms: Sequence[float]
    seconds: float
    cpu_s: float
    pss: int
    yardstick_ms: float


class _Arrivals(InThreads):
    """A consumer; `at_ns` is the arrival time of each record, by number, 0 for never."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self.at_ns = array("q")
        self.repeated = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench-lag",  # required by librdkafka, never joined
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self.begin()

    def work(self, *arguments: str) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            now_ns = time.time_ns()
            (number,) = _NUMBER.unpack_from(message.value() or b"")
            self.at_ns.extend([0] * (number + 1 - len(self.at_ns)))
            self.repeated += self.at_ns[number] != 0
            self.at_ns[number] = now_ns
        self._consumer.close()


class _Load(InThreads):
    """A producer; `sent_ns` is the time of each record's sending, by number."""

    def __init__(self, bootstrap: str, topic: str, records_per_s: float) -> None:
        super().__init__()
        self.sent_ns = array("q")
        self.failures: list[str] = []
        self._topic = topic
        self._rate = records_per_s
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True}
        )
        self.begin()

    def work(self, *arguments: str) -> None:
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
    topic = f"lag{next(_numbers)}"
    create_topic(source.bootstrap, topic, PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="bench-lag-") as directory:
        job = Job(source.bootstrap, destination.bootstrap, topic, f"{topic}_copy", "none", Path(directory))
        log = job.directory / "mover.log"
        state = {"XDG_STATE_HOME": str(job.directory / "state")}
        with (
            mover.command(job) as command,
            running(command.arguments, log, {**command.environment, **state}, command.directory) as started,
            _Load(source.bootstrap, topic, records_per_s) as load,
            _Arrivals(source.bootstrap, topic) as at_source,
        ):
            process, account = started
            _await_topic(destination, command.copy, process, job.directory)
            with _Arrivals(destination.bootstrap, command.copy) as at_destination:
                wait_until(lambda: len(at_destination.at_ns) > 0, "the first record", _STARTS_S)
                time.sleep(_WARM_UP_S)  # the time itself is the purpose, here and below
                with Yardstick() as yardstick:
                    first, before, began = len(load.sent_ns), account.cpu_s(), time.monotonic()
                    time.sleep(seconds)
                    last, after, ended = len(load.sent_ns), account.cpu_s(), time.monotonic()
                pss = account.pss()
                load.stop()
                _await_all(load, at_destination, mover.name)
                _await_all(load, at_source, "the source's consumer")
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ENDS_S)
    if load.failures or at_destination.repeated:
        raise MoverFailed(f"{mover.name}: {at_destination.repeated} records twice; {load.failures[:1]}")

    def lags(arrivals: _Arrivals) -> list[float]:
        return [(arrivals.at_ns[number] - load.sent_ns[number]) / 1e6 for number in range(first, last)]

    return Lag(
        lags(at_source),
        lags(at_destination),
        ended - began,
        after - before,
        pss,
        yardstick.milliseconds,
    )


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


def _run(settings: Settings) -> Section:
    source, destination = settings.clusters.pair(settings.scale)
    seconds = max(5.0, _SECONDS * settings.scale)
    movers: list[Mover] = [] if settings.before else [MirrorMaker2("MirrorMaker 2", linger_ms=0)]
    movers += [_service(code) for code in usual_codes(settings.before)]
    runs: dict[str, list[Lag]] = {mover.name: [] for mover in movers}
    for turn, mover in in_turn(movers, settings.repeat):
        say(f"lag, {mover.name}, turn {turn + 1}, {seconds:g} s")
        runs[mover.name].append(measure_lag(mover, source, destination, seconds, _RECORDS_PER_S))
    figures = {mover: _figures(lags) for mover, lags in runs.items()}
    at_source = [Percentiles.of(lag.source_ms) for lags in runs.values() for lag in lags]
    figures["the source's own consumer"] = _of_percentiles(at_source)
    text = (
        f"{_RECORDS_PER_S} records/s of {_VALUE_BYTES:,} bytes over {PARTITIONS} partitions, "
        f"for {seconds:g} s after a warm-up of {_WARM_UP_S:g} s; no leader moves. "
        "Every record counts, from the call of `produce` to its arrival at a consumer. "
        "MirrorMaker 2 has `linger.ms=0`."
    )
    return Section("Lag", text, figures)


def _figures(lags: Sequence[Lag]) -> dict[str, list[float]]:
    return {
        **_of_percentiles([Percentiles.of(lag.destination_ms) for lag in lags]),
        "CPU, % of a core": [100 * lag.cpu_s / lag.seconds for lag in lags],
        "PSS, MB": [lag.pss / 1e6 for lag in lags],
        YARDSTICK: [lag.yardstick_ms for lag in lags],
    }


def _of_percentiles(found: Sequence[Percentiles]) -> dict[str, list[float]]:
    return {
        "p50, ms": [each.p50 for each in found],
        "p90, ms": [each.p90 for each in found],
        "p99, ms": [each.p99 for each in found],
        "p99.9, ms": [each.p999 for each in found],
        "longest, ms": [each.longest for each in found],
    }


LAG = Row("lag", "lag, CPU and memory at 200 records/s", 13, _run)
