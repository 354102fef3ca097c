"""A trial of a scenario: two embedded brokers, tasks that end at any step, and their faults."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.error_codes import ErrorCode
from shoal.mirroring.model.copy_options import MultiBatch
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal_broker import Broker
from shoal_broker.storage.log import Log
from tests.two_brokers import ABORT, COMMIT, NOW_MS, Content, History, Killed, Mortal, TwoBrokers, Watched
from tests.world.retries import quick_retries

from ...kinds import Kind
from .promises import Findings

if TYPE_CHECKING:
    from .scenario import Scenario

__all__ = ["Partition", "ScenarioPlan", "Stage", "draw_scenario", "recreate_source", "run_scenario"]

DAY_MS = 86_400_000

#: The bytes of a batch's leader epoch.
_LEADER_EPOCH = slice(12, 16)

#: The records of a recreated topic are later by this much.
_NEW_TOPIC_MS = 60_000

#: Timeout of one task, with all its faults.
_TASK_S = 40.0

#: Number of tasks that may fail at the end, after the faults.
_LAST_ATTEMPTS = 3

#: Transient errors of brokers.
_PASSING: dict[ApiKey, list[ErrorCode]] = {
    ApiKey.PRODUCE: [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ],
    ApiKey.FETCH: [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE],
    ApiKey.METADATA: [ErrorCode.LEADER_NOT_AVAILABLE],
    ApiKey.LIST_OFFSETS: [ErrorCode.NOT_LEADER_OR_FOLLOWER],
    ApiKey.OFFSET_FETCH: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
    ApiKey.OFFSET_COMMIT: [ErrorCode.NOT_COORDINATOR],
    ApiKey.INIT_PRODUCER_ID: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
}


@dataclass(frozen=True, slots=True)
class ScenarioPlan:
    """A trial of a scenario; the same seed, number and name make the same one."""

    seed: int
    number: int
    scenario: str

    @property
    def kind(self) -> Kind:
        return Kind.SCENARIO

    @property
    def events(self) -> list[str]:
        return [self.scenario]

    def __str__(self) -> str:
        return f"seed {self.seed}, number {self.number}, {self.scenario}"


class LedHistory(History):
    """The history of a partition; its batches get the log's current leader epoch when they arrive."""

    def store(self, batch: bytes | bytearray, *, shown: bool = False) -> None:
        batch = bytearray(batch)
        batch[_LEADER_EPOCH] = self.log.leader_epoch.to_bytes(4)  # not under the CRC
        super().store(batch, shown=shown)


class Partition:
    """A partition of the source, which survives the deletion of its topic.

    Attributes:
        history: History of the current topic.
        present: The records that the source has now.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self._before: list[Content] = []
        self._is_present: Callable[[int, Content], bool] = lambda number, record: True

    @property
    def ever(self) -> list[Content]:
        """All records that the source ever had."""
        return [*self._before, *self.history.committed]

    @property
    def present(self) -> list[Content]:
        found = enumerate(self.history.committed)
        return [record for number, record in found if self._is_present(number, record)]

    def begin_anew(self, log: Log) -> None:
        """Delete and recreate the topic; its records differ from the former ones by their times."""
        self._before = self.ever
        self.history = LedHistory(log, self.history.base_timestamp + _NEW_TOPIC_MS)
        self._is_present = lambda number, record: True

    def keeps(self, is_present: Callable[[int, Content], bool]) -> None:
        """Delete records from the source: keep those for which this is true, by number and record."""
        self._is_present = is_present


class Stage:
    """Two brokers, the source's partitions and the tasks of a trial.

    Attributes:
        brokers: Source and destination, with the settings of future tasks.
        dice: The trial's dice.
        partitions: Partitions of the one topic.
        lost: Number of records that the tasks reported as lost, by partition; None for uncounted.
    """

    topic = "topic"

    def __init__(self, brokers: TwoBrokers, dice: random.Random, **destination_config: str) -> None:
        self.brokers = brokers
        self.dice = dice
        histories = brokers.topic(self.topic, dice.randint(1, 2), **destination_config)
        self.partitions = [Partition(LedHistory(each.log)) for each in histories]
        base = dice.choice([NOW_MS, NOW_MS, NOW_MS - 30 * DAY_MS])
        for each in self.partitions:
            each.history.base_timestamp = base
        self.lost: list[int | None] = [0] * len(self.partitions)
        self.tasks = 0

    @property
    def source(self) -> Broker:
        return self.brokers.source

    @property
    def destination(self) -> Broker:
        return self.brokers.destination

    def set(self, **changes: Any) -> None:
        """Change the settings of future tasks."""
        self.brokers = self.brokers.with_settings(**changes)

    # Permanent faults

    def source_grows(self) -> None:
        """Let producers write to every partition of the source."""
        for each in self.partitions:
            grow(each.history, self.dice)

    def trouble(self) -> None:
        """Let a later request of some kind fail with a transient error, or disconnect its client."""
        broker = self.dice.choice([self.source, self.destination])
        api = self.dice.choice([ApiKey.PRODUCE, ApiKey.PRODUCE, ApiKey.FETCH, *_PASSING])
        broker.faults.add(api, times=self.dice.randint(1, 8))  # number of requests that pass
        if self.dice.random() < 0.5:
            broker.faults.add(api, drop=self.dice.choice(["before", "within", "after"]))
            return
        how: dict[str, Any] = {"error": self.dice.choice(_PASSING[api])}
        if api in (ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT):
            how["effect"] = self.dice.choice(["before", "after"])
        broker.faults.add(api, times=self.dice.randint(1, 2), **how)

    def producers_are_forgotten(self) -> None:
        for log in self.destination.topics.topic(self.topic).logs:
            log.forget_expired_producers(int(time.time() * 1000), DAY_MS)

    # Tasks

    def task(self, control: Watched | None = None, *, patience_s: float = _TASK_S) -> list[str] | None:
        """Run a task to its end; return the sentences by which partitions stopped, None if it was killed.

        If a task still waits when the patience ends, it is stopped.
        """
        if control is None:
            may_die = self.dice.random() < 0.7
            control = Mortal(self.dice.randint(0, 25)) if may_die else Watched()
        self.tasks += 1
        running = self.brokers.start(control=control)
        try:
            if patience_s < _TASK_S and not running.ends_within(patience_s):
                control.request_stop()
            result = running.result(_TASK_S)
        except Killed:
            return None
        finally:
            self._count_lost(control)
        return [str(each) for each in result.stopped]

    def _count_lost(self, control: Watched) -> None:
        for report in control.reports:
            for each in report["partitions"]:
                for incident in each["incidents"]:
                    known, lost = self.lost[each["partition"]], incident[2]
                    self.lost[each["partition"]] = None if known is None or lost is None else known + lost

    def settle(self) -> dict[int, list[str]]:
        """End all faults, and mirror the rest; return the reasons for which partitions stopped."""
        self.source.faults.clear()
        self.destination.faults.clear()
        for _ in range(_LAST_ATTEMPTS):
            control = Watched()
            result = self.brokers.start(control=control).result(_TASK_S)
            self.tasks += 1
            self._count_lost(control)
            if result.complete and not result.stopped:
                return {}
        stopped: dict[int, list[str]] = {}
        for each in result.stopped:
            stopped.setdefault(each.partition, []).append(str(each))
        return stopped or {number: ["the task did not complete"] for number in range(len(self.partitions))}

    def findings(self, scenario: Scenario, stopped: dict[int, list[str]]) -> Iterator[Findings]:
        """Yield the state of each partition."""
        for number, partition in enumerate(self.partitions):
            yield Findings(
                ever=partition.ever,
                present=partition.present,
                copy=scenario.copy(self, number),
                stopped=stopped.get(number, []),
                lost=self.lost[number],
                documented=lambda sentence: any(re.search(each, sentence) for each in scenario.stops),
            )


def grow(history: History, dice: random.Random) -> None:
    """Add to a partition of the source: batches, transactions, gaps."""
    counts = [dice.randint(1, 4) for _ in range(dice.randint(1, 4))]
    match dice.randrange(6):
        case 0:
            ends = dice.choice([ABORT, COMMIT])
            history.transaction(*counts, ends=ends, producer_id=dice.randint(1, 3))
        case 1:
            history.gap(dice.randint(1, 5)).plain(*counts)
        case 2:
            history.empty(dice.randint(1, 3))
        case _:
            history.plain(*counts, codec=dice.choice(list(Codec)))


def recreate_source(stage: Stage) -> None:
    """Delete the source topic with all offsets in it, create it again, and fill it with some batches."""
    broker = stage.source
    broker.topics.delete(broker.topics.topic(stage.topic))
    broker.groups.forget_topic(stage.topic)
    broker.leaders.forget(stage.topic)
    broker.create_topic(stage.topic, len(stage.partitions))
    for number, partition in enumerate(stage.partitions):
        partition.begin_anew(broker.log(stage.topic, number))
        partition.history.plain(*[stage.dice.randint(1, 4) for _ in range(stage.dice.randint(0, 12))])


def draw_scenario(seed: int, number: int, names: Sequence[str]) -> ScenarioPlan:
    """Draw one of the scenarios: over many trials, each comes equally often."""
    in_turn = random.Random(f"{seed}/{number // len(names)}/scenarios").sample(names, len(names))
    return ScenarioPlan(seed, number, in_turn[number % len(names)])


def run_scenario(plan: ScenarioPlan, scenario: Scenario) -> tuple[Stage, list[str]]:
    """Run a trial; return its stage at the end, and the broken promises."""
    dice = random.Random(f"{plan.seed}/{plan.number}/{plan.scenario}")
    with quick_retries(), ExitStack() as stack:
        several = dice.random() < 0.4
        brokers = stack.enter_context(TwoBrokers.started(multi_batch=several))
        brokers = brokers.with_settings(
            fetch_buffer_bytes=65_536 + dice.choice([300, 1_000, 100_000]),
            commit_interval_ms=dice.choice([0, 5, 60_000]),
            multi_batch=MultiBatch.AUTO if several else MultiBatch.OFF,
        )
        stage = Stage(brokers, dice, **scenario.destination_config(dice))
        scenario.begin(stage)
        for _ in range(dice.randint(5, 10)):
            stage.source_grows()
            for _ in range(dice.randint(0, 2)):
                stage.trouble()
            if dice.random() < 0.3:
                stage.producers_are_forgotten()
            scenario.round(stage)
        stopped = stage.settle()
        problems = [
            f"partition {number}: {problem}"
            for number, found in enumerate(stage.findings(scenario, stopped))
            for problem in scenario.promise(found)
        ]
        problems += scenario.broken_promises(stage, stopped)
    return stage, problems
