"""The input of a row of the bench, and its result."""

import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, TypeVar

from confluent_kafka.admin import AdminClient

from bench.mover import Listeners, Mover
from bench.report import say
from bench.runs import Section
from bench.shoal_movers import Code
from bench.topics import B16, B256, load
from rig import BENCH_JVM, KafkaCluster, digest_topic, two_clusters
from rig.authority import Authority, tls_listener

__all__ = ["PATIENT", "Clusters", "Row", "Settings", "delete_topics", "in_turn", "in_turns"]

#: If a broker lacks CPU for a while, the controller must not fence it: Kafka's own defaults.
PATIENT = {"broker.session.timeout.ms": 9000, "broker.heartbeat.interval.ms": 2000}

_HEAP = "1g"
_TLS = "TLS"
_WARM_UP_MEGABYTES = 60

T = TypeVar("T")


class Clusters:
    """Two clusters for all rows that need no others, started when the first row asks for them."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._pair: tuple[KafkaCluster, KafkaCluster] | None = None
        self._authority: Path | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def pair(self, warm_up_part: float = 1.0) -> tuple[KafkaCluster, KafkaCluster]:
        """Return the source and the destination, warmed up.

        The brokers' JVMs compile their code first; otherwise, the first mover would pay for it.
        """
        if self._pair is None:
            say("starting two clusters")
            directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-tls-")))
            authority = Authority()
            self._authority = directory / "ca.pem"
            self._authority.write_text(authority.pem)
            own = authority.issue("broker", "127.0.0.1").write_pem(directory / "broker.pem")
            config = {**PATIENT, **tls_listener(_TLS, own, self._authority)}
            clusters = two_clusters(jvm=BENCH_JVM, heap=_HEAP, config=config, listeners={_TLS: "SSL"})
            self._pair = self._stack.enter_context(clusters)
            for cluster, shape in itertools.product(self._pair, (B16, B256)):
                topic = f"{shape.name}_warm"
                load(cluster.bootstrap, shape, topic, _WARM_UP_MEGABYTES * warm_up_part)
                digest_topic(cluster.bootstrap, topic)
                delete_topics(cluster, topic)
        return self._pair

    def tls(self, where: Literal["destination", "both"] = "both") -> Listeners:
        """Return the listeners of the running pair, with TLS at the destination or at both ends."""
        assert self._pair is not None, "call pair first"
        assert self._authority is not None
        source, destination = self._pair
        source_is_plain = where == "destination"
        reads_from = source.bootstrap if source_is_plain else source.listener(_TLS)
        return Listeners(reads_from, destination.listener(_TLS), self._authority, source_is_plain)

    def close(self) -> None:
        """Stop them, for a row that starts clusters of its own."""
        self._pair = None
        self._stack.close()


@dataclass(frozen=True)
class Settings:
    """The options of a run that concern the rows.

    Attributes:
        clusters: The clusters to measure between.
        movers: The movers to compare, by their names for ``--movers``.
        repeat: Number of turns.
        scale: Factor of all sizes and durations; only 1 gives figures to compare with others.
        before: The shoal of another commit to compare with, if any.
    """

    clusters: Clusters
    movers: Mapping[str, Mover]
    repeat: int = 3
    scale: float = 1.0
    before: Code | None = None


@dataclass(frozen=True)
class Row:
    """A row of the bench.

    Attributes:
        name: For ``--rows``.
        about: One line for ``--help``.
        minutes: How long it takes with three turns on two quiet cores.
        run: Measures it.
        compares_commits: Whether ``--before`` can be used with it: it runs shoal by its command line alone.
    """

    name: str
    about: str
    minutes: float
    run: Callable[[Settings], Section]
    compares_commits: bool = True


def in_turn(subjects: Sequence[T], repeat: int) -> list[tuple[int, T]]:
    """Return the turns: each subject once a turn, in the opposite order every second time."""
    return [(turn, each) for turn in range(repeat) for each in (reversed(subjects) if turn % 2 else subjects)]


def in_turns(
    what: str, subjects: Mapping[str, T], repeat: int, measure: Callable[[T], Mapping[str, float]]
) -> dict[str, dict[str, list[float]]]:
    """Measure subjects in turn, and return the figures of each by its name."""
    figures: dict[str, dict[str, list[float]]] = {name: {} for name in subjects}
    for turn, (name, subject) in in_turn(list(subjects.items()), repeat):
        say(f"{what}, {name}, turn {turn + 1}")
        for quantity, value in measure(subject).items():
            figures[name].setdefault(quantity, []).append(value)
    return figures


def delete_topics(cluster: KafkaCluster, *topics: str) -> None:
    """Delete topics, and wait for the answer."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for deleted in admin.delete_topics(list(topics)).values():
        deleted.result()
