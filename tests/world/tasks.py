"""
The world of a task in this process: two embedded clusters, copy tasks between them, and the judge.

This world sees the mirror from outside: records, committed positions and reports, not how a task works.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Self

from shoal.client.config import IsolationLevel
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, Disconnected, Stopped
from shoal.mirroring.model.incidents import Delivery, IncidentKind
from shoal.mirroring.model.position import MirrorPosition
from shoal.mirroring.model.ranges import CopyRange
from shoal.timing import Clock
from shoal_broker import Broker
from shoal_broker.faults import Faults
from shoal_broker.storage.log import Log
from tests.world.batches import Content
from tests.world.clusters import QUICK, TOPIC, TwoBrokers
from tests.world.contents import batches_of, content_of
from tests.world.control import Killed, Reporting, Watched, partitions_of
from tests.world.driver import Driver, Following
from tests.world.faults import list_by_name
from tests.world.logs import begin_at
from tests.world.planner import planned_ranges
from tests.world.reports import Outcome, check_commits, check_reports, outcome_of
from tests.world.requests import RequestsInFlight, counted
from tests.world.sentences import read
from tests.world.task import RunningTask
from tests.world.waiting import wait_until

from .adoption import ADOPT
from .fencing import Fencing
from .judge import Loss
from .readers import Readers
from .source import SourcePartition

__all__ = ["FOREIGN", "Setup", "TaskWorld"]

#: No record of the source has this value.
FOREIGN = b"of another producer"

_REQUEST_TIMEOUT_MS = 5_000

#: A look at a gap takes a request timeout, and a range with an end waits for as many.
_SHORT_TIMEOUT_MS = 300

#: The longest time of a task: the limits of its waits for a refused batch, a gap, and its last commit.
_TASK_S = (
    QUICK.unexplained_patience_s
    + QUICK.gap_patience_timeouts * _REQUEST_TIMEOUT_MS / 1000
    + QUICK.last_commit_patience_s
)


@dataclass(frozen=True, slots=True)
class Setup:
    """The properties of a world before its first step."""

    nodes: int = 1
    partitions: int = 1
    several_in_a_request: bool = False
    reads_committed: bool = True
    delivery: Delivery = Delivery.EXACTLY_ONCE
    keeps_append_time: bool = False
    source_config: tuple[tuple[str, str], ...] = ()
    destination_config: tuple[tuple[str, str], ...] = ()
    most_metadata_bytes: int = 4_096
    copy_begins_at: int = 0
    adopts: bool = False
    continues: bool = False
    are_same: bool = False
    has_incidents: bool = False
    operator_accepts: bool = True
    is_verified: bool = False
    readers: int = 0
    readers_move: bool = False
    sends_natively: bool = True
    lists_names: bool = False
    takes_over: bool = False


class TaskWorld:
    """
    Two clusters, the producers at the source, and the tasks between them.

    Attributes:
        source: The source cluster.
        destination: The destination cluster.
        partitions: The producers of each partition.
        readers: The consumers of the topic and of its copy.
        brokers: Both clusters, with the settings of the next task.
        expected: The kinds of incidents that events have made possible.
        documented: Parts of the sentences by which partitions may stop until the end of the trial.
        lost_positions: The partitions that may stop for want of a position, until all of them is copied.
        lagging: The partitions whose leader shows less than it has, in this step.
        blocked: Why a partition cannot continue without its operator, by its number.
        controls: Those of the tasks of this step.
        losses: The losses of each partition that tasks reported since they last copied all of it.
        compared: The most records of copies that were compared at a time.
        began_with: The partitions that had a position when the last task was started.
        had_incidents: Whether the mirror reported an incident.
        logs_were_lost: Whether a log lost what was acknowledged, so that offsets may name what is gone.
        level_has_changed: Whether the isolation level is another one than before, so that records of aborted
            transactions may be in the copy, or not.
        unaligned: The partitions of which no task has copied all since a log lost what was acknowledged.
        former_writers: The producers that wrote to each copy when its source was reset. Their late requests
            are foreign.
        fencing: The mirror's place in its group.
        running: The control of the task that was started last.
        clock_is_wrong_by_s: By how many seconds the tasks' wall clock is wrong.
        problems: Sentences about what is wrong.

    """

    def __init__(self, setup: Setup, dice: random.Random, brokers: TwoBrokers) -> None:
        self.setup = setup
        self.dice = dice
        self.source, self.destination = brokers.sources, brokers.destinations
        self.nodes = (*self.source.nodes, *self.destination.nodes)
        self._uncounted_apis = {node: node.apis for node in self.nodes}
        self.source.create_topic(TOPIC, setup.partitions, dict(setup.source_config))
        self.destination.create_topic(TOPIC, setup.partitions, dict(setup.destination_config))
        self.in_flight = [RequestsInFlight(node) for node in self.destination.nodes]
        self.former_max_in_flight = 0
        #: The number of requests of each kind, by the name of the cluster.
        self.requests = {"source": counted(self.source.nodes), "destination": counted(self.destination.nodes)}
        self._counting_since = self.began_at = time.monotonic()
        for node in self.nodes if setup.lists_names else ():
            list_by_name(node)
        self._sound_apis = {node: node.apis for node in self.nodes}
        self.brokers = self._with_settings_of_setup(brokers)
        self.partitions = [
            SourcePartition(
                brokers.source.log(TOPIC, number),
                dice,
                number,
                keeps_append_time=setup.keeps_append_time,
                has_keys="cleanup.policy" in dict(setup.destination_config),
                are_same=setup.are_same,
            )
            for number in range(setup.partitions)
        ]
        for number in range(setup.partitions if setup.copy_begins_at else 0):
            begin_at(self.copy_log(number), setup.copy_begins_at)
        self.longest = [0] * setup.partitions
        self.expected: set[IncidentKind] = set()
        self.documented: list[str] = []
        self.lost_positions: set[int] = set()
        self.lagging: set[int] = set()
        self.blocked: dict[int, str] = {}
        self.problems: list[str] = []
        if "cleanup.policy" in dict(setup.source_config):
            # A gap may be the cleaner's, so after a death contents alone do not always show the place.
            self.expect("compaction", [IncidentKind.SOURCE_RESET], ["nothing shows whether to resume"])
        if setup.takes_over:
            self._let_a_consumer_begin()
        self.readers = Readers(self, setup.readers)
        self.compared = 0
        self.controls: list[Reporting] = []
        self.losses: list[list[Loss]] = [[] for _ in range(setup.partitions)]
        self.began_with: set[int] = set()
        self.had_incidents = self.logs_were_lost = False
        self.level_has_changed = False
        self.unaligned: set[int] = set()
        self.former_writers: list[set[int]] = [set() for _ in range(setup.partitions)]
        self.fencing = Fencing(brokers.source.groups)
        self.running: list[Watched] = []
        self._tasks: list[RunningTask] = []
        self._undo: list[Callable[[], object]] = []
        self.clock_is_wrong_by_s = 0.0

    def _let_a_consumer_begin(self) -> None:
        """Let a consumer of the mirror's group have read some records: the mirror begins behind them."""
        for partition in self.partitions:
            partition.any_batch()
            partition.any_batch()
            offset = self.dice.choice([each.offset for each in partition.records])
            self.brokers.taking_over(offset, TOPIC, partition.number)
            partition.hide_before(offset)

    @classmethod
    @contextmanager
    def started(cls, setup: Setup, dice: random.Random) -> Iterator[Self]:
        """Start both clusters."""
        most_metadata = {"offset_metadata_max_bytes": str(setup.most_metadata_bytes)}
        started = TwoBrokers.started(setup.nodes, multi_batch=setup.several_in_a_request, **most_metadata)
        with started as brokers:
            world = cls(setup, dice, brokers)
            with closing(world.readers):
                yield world

    def _with_settings_of_setup(self, brokers: TwoBrokers) -> TwoBrokers:
        setup = self.setup
        if not setup.reads_committed:
            brokers = brokers.read_uncommitted()
        if setup.lists_names:  # only the metadata show that a topic of this name is another one
            brokers = brokers.with_timing(recreated_after_s=0.0)
        wrong = Clock(wall=lambda: time.time() + self.clock_is_wrong_by_s)
        return brokers.with_timing(clock=wrong).with_settings(
            delivery=setup.delivery,
            keep_append_time=setup.keeps_append_time,
            adopt=setup.adopts,
            takes_over_offsets=setup.takes_over,
            continue_after=frozenset(IncidentKind) if setup.continues else frozenset(),
        )

    def set(self, **changes: Any) -> None:
        """Change the settings of future tasks; a broker may still have requests of the former ones."""
        self.former_max_in_flight = max(self.former_max_in_flight, self.brokers.settings.max_in_flight)
        self.brokers = self.brokers.with_settings(**changes)

    # For events

    def a_node(self) -> Broker:
        """Return one of the brokers of either cluster."""
        return self.dice.choice(self.nodes)

    def a_partition(self) -> SourcePartition:
        """Return one of the partitions."""
        return self.dice.choice(self.partitions)

    def copy_log(self, number: int) -> Log:
        """Return the log of a partition's copy."""
        return self.brokers.destination.log(TOPIC, number)

    @property
    def copied_records(self) -> int:
        """The end offsets of all copies together."""
        return sum(self.copy_log(each.number).log_end_offset for each in self.partitions)

    @property
    def has_source_topic(self) -> bool:
        """Whether the source has the topic."""
        return self.brokers.source.topics.get(TOPIC) is not None

    @property
    def are_same(self) -> bool:
        """Whether records are equal, so that a copy's record may be one of several."""
        return self.setup.are_same or any(each.is_filled_again for each in self.partitions)

    def loses_acknowledged(self, *numbers: int) -> None:
        """Note that logs of these partitions lose what was acknowledged: positions may name what is gone."""
        self._note_lengths()
        self.logs_were_lost = True
        self.unaligned.update(numbers)

    def note_writers(self) -> None:
        """Remember the producers of the copies, just before a reset of the source: others write then."""
        for number, former in enumerate(self.former_writers):
            position = self.position(number)
            if position is not None:
                former.add(position.identity.producer_id)

    def explains(self, number: int, kind: IncidentKind, reason: str) -> bool:
        """Whether an event has made an incident possible, or a late request behind the mirror's records."""
        said, position = read(kind, reason) or {}, self.position(number)
        if kind in self.expected or "ours" not in said or position is None:
            return kind in self.expected
        former = self.former_writers[number] - {position.identity.producer_id}
        return any(
            each.header.base_offset >= said["ours"] and each.header.producer_id in former
            for each in batches_of(self.copy_log(number))
        )

    def _note_lengths(self) -> None:
        """Remember the ends of the copies, which may lose their last records."""
        for number, longest in enumerate(self.longest):
            self.longest[number] = max(longest, self.copy_log(number).log_end_offset)

    def let_late_requests_arrive(self) -> None:
        """
        Wait until the brokers have served all requests of tasks that have ended.

        While a task runs, there is nothing to wait for: its connections stay, and those that came before it
        were waited for when it was started.
        """
        if any(each.is_running for each in self._tasks):
            return
        self.readers.close()  # the mirror's rounds connect again
        wait_until(lambda: not any(node.server.connections for node in self.nodes))

    def at_the_end_of_the_step(self, undo: Callable[[], object]) -> None:
        """Let what an event has changed last until the end of the step."""
        self._undo.append(undo)

    def end_step(self) -> None:
        """Undo what events have changed until now."""
        undo, self._undo = self._undo, []
        for each in undo:
            each()

    def be_hasty_about_gaps(self) -> None:
        """Let future tasks with an end wait a moment for records that the source does not send."""
        self.brokers = self.brokers.with_clients("source", request_timeout_ms=_SHORT_TIMEOUT_MS)
        self.brokers = self.brokers.with_timing(gap_patience_timeouts=1)

    def be_patient(self) -> None:
        """Let future tasks wait for answers as long as at first."""
        sides = "source", "destination"
        self.brokers = self.brokers.with_clients(*sides, request_timeout_ms=_REQUEST_TIMEOUT_MS)
        self.brokers = self.brokers.with_timing(gap_patience_timeouts=QUICK.gap_patience_timeouts)

    def end_faults(self) -> None:
        """Let all brokers answer as they should."""
        for node, apis in self._sound_apis.items():
            node.faults.clear()
            node.apis = apis

    def expect(self, event: str, incidents: Sequence[IncidentKind], stops: Sequence[str]) -> None:
        """Note which incidents, and which other stops, an event makes possible, before it happens."""
        self._note_lengths()
        self.expected.update(incidents)
        self.documented += [each for each in stops if each != ADOPT]
        if ADOPT in stops:
            self.lost_positions.update(range(self.setup.partitions))

    # Requests

    def count_requests(self) -> None:
        """Count the brokers' requests from now on, without those of tasks that have ended."""
        self.let_late_requests_arrive()
        self._counting_since = time.monotonic()
        for each in self.requests.values():
            each.clear()

    @property
    def counted_for_s(self) -> float:
        """How long the requests were counted."""
        return time.monotonic() - self._counting_since

    @property
    def pairs_of_leaders(self) -> int:
        """How many pairs of a source's leader and a destination's have partitions."""
        clusters = (self.source, self.destination)
        return len(
            {
                tuple(each.nodes[0].leaders.of(TOPIC, partition.number) for each in clusters)
                for partition in self.partitions
            }
        )

    def most_in_flight(self) -> int:
        """Return the most requests that were in flight on one connection since the last call."""
        most = max(each.most for each in self.in_flight)
        for each in self.in_flight:
            each.most = 0
        return most

    # Tasks

    def closed_ranges(self) -> list[CopyRange]:
        """Return the ranges up to the present ends of the source's partitions."""
        return self.brokers.ranges(TOPIC)

    def reachable_ends(self) -> list[int]:
        """Return the offsets that a task without an end reaches."""
        ends = [each.end_offset for each in self.closed_ranges()]
        return [min(end, each.last_batch_end) for end, each in zip(ends, self.partitions, strict=True)]

    def planned_ranges(self, *, once: bool = True) -> list[CopyRange]:
        """Return the ranges that a driver plans now; its requests meet no fault, and are not counted."""
        kept = {node: (node.apis, node.faults) for node in self.nodes}
        for node, apis in self._uncounted_apis.items():
            node.apis, node.faults = apis, Faults()
        patient = self.brokers.with_clients("source", "destination", request_timeout_ms=_REQUEST_TIMEOUT_MS)
        try:
            return [self._without_open(each) for each in planned_ranges(patient, once=once)]
        finally:
            for node, (apis, faults) in kept.items():
                node.apis, node.faults = apis, faults

    def _without_open(self, planned: CopyRange) -> CopyRange:
        """
        Let a range end before a transaction that has lost its marker, though a position is behind it.

        The coordinator ends it by its timeout, which a task waits for. Here no coordinator does.
        """
        log = self.brokers.source.log(planned.topic, planned.partition)
        stable = log.last_stable_offset
        is_held = not planned.is_open and self.reads_committed and stable < log.log_end_offset
        return planned._replace(end_offset=min(planned.end_offset, stable)) if is_held else planned

    def open_ranges(self) -> list[CopyRange]:
        """Return the ranges without ends that a driver plans now."""
        return self.planned_ranges(once=False)

    def start(self, control: Watched, ranges: Sequence[CopyRange] | None = None) -> RunningTask:
        """
        Start a task, as the one attempt that may write.

        Args:
            control: The task's control.
            ranges: The ranges to copy; None for those that a driver plans, up to the present ends.

        """
        self._begin_attempt()
        self.fencing.let_begin(control, self.brokers.settings.group)
        self.running = [control]
        task = self.brokers.start(self.planned_ranges() if ranges is None else ranges, control)
        self._tasks = [*(each for each in self._tasks if each.is_running), task]
        return task

    def _begin_attempt(self) -> None:
        """End the former attempt."""
        for former in self.running:
            former.orphan()
        self.running = []
        self.began_with = {each.number for each in self.partitions if self.position(each.number)}
        self.began_at = time.monotonic()

    @contextmanager
    def driven(self, lease_s: float = 60.0, **times: Any) -> Iterator[Driver]:
        """
        Let a driver and its tasks be the one attempt that may write, with leases and other times.

        The reports of its tasks are compared at the end.
        """
        self._begin_attempt()
        driver = Driver(self.brokers.with_timing(**times), lease_s=lease_s)
        driver.join_group(self.fencing)
        try:
            yield driver
        finally:
            driver.close()
        self.controls.append(driver)
        check_reports(self, driver)

    def finish_driven(self, task: Following) -> None:
        """Wait for the end of a driver's task that was asked to end."""
        try:
            task.running.result(_TASK_S)
        except Disconnected:
            pass  # its last commit is held back for longer than a task waits, so Spark repeats the task
        except BrokerError as error:
            if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                raise
        finally:
            task.control.close()

    def finish(self, running: RunningTask, control: Watched) -> Outcome:
        """Wait for a task's end; note stops and incidents that no event explains."""
        try:
            result = running.result(_TASK_S)
        except Killed:
            return Outcome(was_killed=True)
        except Stopped:
            return Outcome()  # an orphan
        except BrokerError as error:
            if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                raise
            return Outcome()  # its last commit needs a new generation, so Spark repeats the task
        finally:
            self.controls.append(control)
            check_reports(self, control)
        if control.is_dead:
            self.problems.append(f"a task was killed, and returned {result}")
        if result.complete and not control.stop_requested:
            check_commits(self, control)
        return outcome_of(self, result, control)

    def run(self, control: Watched | None = None, ranges: Sequence[CopyRange] | None = None) -> Outcome:
        """Run a task to its end."""
        control = control or Watched()
        return self.finish(self.start(control, ranges), control)

    # Copies

    def position(self, number: int) -> MirrorPosition | None:
        """Return a partition's committed position, as the coordinator has it."""
        return self.brokers.committed(TOPIC, number)

    def copied(self, number: int) -> list[Content]:
        """Return the records of a copy that are not another producer's, nor of late, foreign requests."""
        is_compacted = "compact" in dict(self.setup.destination_config).get("cleanup.policy", "")
        former = self.former_writers[number]
        found = content_of(self.copy_log(number), is_compacted=is_compacted, former=former)
        return [each for each in found if each.value != FOREIGN]

    def has_caught_up(self, control: Reporting, ends: Sequence[int]) -> bool:
        """Whether each partition reports its end, and that it has copied up to one, or has stopped."""
        behind = dict(enumerate(ends))
        for each in partitions_of(control):
            reached = each["source_offset"]
            knows_both = reached is not None and each["end_offset"] is not None
            if each["stopped"] or (knows_both and reached >= ends[each["partition"]]):
                behind.pop(each["partition"], None)
        return not behind

    @property
    def reads_committed(self) -> bool:
        """Whether the next task leaves out records of aborted and open transactions."""
        return self.brokers.settings.source.isolation_level is IsolationLevel.READ_COMMITTED
