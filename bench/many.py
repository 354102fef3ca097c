"""A mirror of 10,000 idle partitions beside 100 busy ones: the row ``many``.

Each mirror is a separate command, between two new embedded brokers of this process. The CPU until the first
batch is its own, then that of a time without records, and that of the busy partitions' load. A scrape costs
what the mirror's CPU grows by.
"""

import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from bench.in_threads import Load
from bench.measure import AtWork, MoverFailed, at_work
from bench.mover import Command
from bench.movers import usual_codes
from bench.rows import Row, Settings, in_turns
from bench.runs import Section
from bench.shoal_movers import Code
from bench.start import has_batches
from rig.ports import free_port
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


def _scrape(runs: AtWork, port: int) -> tuple[float, float]:
    """Return the CPU-seconds and the megabytes of a scrape, without what the mirror does besides."""
    usual = runs.percent_of_a_core(5.0) / 100
    began, before = time.monotonic(), runs.account.cpu_s()
    for _ in range(_SCRAPES):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            size = len(answer.read())
    passed_s, cpu_s = time.monotonic() - began, runs.account.cpu_s() - before
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


def _measure(code: Code, metrics_by: str, idle_topics: int, seconds: float) -> dict[str, float]:
    with (
        _source(idle_topics) as source,
        Broker(cluster_id="destination") as destination,
        tempfile.TemporaryDirectory(prefix="bench-many-") as directory,
    ):
        port = free_port()
        between = ["--from", source.bootstrap, "--to", destination.bootstrap, "--topics", ".*"]
        allowed = ["--max-new-partitions", str(_PARTITIONS * (idle_topics + 1))]
        metrics = ["--metrics", f"127.0.0.1:{port}", "--metrics-by", metrics_by]
        command = Command(
            code.command("mirror", *between, *allowed, *metrics),
            _BUSY,
            environment=code.environment,
            directory=code.directory,
        )
        with at_work("the mirror", command, Path(directory)) as runs:
            runs.until(lambda: has_batches(destination, _BUSY), "the first batch", _START_S)
            found = {"CPU-s until the first batch": runs.account.cpu_s()}
            runs.percent_of_a_core(20.0)
            found["idle, % of a core"] = runs.percent_of_a_core(seconds)
            found["a scrape, CPU-s"], found["a scrape, MB"] = _scrape(runs, port)
            with Load(source.bootstrap, [(_BUSY, each) for each in range(_PARTITIONS)], _RECORDS_PER_S):
                runs.percent_of_a_core(5.0)
                found[f"{_RECORDS_PER_S} records/s, % of a core"] = runs.percent_of_a_core(seconds)
    return found


def _run(settings: Settings) -> Section:
    idle_topics = max(1, round(_IDLE_TOPICS * settings.scale))
    seconds = max(5.0, _SECONDS * settings.scale)
    mirrors = {
        f"{code.name}, metrics by {metrics_by}": (code, metrics_by)
        for code in usual_codes(settings.before)
        for metrics_by in ("partition", "topic")
    }
    figures = in_turns(
        "many", mirrors, settings.repeat, lambda mirror: _measure(*mirror, idle_topics, seconds)
    )
    text = (
        f"`shoal mirror` of {_PARTITIONS * idle_topics:,} partitions without records and {_PARTITIONS} with "
        f"{_RECORDS_PER_S} records/s in turn, between two embedded brokers."
    )
    return Section("Many partitions", text, figures)


MANY = Row("many", "10,000 idle partitions beside 100 busy ones", 20, _run)
