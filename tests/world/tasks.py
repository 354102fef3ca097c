"""
The world of a task in this process: two embedded clusters, copy tasks between them, and the judge.

This world sees the mirror from outside: records, committed positions and reports, not how a task works.
"""

from __future__ import annotations

import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from shoal.client.committed_offsets import Committed
from shoal.client.config import ClientConfig, IsolationLevel
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, PartitionStopped, Stopped
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.incidents import Delivery, IncidentKind
from shoal.mirroring.model.position import MirrorPosition
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.protocol.apis import ApiKey
from shoal.records import Decision
from shoal_broker import Broker
from shoal_broker.clock import now_ms
from shoal_broker.cluster import BrokerCluster
from shoal_broker.coordination.group import CommittedOffset
from shoal_broker.storage.log import Log
from tests.world.batches import Content
from tests.world.clusters import QUICK, TwoBrokers, config_of
from tests.world.contents import batches_of, content_of, content_of_batch
from tests.world.control import Killed, Watched
from tests.world.driver import Driver, Following
from tests.world.logs import begin_at
from tests.world.task import RunningTask, TaskResult
from tests.world.waiting import wait_until

from .fencing import Fencing
from .in_flight import RequestsInFlight
from .judge import Judge, Loss
from .maps import pieces_of, wrong_translations
from .quiet import LARGE_BUFFER_BYTES
from .readers import Readers
from .requests import RequestsCounted
from .source import SourcePartition, Written

__all__ = ["FOREIGN", "TOPIC", "Outcome", "Setup", "TaskWorld"]

TOPIC = "topic"

#: No record of the source has this value.
FOREIGN = b"of another producer"

_REQUEST_TIMEOUT_MS = 5_000

#: A look at a gap takes a request timeout, and a range with an end waits for as many.
_SHORT_TIMEOUT_MS = 300

#: The longest time of a task, with all its faults: ten times what a busy machine has shown.
_TASK_S = 200.0


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    The end of a task.

    Attributes:
        is_complete: Whether all partitions are done or stopped.
        stopped: The sentence by which a partition stopped, by its number.
        stopped_at: The source offset at which it stopped, of each that was copied up to there.
        was_killed: Whether its process died.

    """

    is_complete: bool = False
    stopped: dict[int, str] = field(default_factory=dict)
    stopped_at: dict[int, int] = field(default_factory=dict)
    was_killed: bool = False


class Reporting(Protocol):
    """A source of tasks' reports: the control of one, or a driver."""

    @property
    def reports(self) -> list[dict[str, Any]]:
        """All reports, as JSON objects."""


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
        blocked: Why a partition cannot continue without its operator, by its number.
        controls: Those of the tasks of this step.
        losses: The losses of each partition that tasks reported since they last copied all of it.
        compared: The most records of copies that were compared at a time.
        deaths: How many tasks were killed.
        logs_were_lost: Whether a log lost what was acknowledged, so that offsets may name what is gone.
        level_has_changed: Whether the isolation level is another one than before, so that records of aborted
            transactions may be in the copy, or not.
        unaligned: The partitions of which no task has copied all since a log lost what was acknowledged.
        fencing: The mirror's place in its group.
        running: The control of the task that was started last.
        clock_is_wrong_by_s: By how many seconds the tasks' wall clock is wrong.
        problems: Sentences about what is wrong.

    """

    def __init__(self, setup: Setup, dice: random.Random, stack: ExitStack) -> None:
        self.setup = setup
        self.dice = dice
        config = {"shoal.multi.batch.produce": str(setup.several_in_a_request).lower()}
        most_metadata = {"offset.metadata.max.bytes": str(setup.most_metadata_bytes)}
        self.source = stack.enter_context(
            BrokerCluster(setup.nodes, cluster_id="source", config=most_metadata)
        )
        self.destination = stack.enter_context(
            BrokerCluster(setup.nodes, cluster_id="destination", config=config)
        )
        self.source.create_topic(TOPIC, setup.partitions, dict(setup.source_config))
        self.destination.create_topic(TOPIC, setup.partitions, dict(setup.destination_config))
        self._in_flight = [RequestsInFlight(node) for node in self.destination.nodes]
        self._counted = {
            "source": RequestsCounted(self.source.nodes),
            "destination": RequestsCounted(self.destination.nodes),
        }
        self._counting_since = self._began_at = time.monotonic()
        if setup.lists_names:
            self._be_of_before_topic_ids()
        self._sound_apis = {node: node.apis for node in (*self.source.nodes, *self.destination.nodes)}
        self.brokers = TwoBrokers(self.source.nodes[0], self.destination.nodes[0], self._settings())
        self.partitions = [
            SourcePartition(
                self.source.nodes[0].log(TOPIC, number),
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
        #: How long the log of each partition's copy ever was before an event.
        self._longest = [0] * setup.partitions
        self.expected: set[IncidentKind] = set()
        self.documented: list[str] = []
        self.blocked: dict[int, str] = {}
        self.problems: list[str] = []
        if "cleanup.policy" in dict(setup.source_config):
            # A gap may be the cleaner's, so after a death contents alone do not always show the place.
            self.expect("compaction", [IncidentKind.SOURCE_RESET], ["nothing shows whether to resume"])
        if setup.takes_over:
            self._let_a_consumer_begin()
        self.readers = Readers(self, setup.readers)
        stack.callback(self.readers.close)
        self.compared = 0
        self.deaths = 0
        self.controls: list[Reporting] = []
        self.losses: list[list[Loss]] = [[] for _ in range(setup.partitions)]
        self.logs_were_lost = False
        self.level_has_changed = False
        self.unaligned: set[int] = set()
        self.fencing = Fencing(self.source.nodes[0].groups)
        self.running: list[Watched] = []
        self._undo: list[Callable[[], object]] = []
        self.clock_is_wrong_by_s = 0.0

    def _be_of_before_topic_ids(self) -> None:
        """Let brokers offer the versions of Kafka 3.0, by which requests list topics by name."""
        for node in (*self.source.nodes, *self.destination.nodes):
            older = {api: replace(node.apis[api], newest=12) for api in (ApiKey.FETCH, ApiKey.PRODUCE)}
            node.apis = {**node.apis, **older}

    def _let_a_consumer_begin(self) -> None:
        """Let a consumer of the mirror's group have read some records: the mirror begins behind them."""
        for partition in self.partitions:
            partition.any_batch()
            partition.any_batch()
            offset = self.dice.choice([each.offset for each in partition.records])
            consumed = {(TOPIC, partition.number): CommittedOffset(offset, -1, "", now_ms())}
            self.source.nodes[0].groups.commit("mirror", consumed)
            partition.hide_before(offset)

    @classmethod
    @contextmanager
    def started(cls, setup: Setup, dice: random.Random) -> Iterator[Self]:
        """Start both clusters."""
        with ExitStack() as stack:
            yield cls(setup, dice, stack)

    def _settings(self) -> CopySettings:
        setup = self.setup
        level = IsolationLevel.READ_COMMITTED if setup.reads_committed else IsolationLevel.READ_UNCOMMITTED
        return CopySettings(
            source=_config_of("source", self.source.nodes, isolation_level=level),
            destination=_config_of("destination", self.destination.nodes),
            group="mirror",
            rules="rules",
            fetch_buffer_bytes=4 * 1024 * 1024,
            multi_batch=setup.several_in_a_request,
            delivery=setup.delivery,
            keep_append_time=setup.keeps_append_time,
            adopt=setup.adopts,
            takes_over_offsets=setup.takes_over,
            continue_after=frozenset(IncidentKind) if setup.continues else frozenset(),
            # Only the metadata show that a topic of this name is another one.
            timing=replace(QUICK, recreated_after_s=0.0) if setup.lists_names else QUICK,
        )

    def set(self, **changes: Any) -> None:
        """Change the settings of future tasks."""
        self.brokers = self.brokers.with_settings(**changes)

    # For events

    def a_node(self) -> Broker:
        """Return one of the brokers of either cluster."""
        return self.dice.choice([*self.source.nodes, *self.destination.nodes])

    def a_partition(self) -> SourcePartition:
        """Return one of the partitions."""
        return self.dice.choice(self.partitions)

    def copy_log(self, number: int) -> Log:
        """Return the log of a partition's copy."""
        return self.destination.nodes[0].log(TOPIC, number)

    @property
    def copied_records(self) -> int:
        """The end offsets of all copies together."""
        return sum(self.copy_log(each.number).log_end_offset for each in self.partitions)

    @property
    def has_source_topic(self) -> bool:
        """Whether the source has the topic."""
        return self.source.nodes[0].topics.get(TOPIC) is not None

    def loses_acknowledged(self, *numbers: int) -> None:
        """Note that logs of these partitions lose what was acknowledged: positions may name what is gone."""
        self.logs_were_lost = True
        self.unaligned.update(numbers)

    def let_late_requests_arrive(self) -> None:
        """Wait until the brokers have served all requests of tasks that have ended."""
        self.readers.close()  # the mirror's rounds connect again
        nodes = (*self.source.nodes, *self.destination.nodes)
        wait_until(lambda: not any(node.server.connections for node in nodes))

    def at_the_end_of_the_step(self, undo: Callable[[], object]) -> None:
        """Let what an event has changed last until the end of the step."""
        self._undo.append(undo)

    def end_step(self) -> None:
        """Undo what events have changed until now."""
        for undo in self._undo:
            undo()
        self._undo.clear()

    def be_hasty_about_gaps(self) -> None:
        """Let future tasks with an end wait a moment for records that the source does not send."""
        settings = self.brokers.settings
        source = replace(settings.source, request_timeout_ms=_SHORT_TIMEOUT_MS)
        self.set(source=source, timing=replace(settings.timing, gap_patience_timeouts=1))

    def be_patient(self) -> None:
        """Let future tasks wait for answers as long as at first."""
        settings = self.brokers.settings
        self.set(
            source=replace(settings.source, request_timeout_ms=_REQUEST_TIMEOUT_MS),
            destination=replace(settings.destination, request_timeout_ms=_REQUEST_TIMEOUT_MS),
            timing=replace(settings.timing, gap_patience_timeouts=QUICK.gap_patience_timeouts),
        )

    def end_faults(self) -> None:
        """Let all brokers answer as they should."""
        for node, apis in self._sound_apis.items():
            node.faults.clear()
            node.apis = apis

    def expect(self, event: str, incidents: Sequence[IncidentKind], stops: Sequence[str]) -> None:
        """Note which incidents, and which other stops, an event makes possible, before it happens."""
        for partition in self.partitions:
            end = self.copy_log(partition.number).log_end_offset
            self._longest[partition.number] = max(self._longest[partition.number], end)
        self.expected.update(incidents)
        self.documented += stops

    # Requests

    def count_requests(self) -> None:
        """Count the brokers' requests from now on, without those of tasks that have ended."""
        self.let_late_requests_arrive()
        self._counting_since = time.monotonic()
        for each in self._counted.values():
            each.begin()

    @property
    def counted_for_s(self) -> float:
        """How long the requests were counted."""
        return time.monotonic() - self._counting_since

    @property
    def requests(self) -> dict[str, Counter[ApiKey]]:
        """The number of requests of each kind, by the name of the cluster."""
        return {side: each.counts for side, each in self._counted.items()}

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
        most = max(each.most for each in self._in_flight)
        for each in self._in_flight:
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

    def open_ranges(self) -> list[CopyRange]:
        """Return ranges without ends."""
        return [each._replace(end_offset=OPEN_END) for each in self.closed_ranges()]

    def start(self, control: Watched, ranges: Sequence[CopyRange] | None = None) -> RunningTask:
        """
        Start a task, as the one attempt that may write.

        Args:
            control: The task's control.
            ranges: The ranges to copy; None for all up to the present ends.

        """
        self._begin_attempt()
        self.fencing.let_begin(control, self.brokers.settings.group)
        self.running = [control]
        return self.brokers.start(self.closed_ranges() if ranges is None else ranges, control)

    def _begin_attempt(self) -> None:
        """End the former attempt."""
        for former in self.running:
            former.orphan()
        self.running = []
        self._began_at = time.monotonic()

    @contextmanager
    def driven(self, **times: Any) -> Iterator[Driver]:
        """
        Let a driver and its tasks be the one attempt that may write, with other times.

        The reports of its tasks are compared at the end.
        """
        self._begin_attempt()
        driver = Driver(self.brokers.with_timing(**times))
        driver.join_group(self.fencing)
        try:
            yield driver
        finally:
            driver.close()
        self.controls.append(driver)
        self._check_reports(driver)

    def finish_driven(self, task: Following) -> None:
        """Wait for the end of a driver's task that was asked to end."""
        try:
            task.running.result(_TASK_S)
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
            self.deaths += 1
            self._check_reports(control)
            return Outcome(was_killed=True)
        except Stopped:
            self._check_reports(control)
            return Outcome()  # an orphan
        except BrokerError as error:
            if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                raise
            self._check_reports(control)
            return Outcome()  # its last commit needs a new generation, so Spark repeats the task
        finally:
            self.controls.append(control)
        if control.is_dead:
            self.problems.append(f"a task was killed, and returned {result}")
        self._check_reports(control)
        return self.outcome(result, control)

    def run(self, control: Watched | None = None, ranges: Sequence[CopyRange] | None = None) -> Outcome:
        """Run a task to its end."""
        control = control or Watched()
        return self.finish(self.start(control, ranges), control)

    def _check_reports(self, control: Reporting) -> None:
        for each in _partitions_of(control):
            number = each["partition"]
            self.problems += [f"partition {number}: {problem}" for problem in _miscounted(each)]
            for kind, reason, lost, has_continued in each["incidents"]:
                self._note_loss(number, IncidentKind(kind), lost)
                if has_continued:
                    self._check_incident(number, IncidentKind(kind), reason, lost)
                patience_s = self.brokers.settings.source.request_timeout_s
                if kind == IncidentKind.SOURCE_GAP.value and time.monotonic() < self._began_at + patience_s:
                    self.problems.append(f"partition {number}: nobody waited for records: {reason}")
                if IncidentKind(kind) not in self.expected:
                    self.problems.append(f"partition {number}: an incident out of nothing: {reason}")

    def _check_incident(self, number: int, kind: IncidentKind, reason: str, lost: int | None) -> None:
        """Compare what an incident says with its own offsets, and with how long the logs ever were."""
        where = f"partition {number}: {kind.value} lost {lost}"
        if not self.brokers.settings.continues_after(kind):
            self.problems.append(f"{where}, and no policy lets a partition continue behind it: {reason}")
        longest = max(self._longest[number], self.copy_log(number).log_end_offset)
        if kind is IncidentKind.DESTINATION_LOSS:
            ends = re.search(r" ends at offset (\d+)", reason)
            most = longest - (int(ends[1]) if ends else 0)
            again = re.search(r"copies source offsets? (\d+)(?: to (\d+))? again", reason)
            # And the offsets that the source has deleted, perhaps those of a topic that it had before.
            source = self.partitions[number]
            source_end = max(source.log.log_end_offset, *(each.offset + 1 for each in source.records), 0)
            most += source_end
            if lost is not None and not 0 <= lost <= most:
                self.problems.append(f"{where}, and the copy lacks no more than {most}: {reason}")
            if again and again[2] and int(again[1]) > int(again[2]):
                self.problems.append(f"{where}, and copies nothing again: {reason}")
            if again and int(again[2] or again[1]) >= source_end:
                self.problems.append(f"{where}, and the source never had more than {source_end}: {reason}")
        elif "the mirror copies source" in reason:
            self.problems.append(f"{where}, and copies again: {reason}")
        foreign = re.search(r"foreign record at offset (\d+), .* ends behind offset (\d+)", reason)
        if foreign and not int(foreign[1]) <= int(foreign[2]) < longest:
            self.problems.append(f"{where}, and the copy is no longer than {longest}: {reason}")
        if "created again since" in reason and reason.endswith("ends at offset 0"):
            self.problems.append(f"{where}, and an empty copy is one that was deleted: {reason}")
        gap = re.search(r"does not send offset (\d+): .* reaches to offset (\d+)", reason)
        if gap and not (lost is not None and 0 < lost <= int(gap[2]) - int(gap[1])):
            self.problems.append(f"{where}, and its offsets say otherwise: {reason}")
        places = re.search(r"does not have offset (\d+) any more, its log begins at (\d+)", reason)
        if places and lost not in (None, int(places[2]) - int(places[1])):
            self.problems.append(f"{where}, and its offsets say otherwise: {reason}")

    def _note_loss(self, number: int, kind: IncidentKind, lost: int | None) -> None:
        # A mirror copies all that a source has after its reset: an unknown number is of records that are gone
        # there, and no copy need have these.
        if lost is not None or kind is not IncidentKind.SOURCE_RESET:
            self.losses[number].append(Loss(lost, len(self.partitions[number].records)))

    def outcome(self, result: TaskResult, control: Reporting) -> Outcome:
        """Note the stops that no event explains, and return the end of tasks."""
        stopped = {each.partition: each.reason for each in result.stopped}
        self.problems += [problem for each in result.stopped for problem in _lost_elsewhere(each)]
        for number, reason in stopped.items():
            kinds = {
                IncidentKind(kind)
                for each in _partitions_of(control)
                if each["partition"] == number
                for kind, _, _, has_continued in each["incidents"]
                if not has_continued
            }
            if (
                "AUTHORIZATION_FAILED" in reason
                and "--allow-principal" not in reason
                and "Grant" not in reason
            ):
                self.problems.append(f"partition {number} stopped without a remedy: {reason}")
            grown = re.search(r"ended at offset (\d+) and ends at (\d+) now", reason)
            if grown and grown[1] == grown[2]:
                self.problems.append(f"partition {number} stopped, and its offsets say otherwise: {reason}")
            if any(part in reason for part in self.documented):
                self.blocked[number] = reason
            elif not kinds or not kinds <= self.expected:
                self.problems.append(f"partition {number} stopped, and no event explains it: {reason}")
        reached = {each.partition: each.offset for each in result.stopped if each.unmirrored_from is None}
        return Outcome(result.complete, stopped, reached)

    # The judge

    def position(self, number: int) -> MirrorPosition | None:
        """Return a partition's committed position, as the coordinator has it."""
        group = self.brokers.settings.group
        kept = self.source.nodes[0].groups.read(group, lambda found: found.offsets.get((TOPIC, number)))
        return None if kept is None else MirrorPosition.from_committed(Committed(kept.offset, kept.metadata))

    def copied(self, number: int) -> list[Content]:
        """Return the records of a copy that are not another producer's."""
        is_compacted = "compact" in dict(self.setup.destination_config).get("cleanup.policy", "")
        found = content_of(self.copy_log(number), is_compacted=is_compacted)
        return [each for each in found if each.value != FOREIGN]

    def check(self, outcome: Outcome | None = None, ends: Sequence[int] | None = None) -> None:
        """
        Compare the copies with what producers wrote, and with what the mirror says of itself.

        Args:
            outcome: The end of the last task.
            ends: The source offsets up to which it should have copied.

        """
        most = self.most_in_flight()
        settings = self.brokers.settings
        # Whether a leader takes several batches is asked by two requests together.
        if most > max(settings.max_in_flight, 2 * settings.tries_multi_batch):
            self.problems.append(f"{most} requests were in flight on one connection")
        for each in self._in_flight:
            if each.behind_old and not self.clock_is_wrong_by_s:
                self.problems.append("a request followed one whose producer the broker may have forgotten")
            each.behind_old = 0
        copies = [self.copied(each.number) for each in self.partitions]
        self.compared = max(self.compared, sum(map(len, copies)))
        is_complete = outcome is not None and outcome.is_complete and ends is not None
        for partition in self.partitions:
            number = partition.number
            bound = self._promised(partition)
            if outcome is not None and bound:
                bound = max(bound, outcome.stopped_at.get(number, 0))
            is_copied = is_complete and not (number in self.blocked or number in outcome.stopped)  # type: ignore[union-attr]
            if is_copied and ends:
                bound = max(bound, ends[number])
            present = set(map(id, partition.of_this_topic))

            def is_due(each: Written, bound: int = bound, present: set[int] = present) -> bool:
                return id(each) in present and each.offset < bound

            losses = list(self.losses[number])
            if self.setup.lists_names and number in self.unaligned and not is_copied:
                # A request may have landed in a new copy: the next task counts what lay before it.
                losses.append(Loss(None, len(partition.records)))
            found = self.judge.compare(copies[number], partition.records, due=is_due, losses=losses)
            self.problems += [f"partition {number}: {problem}" for problem in found.problems]
            if is_copied:
                self._settle(number, found.missing)

    def _settle(self, number: int, missing: Sequence[Written]) -> None:
        """Accept what a partition lacks behind which all is copied: later reports of losses are of others."""
        for each in missing:
            each.may_lack = True
        self.losses[number].clear()
        self.unaligned.discard(number)

    def check_places(self, control: Reporting) -> None:
        """
        Compare where the copy's records are with what the mirror says of it.

        Each record before a position is before its destination offset, and no other; each run of acknowledged
        offsets names the place of each record.
        """
        for partition in self.partitions:
            number = partition.number
            if self.setup.are_same or number in self.unaligned or number in self.blocked:
                continue
            copy = [
                place for batch in batches_of(self.copy_log(number)) for place in content_of_batch(batch.view)
            ]
            written = partition.of_this_topic
            if self.logs_were_lost:  # others have the offsets of records that are gone
                written = [each for each in written if each.is_there]
            places = self.judge.places(copy, written)
            self._check_map(partition, places)
            if self.setup.delivery is Delivery.AT_LEAST_ONCE:
                continue
            self._check_position(number, places)
            if self.logs_were_lost:
                continue
            runs: dict[int, list[Sequence[int]]] = {}
            for each in _partitions_of(control):
                if each["partition"] == number:
                    runs.setdefault(each["since"], []).extend(each["runs"])
            self.problems += [
                f"partition {number}: {problem}"
                for of_a_task in runs.values()
                for problem in (
                    *_repeated(of_a_task),
                    *(each for run in of_a_task for each in _misplaced(dict(places), *run)),
                )
            ]

    def _check_position(self, number: int, places: Sequence[tuple[int, int]]) -> None:
        position = self.position(number)
        if position is None:
            return
        for source, copy in places:
            if (source < position.source_offset) != (copy < position.destination_offset):
                self.problems.append(
                    f"partition {number}: source offset {source} is at {copy}, and the position says "
                    f"{position.source_offset} is at {position.destination_offset}"
                )
                return

    def _check_map(self, partition: SourcePartition, places: Sequence[tuple[int, int]]) -> None:
        position = self.position(partition.number)
        if position is None:
            return
        may_repeat = self.setup.delivery is Delivery.AT_LEAST_ONCE
        if may_repeat:  # a late request may repeat records behind the position
            places = [(source, copy) for source, copy in places if copy < position.destination_offset]
        are_all_there = not any(each.may_lack for each in partition.records)
        wrong = wrong_translations(
            position.offsets,
            # Counted as they were copied: the next task has not aligned by other rules yet.
            pieces_of(partition, reads_committed=self._read_committed_by(position)),
            places,
            self.dice,
            log_start=partition.log.log_start_offset,
            is_exact=are_all_there and not (self.expected or may_repeat or self.level_has_changed),
            certain_before=position.source_offset if may_repeat else math.inf,
        )
        self.problems += [f"partition {partition.number}: {each}" for each in wrong]

    def _read_committed_by(self, position: MirrorPosition) -> bool:
        """Whether a position's mirror left out records of aborted transactions."""
        levels = {level.name: level for level in IsolationLevel}
        level = levels.get(position.rules)
        return self.setup.reads_committed if level is None else level is IsolationLevel.READ_COMMITTED

    def has_caught_up(self, control: Reporting, ends: Sequence[int]) -> bool:
        """Whether each partition reports that it has copied up to an end, or has stopped."""
        behind = dict(enumerate(ends))
        for each in _partitions_of(control):
            reached = each["source_offset"]
            if each["stopped"] or (reached is not None and reached >= ends[each["partition"]]):
                behind.pop(each["partition"], None)
        return not behind

    @property
    def reads_committed(self) -> bool:
        """Whether the next task leaves out records of aborted and open transactions."""
        return self.brokers.settings.source.isolation_level is IsolationLevel.READ_COMMITTED

    @property
    def fetches_whole(self) -> bool:
        """Whether a response has room for all that a partition has got since the step before."""
        return self.brokers.settings.fetch_buffer_bytes >= LARGE_BUFFER_BYTES

    @property
    def judge(self) -> Judge:
        """The judge of these copies."""
        sets_times = dict(self.setup.destination_config).get("message.timestamp.type") == "LogAppendTime"
        return Judge(
            reads_committed=self.setup.reads_committed and not self.level_has_changed,
            may_repeat=self.setup.delivery is Delivery.AT_LEAST_ONCE,
            seen=_without_time if sets_times else _whole,
            are_same=self.setup.are_same,
            may_lack_hidden=self.level_has_changed,
        )

    def _promised(self, partition: SourcePartition) -> int:
        """
        Return the source offset up to which a committed position promises that all is copied.

        A position is never ahead of the copy.
        """
        position = self.position(partition.number)
        if position is None:
            return 0
        topic_id = self.source.nodes[0].topics.topic(TOPIC).topic_id
        if position.source_topic_id not in (None, str(topic_id)):
            return 0
        if partition.number in self.unaligned:
            return 0
        end = self.copy_log(partition.number).log_end_offset
        if position.destination_offset > end:
            self.problems.append(
                f"partition {partition.number}: the position {position.destination_offset} is ahead of the "
                f"copy, which ends at {end}"
            )
        return position.source_offset


def _config_of(name: str, nodes: Sequence[Broker], **changes: Any) -> ClientConfig:
    return replace(config_of(name, *nodes), **changes)


def _partitions_of(control: Reporting) -> list[dict[str, Any]]:
    return [each for report in control.reports for each in report["partitions"]]


def _miscounted(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the counts of a partition."""
    sent = {name: count for name, count in report["decisions"].items() if not Decision(name).is_drop}
    counts = {name: report[name] for name in ("records", "batches", "bytes_in", "bytes_out", "retries")}
    if min(*counts.values(), 0, *report["decisions"].values()) < 0:
        yield f"a count below 0: {counts}, {report['decisions']}"
    if sum(sent.values()) != counts["batches"]:
        yield f"{counts['batches']} batches, and decisions about {sent}"
    if not counts["batches"] <= counts["records"] <= counts["bytes_out"]:
        yield f"{counts['batches']} batches, {counts['records']} records, {counts['bytes_out']} bytes"


def _lost_elsewhere(stopped: PartitionStopped) -> Iterator[str]:
    """Yield how the first offset that a stopped partition lacks differs from the sentence of its stop."""
    found = re.search(r"ends at offset (\d+), .* before source offset (\d+), end at (\d+)", stopped.reason)
    if found and stopped.unmirrored_from is not None:
        end, source_end, acknowledged = map(int, found.groups())
        # A number of records had at least as many offsets.
        if end and stopped.unmirrored_from > source_end - (acknowledged - end):
            yield f"partition {stopped.partition} lacks {stopped.unmirrored_from} on: {stopped.reason}"


def _misplaced(places: Mapping[int, int], start: int, end: int, landed: int) -> Iterator[str]:
    """Yield what is wrong with a run of acknowledged source offsets."""
    for source in range(start, end):
        said = landed + source - start
        if places.get(source, said) != said:
            yield f"source offset {source} is at {places[source]}, and the mirror reported {said}"


def _repeated(runs: Sequence[Sequence[int]]) -> Iterator[str]:
    """Yield each run of acknowledged offsets that begins before the end of an earlier one."""
    end = 0
    for source_start, source_end, landed in runs:
        if landed < end:
            yield f"the mirror reported again what landed from {landed} to before {end}"
        end = landed + source_end - source_start


def _whole(record: Content) -> Content:
    return record


def _without_time(record: Content) -> Content:
    return record._replace(timestamp=0)
