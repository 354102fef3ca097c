"""Commits before gaps, and their cost for the group's coordinator: the row ``gaps``.

A committed transaction leaves a marker, which is a gap: a mirror commits its map before the batch behind it.
A mirror with ``--delivery at-least-once`` copies the same, and commits no map. So the CPU of the source's
broker, which is the coordinator, differs by these commits between the two.
"""

import itertools
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.account import running
from bench.in_threads import InThreads
from bench.measure import MoverFailed, count_records
from bench.mover import Job
from bench.movers import usual_codes
from bench.report import say
from bench.rows import Row, Settings, delete_topics, in_turn
from bench.runs import Section
from bench.shoal_movers import Code
from rig import KafkaCluster, create_topic, wait_until
from rig.load import transactional_producer
from rig.process import tail

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


@dataclass
class _Use:
    """The figures of one kind of mirror, by turn."""

    broker: list[float] = field(default_factory=list)
    mirror: list[float] = field(default_factory=list)
    transactions: list[float] = field(default_factory=list)

    def as_figures(self) -> dict[str, Sequence[float]]:
        return {
            _BROKER: self.broker,
            "mirror, % of a core": self.mirror,
            "transactions/s": self.transactions,
        }


def _measure(
    code: Code, options: Sequence[str], source: KafkaCluster, destination: KafkaCluster, seconds: float
) -> tuple[float, float, float]:
    """Return the CPU of the source's broker and of a mirror, in percent, and the transactions a second."""
    topic = f"gaps{next(_numbers)}"
    create_topic(source.bootstrap, topic, _PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="bench-gaps-") as directory:
        job = Job(source.bootstrap, destination.bootstrap, topic, f"{topic}_copy", "none", Path(directory))
        between = ["--from", job.source, "--to", job.destination, "--group", job.copy, *options]
        command = code.command("mirror", *between, "--topics", topic, "--rename", f"{topic}={job.copy}")
        log = job.directory / "mover.log"
        environment = {**code.environment, "XDG_STATE_HOME": str(job.directory / "state")}
        with (
            running(command, log, environment, code.directory) as (process, account),
            _Load(source.bootstrap, topic) as load,
        ):
            records = count_records(destination.bootstrap, job.copy)

            def copies() -> bool:
                if process.poll() is not None:
                    raise MoverFailed(f"the mirror ended with {process.returncode}:\n{tail(log)}")
                return records() > 0

            wait_until(copies, "the first record", _STARTS_S)
            time.sleep(_WARM_UP_S)  # the time itself is the purpose, here and below

            def read() -> tuple[float, ...]:
                return time.monotonic(), source.cpu_seconds(), account.cpu_s(), float(load.transactions)

            before = read()
            time.sleep(seconds)
            passed_s, broker_s, mirror_s, transactions = (
                after - then for after, then in zip(read(), before, strict=True)
            )
            copies()
    delete_topics(source, topic)
    delete_topics(destination, job.copy)
    return 100 * broker_s / passed_s, 100 * mirror_s / passed_s, transactions / passed_s


def _run(settings: Settings) -> Section:
    source, destination = settings.clusters.pair(settings.scale)
    seconds = max(5.0, _SECONDS * settings.scale)
    code = usual_codes(None)[0]
    kinds = {"exactly once": (), "at least once": ("--delivery", "at-least-once")}
    used = {f"{kind}, {code.name}": _Use() for kind in kinds}
    for turn, (kind, options) in in_turn(list(kinds.items()), settings.repeat):
        say(f"gaps, {kind}, turn {turn + 1}, {seconds:g} s")
        use = used[f"{kind}, {code.name}"]
        found = _measure(code, options, source, destination, seconds)
        for values, value in zip((use.broker, use.mirror, use.transactions), found, strict=True):
            values.append(value)
    exactly, at_least = used.values()
    commits = [own - other for own, other in zip(exactly.broker, at_least.broker, strict=True)]
    figures = {name: use.as_figures() for name, use in used.items()} | {_COMMITS: {_BROKER: commits}}
    text = (
        f"{_PARTITIONS} partitions, {_TRANSACTIONS_PER_S} transactions/s with a record for each. The source "
        "has one broker, which is the group's coordinator, too. A mirror with `--delivery at-least-once` "
        "commits no map before a gap."
    )
    return Section("Commits before gaps", text, figures)


GAPS = Row("gaps", "the coordinator's CPU for commits before gaps", 12, _run, compares_commits=False)
