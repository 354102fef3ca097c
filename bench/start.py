"""The time and CPU in which a mirror copies its first batch: the row ``start``.

Each mirror is a separate command, between two new embedded brokers of this process. The clock runs from the
command to the first batch in the destination's log.
"""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer

from bench.measure import MoverFailed, at_work
from bench.mover import Command
from bench.movers import usual_codes
from bench.rows import Row, Settings, in_turns
from bench.runs import Section
from bench.shoal_movers import Code
from shoal_broker import Broker

__all__ = ["START", "TOPIC", "has_batches", "loaded_brokers"]

TOPIC = "orders"
_PARTITIONS = 2
_RECORDS = 100
_TIMEOUT_S = 300.0


def _measure(code: Code) -> dict[str, float]:
    """Start ``shoal mirror --once``, wait for its first batch, and for its end."""
    with (
        loaded_brokers() as (source, destination),
        tempfile.TemporaryDirectory(prefix="bench-start-") as directory,
    ):
        between = ["--from", source.bootstrap, "--to", destination.bootstrap]
        arguments = code.command("mirror", "--once", "--topics", TOPIC, *between, "--checkpoint", directory)
        command = Command(arguments, TOPIC, environment=code.environment, directory=code.directory)
        began = time.monotonic()
        with at_work("the mirror", command, Path(directory)) as runs:
            runs.until(lambda: has_batches(destination, TOPIC), "the first batch", _TIMEOUT_S)
            found = {
                "first batch, s": time.monotonic() - began,
                "CPU-s until then": runs.account.cpu_s(),
                "PSS, MB": runs.account.pss() / 1e6,
            }
            runs.await_end(_TIMEOUT_S)
    return found


@contextlib.contextmanager
def loaded_brokers() -> Iterator[tuple[Broker, Broker]]:
    """Run two embedded brokers, a source with some records and an empty destination."""
    with Broker(cluster_id="source") as source, Broker(cluster_id="destination") as destination:
        source.create_topic(TOPIC, _PARTITIONS)
        producer = Producer(
            {"bootstrap.servers": source.bootstrap, "compression.type": "lz4", "log_level": 0}
        )
        for number in range(_RECORDS):
            producer.produce(TOPIC, f"record {number}", partition=number % _PARTITIONS)
        if producer.flush(60):
            raise MoverFailed("loading the source failed")
        yield source, destination


def has_batches(broker: Broker, name: str) -> bool:
    """Return whether a topic has a batch; False if there is no such topic."""
    topic = broker.topics.get(name)
    return topic is not None and any(log.log_end_offset for log in topic.logs)


def _run(settings: Settings) -> Section:
    codes = {code.name: code for code in usual_codes(settings.before)}
    figures = in_turns("start", codes, settings.repeat, _measure)
    text = (
        "`shoal mirror --once` between two embedded brokers; from the command to the first batch at the "
        "destination."
    )
    return Section("Start", text, figures)


START = Row("start", "first byte of `shoal mirror --once`", 2, _run)
