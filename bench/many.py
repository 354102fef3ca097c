"""A mirror of 10,000 idle partitions beside 100 busy ones: the row ``many``.

Each mirror is a separate command, between two new embedded brokers of this process. The CPU until the first
batch is its own, then that of a time without records, and that of the busy partitions' load. A scrape costs
what the mirror's CPU grows by.
"""

import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from bench.account import Account, running
from bench.in_threads import InThreads
from bench.measure import MoverFailed
from bench.movers import usual_codes
from bench.report import say
from bench.rows import Row, Settings
from bench.runs import Section
from bench.shoal_movers import Code
from bench.start import has_batches
from rig import wait_until
from rig.ports import free_port
from rig.process import tail
from shoal_broker import Broker

__all__ = ["MANY"]

_BUSY = "busy"
_PARTITIONS = 100
_IDLE_TOPICS = 100
_RECORDS_PER_S = 10
_SECONDS = 60.0
_SCRAPES = 5
_START_S = 300.0
_VALUE = bytes(200)


class _Load(InThreads):
    """Records for the busy partitions in turn."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
        self.begin()

    def work(self, *arguments: str) -> None:
        number = 0
        while not self._over.wait(1 / _RECORDS_PER_S):
            self._producer.produce(_BUSY, _VALUE, partition=number % _PARTITIONS)
            self._producer.poll(0)
            number += 1
        self._producer.flush(10)


class _Mirror:
    """A mirror that runs, with the address of its metrics."""

    def __init__(self, account: Account, port: int) -> None:
        self._account = account
        self._metrics = f"http://127.0.0.1:{port}/metrics"

    def cpu_s(self) -> float:
        return self._account.cpu_s()

    def busy_percent(self, seconds: float) -> float:
        """Return its CPU over a time, in percent of a core."""
        began, before = time.monotonic(), self.cpu_s()
        time.sleep(seconds)  # the time itself is the purpose
        return 100 * (self.cpu_s() - before) / (time.monotonic() - began)

    def scrape(self) -> tuple[float, float]:
        """Return the CPU-seconds and the megabytes of a scrape, without what the mirror does besides."""
        usual = self.busy_percent(5.0) / 100
        began, before = time.monotonic(), self.cpu_s()
        for _ in range(_SCRAPES):
            with urllib.request.urlopen(self._metrics) as answer:  # noqa: S310 - a constant scheme
                size = len(answer.read())
        passed_s, cpu_s = time.monotonic() - began, self.cpu_s() - before
        return max(0.0, cpu_s - usual * passed_s) / _SCRAPES, size / 1e6


@contextmanager
def _source(idle_topics: int) -> Iterator[Broker]:
    """Run a broker with a record in one busy partition, and with idle topics."""
    with Broker(cluster_id="source") as source:
        for topic in (_BUSY, *(f"idle{number}" for number in range(idle_topics))):
            source.create_topic(topic, _PARTITIONS)
        producer = Producer({"bootstrap.servers": source.bootstrap, "log_level": 0})
        producer.produce(_BUSY, _VALUE, partition=0)
        if producer.flush(60):
            raise MoverFailed("loading the source failed")
        yield source


def _measure(code: Code, metrics_by: str, idle_topics: int, seconds: float) -> Mapping[str, float]:
    with (
        _source(idle_topics) as source,
        Broker(cluster_id="destination") as destination,
        tempfile.TemporaryDirectory(prefix="bench-many-") as directory,
    ):
        log, port = Path(directory) / "output", free_port()
        between = ["--from", source.bootstrap, "--to", destination.bootstrap, "--topics", ".*"]
        allowed = ["--max-new-partitions", str(_PARTITIONS * (idle_topics + 1))]
        metrics = ["--metrics", f"127.0.0.1:{port}", "--metrics-by", metrics_by]
        command = code.command("mirror", *between, *allowed, *metrics)
        environment = {**code.environment, "XDG_STATE_HOME": directory}
        with running(command, log, environment, code.directory) as (process, account):

            def copied() -> bool:
                if process.poll() is not None:
                    raise MoverFailed(f"the mirror ended with {process.returncode}:\n{tail(log)}")
                return has_batches(destination, _BUSY)

            wait_until(copied, "the first batch", _START_S)
            mirror = _Mirror(account, port)
            found = {"CPU-s until the first batch": mirror.cpu_s()}
            mirror.busy_percent(20.0)
            found["idle, % of a core"] = mirror.busy_percent(seconds)
            found["a scrape, CPU-s"], found["a scrape, MB"] = mirror.scrape()
            with _Load(source.bootstrap):
                mirror.busy_percent(5.0)
                found[f"{_RECORDS_PER_S} records/s, % of a core"] = mirror.busy_percent(seconds)
    return found


def _run(settings: Settings) -> Section:
    idle_topics = max(1, round(_IDLE_TOPICS * settings.scale))
    seconds = max(5.0, _SECONDS * settings.scale)
    figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for turn in range(settings.repeat):
        for code in usual_codes(settings.before):
            for metrics_by in ("partition", "topic"):
                name = f"{code.name}, metrics by {metrics_by}"
                say(f"{name}, turn {turn + 1}")
                for quantity, value in _measure(code, metrics_by, idle_topics, seconds).items():
                    figures[name][quantity].append(value)
    text = (
        f"`shoal mirror` of {_PARTITIONS * idle_topics:,} partitions without records and {_PARTITIONS} with "
        f"{_RECORDS_PER_S} records/s in turn, between two embedded brokers."
    )
    return Section("Many partitions", text, figures)


MANY = Row("many", "10,000 idle partitions beside 100 busy ones", 20, _run)
