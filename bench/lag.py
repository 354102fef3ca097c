"""The lag of a mirror at a low load: the row ``lag``.

A producer sends records one by one, at random moments, without a linger. Two consumers of the same kind
wait for them, one at each cluster. A record's lag is the time from the call of ``produce`` to its arrival at
the consumer. The lag of the source's own consumer is the part that no mirror can avoid.
"""

import itertools
import random
import struct
import tempfile
import time
from array import array
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.in_threads import InThreads
from bench.latency import Percentiles
from bench.measure import MoverFailed, at_work
from bench.mirror_maker_2 import MirrorMaker2
from bench.mover import Job, Mover
from bench.movers import usual_codes
from bench.rows import Row, Settings, in_turns
from bench.runs import Section
from bench.shoal_movers import Shoal
from bench.topics import PARTITIONS
from rig import KafkaCluster, create_topic, wait_until

__all__ = ["LAG"]

_VALUE_BYTES = 1000
_RECORDS_PER_S = 200
_SECONDS = 100.0
_NUMBER = struct.Struct(">q")

_STARTS_S = 180.0
#: Time for every mover to compile its code.
_WARM_UP_S = 15.0
_ARRIVES_S = 60.0

_numbers = itertools.count(1)


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

    def await_all(self, count: int, name: str) -> None:
        """Wait until so many records have arrived."""

        def all_arrived() -> bool:
            return len(self.at_ns) == count and 0 not in self.at_ns

        wait_until(all_arrived, f"all {count} records at {name}", _ARRIVES_S)

    def lag(self, load: "_Load", first: int, last: int) -> Percentiles:
        """Return the time from the sending of each record to its arrival, from one number up to another."""
        return Percentiles.of((self.at_ns[each] - load.sent_ns[each]) / 1e6 for each in range(first, last))


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


def _measure(
    mover: Mover,
    source: KafkaCluster,
    destination: KafkaCluster,
    seconds: float,
    at_source: list[Percentiles],
) -> dict[str, float]:
    """Run a mover beside a steady load; add the lag of the source's own consumer to a list.

    Raises:
        MoverFailed: The mover ended, or a record did not arrive, or one arrived twice.
    """
    topic = f"lag{next(_numbers)}"
    create_topic(source.bootstrap, topic, PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="bench-lag-") as directory:
        job = Job(source.bootstrap, destination.bootstrap, topic, f"{topic}_copy", "none", Path(directory))
        with (
            mover.command(job) as command,
            at_work(mover.name, command, job.directory) as runs,
            _Load(source.bootstrap, topic, _RECORDS_PER_S) as load,
            _Arrivals(source.bootstrap, topic) as near,
        ):
            admin, copy = AdminClient({"bootstrap.servers": job.destination, "log_level": 0}), command.copy
            runs.until(lambda: copy in admin.list_topics(timeout=30).topics, copy, _STARTS_S)
            with _Arrivals(job.destination, copy) as far:
                runs.until(lambda: len(far.at_ns) > 0, "the first record", _STARTS_S)
                runs.percent_of_a_core(_WARM_UP_S)
                first = len(load.sent_ns)
                percent = runs.percent_of_a_core(seconds)
                last = len(load.sent_ns)
                pss = runs.account.pss()
                load.stop()
                for arrivals, name in ((far, mover.name), (near, "the source's consumer")):
                    arrivals.await_all(len(load.sent_ns), name)
    if load.failures or far.repeated:
        raise MoverFailed(f"{mover.name}: {far.repeated} records twice; {load.failures[:1]}")
    at_source.append(near.lag(load, first, last))
    return {
        **_figures(far.lag(load, first, last)),
        "CPU, % of a core": percent,
        "PSS, MB": pss / 1e6,
    }


def _run(settings: Settings) -> Section:
    source, destination = settings.clusters.pair(settings.scale)
    seconds = max(5.0, _SECONDS * settings.scale)
    movers: list[Mover] = [] if settings.before else [MirrorMaker2("MirrorMaker 2", linger_ms=0)]
    movers += [Shoal(code, follows=True) for code in usual_codes(settings.before)]
    at_source: list[Percentiles] = []
    figures = in_turns(
        "lag",
        {mover.name: mover for mover in movers},
        settings.repeat,
        lambda mover: _measure(mover, source, destination, seconds, at_source),
    )
    own = [_figures(each) for each in at_source]
    figures["the source's own consumer"] = {name: [each[name] for each in own] for name in own[0]}
    text = (
        f"{_RECORDS_PER_S} records/s of {_VALUE_BYTES:,} bytes over {PARTITIONS} partitions, "
        f"for {seconds:g} s after a warm-up of {_WARM_UP_S:g} s; no leader moves. "
        "Every record counts, from the call of `produce` to its arrival at a consumer. "
        "MirrorMaker 2 has `linger.ms=0`."
    )
    return Section("Lag", text, figures)


def _figures(found: Percentiles) -> dict[str, float]:
    return {
        "p50, ms": found.p50,
        "p90, ms": found.p90,
        "p99, ms": found.p99,
        "p99.9, ms": found.p999,
        "longest, ms": found.longest,
    }


LAG = Row("lag", "lag, CPU and memory at 200 records/s", 13, _run)
