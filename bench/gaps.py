"""Commits before gaps, and their cost for the group's coordinator: the row ``gaps``.

A committed transaction leaves a marker, which is a gap: a mirror commits its map before the batch behind it.
A mirror with ``--delivery at-least-once`` copies the same, and commits no map. So the CPU of the source's
broker, which is the coordinator, differs by these commits between the two.
"""

import itertools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.in_threads import InThreads
from bench.measure import at_work, count_records
from bench.mover import Job, Mover
from bench.movers import usual_codes
from bench.rows import Row, Settings, delete_topics, in_turns
from bench.runs import Section
from bench.shoal_movers import Shoal
from rig import KafkaCluster, create_topic
from rig.load import transactional_producer

__all__ = ["GAPS"]

_PARTITIONS = 64
_TRANSACTIONS_PER_S = 10
_SECONDS = 60.0
_WARM_UP_S = 15.0
_STARTS_S = 180.0
_VALUE = bytes(200)

_BROKER = "source broker, % of a core"
_COMMITS = "commits before gaps, native"

_numbers = itertools.count(1)


class _Load(InThreads):
    """A producer, with a record for each partition in each transaction."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self.transactions = 0
        self._topic = topic
        self._producer = transactional_producer(bootstrap, f"bench-{topic}")
        self.begin()

    def work(self, *arguments: str) -> None:
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            due += 1 / _TRANSACTIONS_PER_S
            self._producer.begin_transaction()
            for partition in range(_PARTITIONS):
                self._producer.produce(self._topic, _VALUE, partition=partition)
            self._producer.commit_transaction(60)
            self.transactions += 1


def _measure(
    mirror: Mover, source: KafkaCluster, destination: KafkaCluster, seconds: float
) -> dict[str, float]:
    topic = f"gaps{next(_numbers)}"
    create_topic(source.bootstrap, topic, _PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="bench-gaps-") as directory:
        job = Job(
            source.bootstrap,
            destination.bootstrap,
            topic,
            f"{topic}_copy",
            "none",
            Path(directory),
            _PARTITIONS,
        )
        with (
            mirror.command(job) as command,
            at_work(mirror.name, command, job.directory) as runs,
            _Load(source.bootstrap, topic) as load,
        ):
            records = count_records(destination.bootstrap, job.copy)
            runs.until(lambda: records() > 0, "the first record", _STARTS_S)
            runs.percent_of_a_core(_WARM_UP_S)
            began, broker_s, transactions = time.monotonic(), source.cpu_seconds(), load.transactions
            mirror_percent = runs.percent_of_a_core(seconds)
            passed_s = time.monotonic() - began
            found = {
                _BROKER: 100 * (source.cpu_seconds() - broker_s) / passed_s,
                "mirror, % of a core": mirror_percent,
                "transactions/s": (load.transactions - transactions) / passed_s,
            }
    delete_topics(source, topic)
    delete_topics(destination, job.copy)
    return found


def _run(settings: Settings) -> Section:
    source, destination = settings.clusters.pair(settings.scale)
    seconds = max(5.0, _SECONDS * settings.scale)
    code = usual_codes(None)[0]
    kinds: dict[str, Sequence[str]] = {"exactly once": (), "at least once": ("--delivery", "at-least-once")}
    mirrors = {f"{kind}, {code.name}": Shoal(code, options, follows=True) for kind, options in kinds.items()}
    figures = in_turns(
        "gaps", mirrors, settings.repeat, lambda mirror: _measure(mirror, source, destination, seconds)
    )
    exactly, at_least = (found[_BROKER] for found in figures.values())
    figures[_COMMITS] = {_BROKER: [own - other for own, other in zip(exactly, at_least, strict=True)]}
    text = (
        f"{_PARTITIONS} partitions, {_TRANSACTIONS_PER_S} transactions/s with a record for each. The source "
        "has one broker, which is the group's coordinator, too. A mirror with `--delivery at-least-once` "
        "commits no map before a gap."
    )
    return Section("Commits before gaps", text, figures)


GAPS = Row("gaps", "the coordinator's CPU for commits before gaps", 12, _run, compares_commits=False)
