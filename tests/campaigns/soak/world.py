"""
A soak from its first broker to its verdict.

One mirror runs for the whole of it as a service, between two clusters whose client listener requires TLS, a
login and ACLs.
"""

from __future__ import annotations

import math
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AclOperation, AdminClient, ResourceType

from rig.cluster import java_properties
from rig.judge import Verdict, compare
from rig.load import CODECS, create_topic
from rig.locked import LockedKafka, jaas, locked_kafka
from rig.read import read_topic
from rig.record import Record
from rig.shoal import run_shoal, state_in
from rig.wait import TimedOut, wait_until
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.position import MirrorPosition
from tests.campaigns.clusters.arena import BROKERS, Arena, Side
from tests.campaigns.clusters.load import add_partitions, await_ends, layout
from tests.campaigns.clusters.movers import Started
from tests.campaigns.clusters.positions import CommittedPositions
from tests.campaigns.clusters.processes import MirrorRun

from .memory import GROWTH_PER_HOUR, MemorySample, Role, growth_per_hour, sampled
from .plan import SoakPlan
from .traffic import Arrival, Arrivals, Load, LoadedTopic

__all__ = ["Outcome", "SoakWorld", "Window", "soak"]

_PREFIX = "soak."
_GROUP = "soak-mirror"
_TRANSACTIONAL = f"{_PREFIX}transactional"

#: Time after an event, from its replicas' being in sync again, that still counts as part of it.
_SETTLES_S = 15.0

#: Long, since a developer may run other things beside it.
_STARTS_S = 900.0
_CATCHES_UP_S = 120.0
_ENDS_S = 90.0
#: If the lag is smaller, the mirror has caught up.
_BEHIND_S = 3.0
_DRAINS_S = 180.0

#: Memory is judged over the last part of a run, in one process of the mirror that runs for this long.
_MEMORY_PART = 0.5
_MEMORY_S = 600.0

_PARTITIONS = 3
_TELL_EVERY_S = 60.0
_SAMPLE_EVERY_S = 10.0

#: The mirror's principal, which is no super user.
_PRINCIPAL = "bob"
_MECHANISM = "SCRAM-SHA-512"
_GRANTED: Mapping[Side, Mapping[ResourceType, Sequence[AclOperation]]] = {
    Side.SOURCE: {
        ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS),
        ResourceType.GROUP: (AclOperation.READ, AclOperation.DESCRIBE),
    },
    Side.DESTINATION: {
        ResourceType.TOPIC: (
            AclOperation.CREATE,
            AclOperation.ALTER,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
        ),
    },
}


@contextmanager
def _open_clusters(relogin_ms: int) -> Iterator[dict[Side, LockedKafka]]:
    """
    Start two clusters, with the mirror's ACLs.

    Args:
        relogin_ms: ``connections.max.reauth.ms``: after this a client has to renew its login.

    """
    config: dict[str, object] = {
        "default.replication.factor": BROKERS,
        "min.insync.replicas": 2,
        # Few threads: six brokers share the machine with the mirror.
        "num.network.threads": 2,
        "num.io.threads": 4,
        # Kafka's own: with the rig's shorter one, the controller would fence a broker that lacks CPU.
        "broker.session.timeout.ms": 9_000,
        "broker.heartbeat.interval.ms": 2_000,
        f"listener.name.sasltls.{_MECHANISM.lower()}.connections.max.reauth.ms": relogin_ms,
    }
    with ExitStack() as stack:
        clusters = {
            side: stack.enter_context(locked_kafka(brokers=BROKERS, config=config, heap="256m"))
            for side in Side
        }
        for side, kafka in clusters.items():
            for kind, operations in _GRANTED[side].items():
                kafka.allow(_PRINCIPAL, kind, "*", *operations)
        yield clusters


def _properties(kafka: LockedKafka) -> dict[str, object]:
    return {
        "bootstrap.servers": kafka.cluster.listener("SASLTLS"),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": _MECHANISM,
        "sasl.jaas.config": jaas(_MECHANISM, _PRINCIPAL),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": kafka.directory / "ca.pem",
    }


class _Service:
    """
    ``shoal mirror`` as a service: at most one process at a time.

    Attributes:
        ends: Seconds from SIGTERM to its end, each time.
        problems: Each failure, as a sentence.

    """

    def __init__(self, options: Sequence[str], refresh_s: int, logs: Path) -> None:
        self.ends: list[float] = []
        self.problems: list[str] = []
        self._options, self._refresh_s, self._logs = options, refresh_s, logs
        self._process: MirrorRun | None = None
        self._starts = 0

    @property
    def process(self) -> MirrorRun:
        assert self._process is not None, "no mirror runs"
        return self._process

    def start(self) -> None:
        verb = ["mirror", "--json", *self._options, "--refresh", str(self._refresh_s)]
        self._starts += 1
        log = self._logs / f"mirror-{self._starts}"
        self._process = MirrorRun(Started(verb), log, state_in(self._logs / "state"))

    def stop(self) -> None:
        """Stop it as an operator would, and record the duration."""
        process, began = self.process, time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            self.problems.append(f"the mirror did not end within {_ENDS_S:g} s of SIGTERM")
        self.ends.append(time.monotonic() - began)
        if process.exit_code != 0:
            self.problems.append(f"the mirror ended with {process.exit_code}: {process.stderr[-2000:]}")
        self.close()

    def check(self) -> None:
        """If it ended by itself, record that, and start it again, as a service manager would."""
        if (code := self.process.exit_code) is not None:
            said = self.process.stderr[-2000:]
            self.problems.append(f"the mirror ended by itself with {code}: {said}")
            self.close()
            self.start()

    def close(self) -> None:
        """Kill it if it still runs."""
        if self._process is not None:
            self._process.__exit__()
            self._process = None


@dataclass(frozen=True, slots=True)
class Window:
    """
    An event, from its beginning to the full recovery; seconds since 1970.

    Attributes:
        noticed_s: Time from the creation of a topic or a partition to the arrival of its first record.

    """

    event: str
    began_s: float
    ended_s: float
    noticed_s: float | None = None

    def touches(self, arrival: Arrival) -> bool:
        return arrival.sent_s <= self.ended_s and arrival.arrived_s >= self.began_s


@dataclass
class Outcome:
    """
    The result of a soak.

    Attributes:
        arrivals: Those of records that were sent after the mirror had caught up with the load.
        comparison: Verdict on both clusters' topics, read at the end.
        verified: Exit code of ``shoal verify``.
        ends: Seconds from SIGTERM to the mirror's end, each time.
        transactions: Numbers of committed and of aborted ones.
        problems: Sentences; empty if there is none.

    """

    plan: SoakPlan
    windows: list[Window] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    memory: list[MemorySample] = field(default_factory=list)
    growth: dict[Role, float] = field(default_factory=dict)
    comparison: Verdict = field(default_factory=Verdict)
    verified: int | None = None
    ends: list[float] = field(default_factory=list)
    transactions: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def soak(plan: SoakPlan, logs: Path, say: Callable[[str], object]) -> Outcome:
    """
    Run a soak.

    Args:
        logs: A directory, created if it is missing: the mirror's messages and Spark's log.
        say: Receives progress messages, one line each.

    """
    logs.mkdir(parents=True, exist_ok=True)
    # A login lasts a fifteenth of the run, so that the mirror renews it often.
    with _open_clusters(relogin_ms=int(plan.setup.seconds * 1000 / 15)) as clusters:
        say("six brokers run")
        return SoakWorld(plan, clusters, logs, say).run()


class SoakWorld:
    """
    Two locked clusters, a steady load, and one mirror between them that runs for the whole soak.

    Attributes:
        arena: The clusters.
        mirror: The mirror.

    """

    def __init__(
        self,
        plan: SoakPlan,
        clusters: Mapping[Side, LockedKafka],
        logs: Path,
        say: Callable[[str], object],
    ) -> None:
        self._plan = plan
        self.arena = Arena({side: kafka.cluster for side, kafka in clusters.items()}, {})
        self._say = say
        self._outcome = Outcome(plan)
        self._problems = self._outcome.problems
        self._load = Load(self.arena.bootstrap(Side.SOURCE), plan.seed, plan.setup.records_per_s)
        self._arrivals = Arrivals(self.arena.bootstrap(Side.DESTINATION), _TRANSACTIONAL)
        self._state = logs / "state"
        self._options = ["--topics", _PREFIX.replace(".", r"\.") + ".*", "--group", _GROUP]
        for side, option in ((Side.SOURCE, "--from-config"), (Side.DESTINATION, "--to-config")):
            file = logs / f"{side.value}.properties"
            file.touch(0o600)
            file.write_text(java_properties(_properties(clusters[side])))
            self._options += [option, str(file)]
        self.mirror = _Service(self._options, plan.setup.refresh_s, logs)
        self._began = self._told = self._sampled = 0.0
        self._began_s = math.inf
        self._begun: tuple[str, float] | None = None
        self._noticed_s: float | None = None

    def run(self) -> Outcome:
        for codec in CODECS:
            self._add_topic(LoadedTopic(f"{_PREFIX}{codec}", codec, _PARTITIONS))
        self._add_topic(LoadedTopic(_TRANSACTIONAL, "lz4", _PARTITIONS, transactional=True))
        with ExitStack() as stack:
            stack.enter_context(self._arrivals)
            stack.callback(self.mirror.close)
            self.mirror.start()
            with self._load:
                try:
                    self._await_caught_up(_STARTS_S)
                    self._began, self._began_s = time.monotonic(), time.time()
                    for number, step in enumerate(self._plan.steps):
                        step.play(self, f"{self._plan.seed}/{number}")
                except TimedOut as error:
                    self._problems.append(str(error))
                except KeyboardInterrupt:
                    # The arrivals so far are judged; a second Ctrl-C ends the run at once.
                    self._problems.append("it was ended before its time")
            self._say("the load has ended")
            self._drain()
            self.mirror.stop()
        self._judge()
        return self._outcome

    # During the run

    def _await_caught_up(self, timeout_s: float) -> None:
        def is_caught_up() -> bool:
            self.mirror.check()
            return self._arrivals.lag_s() < _BEHIND_S

        wait_until(is_caught_up, "the mirror to catch up with the load", timeout_s, 0.5)
        self._say("the mirror has caught up")

    def wait_until(self, at_s: float) -> None:
        """Let the mirror follow until a time after it has caught up, in seconds, and see that it lives."""
        self._end_event()
        while (now_s := time.monotonic() - self._began) < at_s:
            self.mirror.check()
            if now_s - self._sampled > _SAMPLE_EVERY_S:
                self._sampled = now_s
                self._outcome.memory += sampled(self.mirror.process.process_id)
            if now_s - self._told > _TELL_EVERY_S:
                self._told = now_s
                used = self._outcome.memory[-1].used if self._outcome.memory else {}
                memory = ", ".join(f"{role.value} {size / 1e6:.0f} MB" for role, size in used.items())
                self._say(f"{self._arrivals.counts.total():,} records have arrived; {memory}")
            time.sleep(min(1.0, at_s - now_s))  # the duration of the soak itself

    # For events

    def expect(self, event: str, incidents: Sequence[IncidentKind], stops: Sequence[str]) -> None:
        """Begin an event. None of a soak explains an incident or a stop."""
        self._say(f"{event} …")
        self._begun = (event, time.time())
        self._noticed_s = None

    def _end_event(self) -> None:
        """Wait until all replicas are in sync, and note when the event began and ended."""
        if self._begun is None:
            return
        self.arena.heal()
        (event, began_s), self._begun = self._begun, None
        self._say(f"  over after {time.time() - began_s:.1f} s")
        self._check_positions(event)
        self._outcome.windows.append(Window(event, began_s, time.time() + _SETTLES_S, self._noticed_s))

    def _check_positions(self, event: str) -> None:
        """Check that no position is ahead of the destination's log."""
        positions = CommittedPositions(self.arena.bootstrap(Side.SOURCE), _GROUP).await_read()
        for topic in {each.topic for each in positions}:
            numbers = [each.partition for each in positions if each.topic == topic]
            # Read after the positions: a log only grows.
            ends = await_ends(self.arena.bootstrap(Side.DESTINATION), topic, max(numbers) + 1)
            for partition, committed in positions.items():
                position = MirrorPosition.from_committed(committed)
                if partition.topic != topic or position is None:
                    continue
                if position.destination_offset > ends[partition.partition]:
                    self._problems.append(
                        f"after {event}: the position of {partition} is ahead of the copy: "
                        f"{position.destination_offset}, and the copy ends at {ends[partition.partition]}"
                    )

    def later(self, dice: random.Random, act: Callable[[], object]) -> None:
        """Act now: the plan has the moments of a soak."""
        act()

    def mirrored(self, side: Side) -> Sequence[str]:
        """Return the topics of a side that the mirror reads or writes."""
        found = AdminClient({"bootstrap.servers": self.arena.bootstrap(side)}).list_topics(timeout=30)
        return [name for name in found.topics if name.startswith(_PREFIX)]

    def notice_topic(self, dice: random.Random) -> None:
        """Create a topic, and wait for its first record at the destination."""
        topic = LoadedTopic(f"{_PREFIX}new-{len(self._outcome.windows)}", dice.choice(CODECS), 2)
        self._await_first(topic.name, range(topic.partitions), self._add_topic(topic))

    def notice_partition(self, dice: random.Random) -> None:
        """Add a partition to a topic, and wait for its first record at the destination."""
        topic = dice.choice(self._load.topics)
        new = topic.partitions
        add_partitions(self.arena.bootstrap(Side.SOURCE), topic.name, new, layout(topic.name, Side.SOURCE, 1))
        created_s = time.time()
        topic.partitions += 1
        self._arrivals.watch(topic.name, [new])
        self._await_first(topic.name, [new], created_s)

    def restart_mirror(self) -> None:
        """Stop the mirror, start it again, and wait until it has caught up."""
        self.mirror.stop()
        self.mirror.start()
        self._await_caught_up(_CATCHES_UP_S)

    def _add_topic(self, topic: LoadedTopic) -> float:
        """Create a topic, load it from now on, and return when it was there."""
        create_topic(self.arena.bootstrap(Side.SOURCE), topic.name, topic.partitions, BROKERS)
        created_s = time.time()
        self._load.topics.append(topic)
        self._arrivals.watch(topic.name, range(topic.partitions))
        return created_s

    def _await_first(self, topic: str, partitions: Sequence[int], created_s: float) -> None:
        limit_s = self._plan.setup.refresh_s + _CATCHES_UP_S
        what = f"a first record of {topic} in {partitions}"
        try:
            wait_until(lambda: self._arrivals.first_of(topic, partitions) is not None, what, limit_s, 0.1)
        except TimedOut as error:
            self._problems.append(str(error))
        else:
            self._noticed_s = (self._arrivals.first_of(topic, partitions) or created_s) - created_s
            self._say(f"  its first record arrived {self._noticed_s:.1f} s after its creation")

    def _drain(self) -> None:
        def is_drained() -> bool:
            self.mirror.check()
            return not self._arrivals.missing(self._load.committed)

        try:
            wait_until(is_drained, "all records to arrive", _DRAINS_S, 0.2)
        except TimedOut as error:
            self._problems.append(f"{error}; missing in {self._arrivals.missing(self._load.committed)}")

    # After the run

    def _judge(self) -> None:
        outcome = self._outcome
        outcome.arrivals = [each for each in self._arrivals.all if each.sent_s >= self._began_s]
        outcome.ends = self.mirror.ends
        outcome.transactions = self._load.transactions
        self._problems += self._load.errors + self._arrivals.errors + self.mirror.problems
        for topic in self._load.topics:
            outcome.comparison += compare(*(self._read(side, topic.name) for side in Side))
        if not outcome.comparison.is_exact:
            self._problems.append("\n".join(["the copies differ", *outcome.comparison.details]))
        if outcome.comparison.due < self._load.committed.total():
            self._problems.append(
                f"the source itself has {outcome.comparison.due} of {self._load.committed.total()} records"
            )
        verified = run_shoal("verify", *self._options, state=self._state, timeout_s=1800)
        outcome.verified = verified.returncode
        if outcome.verified != 0:
            said = (verified.stdout + verified.stderr)[-3000:]
            self._problems.append(f"shoal verify ended with {outcome.verified}: {said}")
        self._judge_memory()
        self._judge_times()

    def _read(self, side: Side, topic: str) -> dict[int, list[Record]]:
        """Read a whole topic; if it was never created, it has no records."""
        return read_topic(self.arena.bootstrap(side), topic) if topic in self.mirrored(side) else {}

    def _judge_memory(self) -> None:
        outcome = self._outcome
        if not outcome.memory:
            return
        last = outcome.memory[-1]
        since = self._began + (last.at_s - self._began) * (1 - _MEMORY_PART)
        judged = [
            each for each in outcome.memory if each.process_id == last.process_id and each.at_s >= since
        ]
        if last.at_s - judged[0].at_s < _MEMORY_S:
            return
        for role in Role:
            outcome.growth[role] = growth_per_hour(judged, role)
            if outcome.growth[role] > GROWTH_PER_HOUR[role]:
                self._problems.append(
                    f"memory of the {role.value} grows by {outcome.growth[role] / 1e6:.1f} MB an hour"
                )

    def _judge_times(self) -> None:
        setup = self._plan.setup
        limit_s = setup.refresh_s + setup.noticed_within_s
        self._problems += [
            f"{window.event}: its first record arrived after {window.noticed_s:.1f} s, not {limit_s:g}"
            for window in self._outcome.windows
            if window.noticed_s is not None and window.noticed_s > limit_s
        ]
        self._problems += [
            f"the mirror ended {seconds:.1f} s after SIGTERM, not within {setup.ends_within_s:g}"
            for seconds in self._outcome.ends
            if seconds > setup.ends_within_s
        ]
