"""The time and CPU in which a mirror copies its first batch: the row ``start``.

Each mirror is a separate command, between two new embedded brokers of this process. The clock runs from the
command to the first batch in the destination's log.
"""

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from bench.account import running
from bench.figures import YARDSTICK
from bench.measure import MoverFailed
from bench.movers import usual_codes
from bench.report import say
from bench.rows import Row, Settings
from bench.runs import Section
from bench.shoal_movers import Code
from bench.yardstick import Yardstick
from rig.process import tail
from shoal_broker import Broker

__all__ = ["START", "TOPIC", "Start", "has_batches", "loaded_brokers", "measure_start"]

TOPIC = "orders"
_PARTITIONS = 2
_RECORDS = 100
_LOOK_INTERVAL_S = 0.01
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Start:
    """One start of a mirror.

    Attributes:
        first_batch_s: Time from the command to the first batch at the destination.
        cpu_s: User and system time of all its processes until then.
        pss: Their memory then, in bytes; a shared page is divided among its processes.
        yardstick_ms: `bench.yardstick` beside it.
    """

    first_batch_s: float
    cpu_s: float
    pss: int
    yardstick_ms: float


def measure_start(code: Code) -> Start:
    """Start ``shoal mirror --once``, wait for its first batch, and for its end.

    Raises:
        MoverFailed: The mirror ended without copying.
    """
    with (
        loaded_brokers() as (source, destination),
        tempfile.TemporaryDirectory(prefix="bench-start-") as directory,
    ):
        log = Path(directory) / "output"
        between = ["--from", source.bootstrap, "--to", destination.bootstrap]
        arguments = code.command("mirror", "--once", "--topics", TOPIC, *between, "--checkpoint", directory)
        environment = {**code.environment, "XDG_STATE_HOME": directory}
        with Yardstick() as yardstick:
            began = time.monotonic()
            with running(arguments, log, environment, code.directory) as (process, account):
                while not has_batches(destination, TOPIC):
                    if process.poll() is not None or time.monotonic() > began + _TIMEOUT_S:
                        raise MoverFailed(tail(log))
                    time.sleep(_LOOK_INTERVAL_S)
                first_batch_s, cpu_s, pss = time.monotonic() - began, account.cpu_s(), account.pss()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_TIMEOUT_S)
    return Start(first_batch_s, cpu_s, pss, yardstick.milliseconds)


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
    codes = usual_codes(settings.before)
    starts: dict[str, list[Start]] = {code.name: [] for code in codes}
    for turn in range(settings.repeat):
        for code in codes:
            say(f"{code.name}, turn {turn + 1}")
            starts[code.name].append(measure_start(code))
    figures = {
        name: {
            "first batch, s": [each.first_batch_s for each in measured],
            "CPU-s until then": [each.cpu_s for each in measured],
            "PSS, MB": [each.pss / 1e6 for each in measured],
            YARDSTICK: [each.yardstick_ms for each in measured],
        }
        for name, measured in starts.items()
    }
    text = (
        "`shoal mirror --once` between two embedded brokers; from the command to the first batch at the "
        "destination."
    )
    return Section("Start", text, figures)


START = Row("start", "first byte of `shoal mirror --once`", 2, _run)
