"""A soak from its first broker to its verdict."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rig.judge import Verdict, compare
from rig.load import CODECS
from rig.read import read_topic
from rig.record import Record
from rig.wait import TimedOut, wait_until
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.position import MirrorPosition
from tests.campaigns.clusters.arena import Side
from tests.campaigns.clusters.positions import CommittedPositions

from .clusters import GROUP, PREFIX, LockedClusters, open_clusters
from .ledger import Arrival, Ledger
from .load import Load, LoadedTopic
from .memory import GROWTH_PER_HOUR, MemorySample, MemoryWatch, Role, growth_per_hour
from .mirror import Ended, Mirror
from .plan import SoakPlan
from .watch import Watch

__all__ = ["Outcome", "SoakWorld", "Window", "soak"]

#: Time after an event, from its replicas' being in sync again, that still counts as part of it.
_SETTLES_S = 15.0

#: Long, since a developer may run other things beside it.
_STARTS_S = 900.0
_CATCHES_UP_S = 120.0
#: If the lag is smaller, the mirror has caught up.
_BEHIND_S = 3.0
_DRAINS_S = 180.0

#: Memory is judged over the last part of a run, in one process of the mirror that runs for this long.
_MEMORY_PART = 0.5
_MEMORY_S = 600.0

_PARTITIONS = 3
_TELL_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Window:
    """An event, from its beginning to the full recovery; nanoseconds since 1970.

    Attributes:
        noticed_s: Time from the creation of a topic or a partition to the arrival of its first record.
    """

    event: str
    began_ns: int
    ended_ns: int
    noticed_s: float | None = None

    def touches(self, arrival: Arrival) -> bool:
        return arrival.sent_ns <= self.ended_ns and arrival.arrived_ns >= self.began_ns


@dataclass
class Outcome:
    """The result of a soak.

    Attributes:
        began_ns: Time at which the mirror had caught up with the load for the first time.
        arrivals: Arrivals of records that were sent after that.
        tally: Verdict of the consumer that read during the whole run.
        comparison: Verdict on both clusters' topics, read once more at the end.
        verified: Exit code and output of ``shoal verify``.
        transactions: Numbers of committed and of aborted ones.
        problems: Sentences; empty if there is none.
    """

    plan: SoakPlan
    began_ns: int = 0
    ended_ns: int = 0
    windows: list[Window] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    memory: list[MemorySample] = field(default_factory=list)
    growth: dict[Role, float] = field(default_factory=dict)
    tally: Verdict = field(default_factory=Verdict)
    comparison: Verdict = field(default_factory=Verdict)
    verified: int | None = None
    ends: list[Ended] = field(default_factory=list)
    transactions: tuple[int, int] = (0, 0)
    partitions: int = 0
    problems: list[str] = field(default_factory=list)


def soak(plan: SoakPlan, logs: Path, say: Callable[[str], object]) -> Outcome:
    """Run a soak.

    Args:
        logs: A directory, created if it is missing: the mirror's messages and Spark's log.
        say: Receives progress messages, one line each.
    """
    logs.mkdir(parents=True, exist_ok=True)
    # A login lasts a fifteenth of the run, so that the mirror renews it often.
    with open_clusters(relogin_ms=int(plan.setup.seconds * 1000 / 15)) as clusters:
        say("six brokers run")
        return SoakWorld(plan, clusters, logs, say).run()


class SoakWorld:
    """Two locked clusters, a steady load, and one mirror between them that runs for the whole soak.

    Attributes:
        arena: The clusters.
        mirror: The mirror.
    """

    def __init__(
        self, plan: SoakPlan, clusters: LockedClusters, logs: Path, say: Callable[[str], object]
    ) -> None:
        self._plan = plan
        self._setup = plan.setup
        self._clusters = clusters
        self.arena = clusters.arena
        self._say = say
        self._outcome = Outcome(plan, began_ns=time.time_ns())
        self._ledger = Ledger()
        self._load = Load(clusters.bootstrap(Side.SOURCE), self._ledger, plan.seed, plan.setup.records_per_s)
        self._watch = Watch(clusters.bootstrap(Side.DESTINATION), self._ledger, PREFIX)
        self.mirror = Mirror(clusters, plan.setup, logs)
        self._memory = MemoryWatch(lambda: self.mirror.process_id)
        self._began = 0.0
        self._told = 0.0
        self._begun: tuple[str, int] | None = None
        self._noticed_s: float | None = None

    def run(self) -> Outcome:
        for codec in CODECS:
            self._add_topic(LoadedTopic(f"{PREFIX}{codec}", codec, _PARTITIONS))
        self._add_topic(LoadedTopic(f"{PREFIX}transactional", "lz4", _PARTITIONS, transactional=True))
        with self._watch, self.mirror, self._memory:
            self.mirror.start()
            with self._load:
                try:
                    self._await_caught_up()
                    self._let_time_pass()
                except TimedOut as error:
                    self._outcome.problems.append(str(error))
                except KeyboardInterrupt:
                    # The arrivals so far are judged; a second Ctrl-C ends the run at once.
                    self._outcome.problems.append("it was ended before its time")
                self._outcome.ended_ns = time.time_ns()
            self._say("the load has ended")
            self._drain()
            self.mirror.stop()
        self._judge()
        return self._outcome

    # During the run

    def _await_caught_up(self) -> None:
        def is_caught_up() -> bool:
            self.mirror.check()
            return self._ledger.count()[1] > 0 and self._ledger.oldest_missing_s() < _BEHIND_S

        wait_until(is_caught_up, "the mirror to catch up with the load", _STARTS_S, 0.5)
        self._began, self._outcome.began_ns = time.monotonic(), time.time_ns()
        self._say("the mirror has caught up")

    def _let_time_pass(self) -> None:
        for number, step in enumerate(self._plan.steps):
            step.play(self, f"{self._plan.seed}/{number}")

    def wait_until(self, at_s: float) -> None:
        """Let the mirror follow until a time after it has caught up, in seconds, and see that it lives."""
        self._end_event()
        while (now_s := time.monotonic() - self._began) < at_s:
            self.mirror.check()
            if now_s - self._told > _TELL_EVERY_S:
                self._told = now_s
                self._tell()
            time.sleep(min(1.0, at_s - now_s))  # the duration of the soak itself

    def _tell(self) -> None:
        sent, arrived = self._ledger.count()
        used = self._memory.samples[-1].used if self._memory.samples else {}
        memory = ", ".join(f"{role.value} {size / 1e6:.0f} MB" for role, size in used.items())
        self._say(f"{sent:,} records sent, {arrived:,} arrived; {memory}")

    # For events

    def expect(self, event: str, incidents: Sequence[IncidentKind], stops: Sequence[str]) -> None:
        """Begin an event. None of a soak explains an incident or a stop."""
        self._say(f"{event} …")
        self._begun = (event, time.time_ns())
        self._noticed_s = None

    def _end_event(self) -> None:
        """Wait until all replicas are in sync, and note when the event began and ended."""
        if self._begun is None:
            return
        self.arena.heal()
        (event, began_ns), self._begun = self._begun, None
        self._say(f"  over after {(time.time_ns() - began_ns) / 1e9:.1f} s")
        self._check(event)
        ended_ns = time.time_ns() + int(_SETTLES_S * 1e9)
        self._outcome.windows.append(Window(event, began_ns, ended_ns, self._noticed_s))

    def _check(self, event: str) -> None:
        """Judge what has arrived so far, and the positions: none is ahead of the destination's log."""
        found = self._ledger.verdict()
        if found.twice or found.late or found.foreign:
            self._outcome.problems.append(f"after {event}: the consumer at the destination saw {found}")
        positions = CommittedPositions(self._clusters.bootstrap(Side.SOURCE), GROUP).await_read()
        # Read after the positions: a log only grows.
        ends = self._clusters.ends(Side.DESTINATION, list(positions))
        for partition, committed in positions.items():
            position = MirrorPosition.from_committed(committed)
            if position is not None and position.destination_offset > ends[partition]:
                self._outcome.problems.append(
                    f"after {event}: the position of {partition} is ahead of the copy: "
                    f"{position.destination_offset}, and the copy ends at {ends[partition]}"
                )

    def later(self, dice: random.Random, act: Callable[[], object]) -> None:
        """Act now: the plan has the moments of a soak."""
        act()

    def mirrored(self, side: Side) -> Sequence[str]:
        """Return the topics of a side that the mirror reads or writes."""
        return self._clusters.topics(side)

    def notice_topic(self, dice: random.Random) -> None:
        """Create a topic, and wait for its first record at the destination."""
        name = f"{PREFIX}new-{len(self._outcome.windows)}"
        topic = LoadedTopic(name, dice.choice(CODECS), 2)
        created_ns = self._add_topic(topic)
        self._noticed_s = self._await_first(topic.name, list(range(topic.partitions)), created_ns)

    def notice_partition(self, dice: random.Random) -> None:
        """Add a partition to a topic, and wait for its first record at the destination."""
        topic = dice.choice(self._load.topics)
        new = topic.partitions
        created_ns = self._clusters.new_partition(topic.name, new + 1)
        topic.partitions += 1
        self._noticed_s = self._await_first(topic.name, [new], created_ns)

    def restart_mirror(self) -> None:
        """Stop the mirror, start it again, and wait until it has caught up."""
        self.mirror.stop()
        self._say(f"  it ended after {self.mirror.ends[-1].seconds:.1f} s")
        self.mirror.start()
        self._await_again()

    def _await_again(self) -> None:
        wait_until(
            lambda: self._ledger.oldest_missing_s() < _BEHIND_S, "the mirror to catch up", _CATCHES_UP_S
        )

    def _add_topic(self, topic: LoadedTopic) -> int:
        created_ns = self._clusters.new_topic(topic.name, topic.partitions)
        self._load.add(topic)
        return created_ns

    def _await_first(self, topic: str, partitions: list[int], created_ns: int) -> float | None:
        limit_s = self._setup.refresh_s + _CATCHES_UP_S
        what = f"a first record of {topic} in {partitions}"
        try:
            wait_until(
                lambda: self._ledger.first_arrival_ns(topic, partitions) is not None, what, limit_s, 0.1
            )
        except TimedOut as error:
            self._outcome.problems.append(str(error))
            return None
        first_ns = self._ledger.first_arrival_ns(topic, partitions)
        assert first_ns is not None
        self._say(f"  its first record arrived {(first_ns - created_ns) / 1e9:.1f} s after its creation")
        return (first_ns - created_ns) / 1e9

    def _drain(self) -> None:
        def is_drained() -> bool:
            self.mirror.check()
            return not self._ledger.missing()

        try:
            wait_until(is_drained, "all records to arrive", _DRAINS_S, 0.2)
        except TimedOut as error:
            missing = [f"{topic}-{number}" for topic, number in self._ledger.missing()]
            self._outcome.problems.append(f"{error}; missing in {', '.join(sorted(missing))}")

    # After the run

    def _judge(self) -> None:
        outcome = self._outcome
        outcome.tally = self._ledger.verdict()
        outcome.arrivals = [each for each in self._ledger.arrivals() if each.sent_ns >= outcome.began_ns]
        outcome.memory, outcome.ends = self._memory.samples, self.mirror.ends
        outcome.transactions = self._load.transactions
        outcome.partitions = sum(topic.partitions for topic in self._load.topics)
        outcome.problems += self._load.errors + self._watch.errors + self.mirror.problems
        self._compare()
        outcome.verified, said = self.mirror.verify()
        if outcome.verified != 0:
            outcome.problems.append(f"shoal verify ended with {outcome.verified}: {said[-3000:]}")
        self._judge_memory()
        self._judge_times()

    def _compare(self) -> None:
        outcome, tally = self._outcome, self._outcome.tally
        for topic in self._load.topics:
            outcome.comparison += compare(*(self._read(side, topic.name) for side in Side))
        if not tally.is_exact:
            outcome.problems.append(f"the consumer at the destination saw {tally}")
        if not outcome.comparison.is_exact:
            outcome.problems.append("\n".join(["the copies differ", *outcome.comparison.details]))
        if outcome.comparison.due < tally.due:
            outcome.problems.append(
                f"the source itself has {outcome.comparison.due} of {tally.due} committed records"
            )

    def _read(self, side: Side, topic: str) -> dict[int, list[Record]]:
        """Read a whole topic; if it was never created, it has no records."""
        is_there = topic in self._clusters.topics(side)
        return read_topic(self._clusters.bootstrap(side), topic) if is_there else {}

    def _judge_memory(self) -> None:
        outcome = self._outcome
        if not outcome.memory:
            return
        last = outcome.memory[-1]
        since = max(self._began + (last.at_s - self._began) * (1 - _MEMORY_PART), self._began)
        judged = [
            each for each in outcome.memory if each.process_id == last.process_id and each.at_s >= since
        ]
        if last.at_s - judged[0].at_s < _MEMORY_S:
            return
        for role in Role:
            outcome.growth[role] = growth_per_hour(judged, role)
            if outcome.growth[role] > GROWTH_PER_HOUR[role]:
                outcome.problems.append(
                    f"memory of the {role.value} grows by {outcome.growth[role] / 1e6:.1f} MB an hour"
                )

    def _judge_times(self) -> None:
        outcome = self._outcome
        limit_s = self._setup.refresh_s + self._setup.noticed_within_s
        outcome.problems += [
            f"{window.event}: its first record arrived after {window.noticed_s:.1f} s, not {limit_s:g}"
            for window in outcome.windows
            if window.noticed_s is not None and window.noticed_s > limit_s
        ]
        outcome.problems += [
            f"the mirror ended {end.seconds:.1f} s after SIGTERM, not within {self._setup.ends_within_s:g}"
            for end in outcome.ends
            if end.seconds > self._setup.ends_within_s
        ]
