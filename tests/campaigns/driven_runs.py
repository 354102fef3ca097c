"""Tasks that follow the documents of a real driver, which gives them partitions and takes them away."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from shoal.errors import Stopped
from shoal.mirroring.model.incidents import IncidentKind
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from tests.world.clusters import TOPIC
from tests.world.control import Killed
from tests.world.driver import Driver, Following
from tests.world.faults import Held
from tests.world.reports import Outcome, outcome_of
from tests.world.task import TaskResult
from tests.world.tasks import TaskWorld

from .catalogue import Run
from .events import TaskEnd, runs
from .runs import to_the_end

__all__ = ["EXECUTORS"]

#: The most checks of a lease before a task dies.
_LATEST_CHECK = 40

#: Ten times the time that tasks need to catch up, or to leave partitions, on a busy machine.
_CATCH_UP_S, _LEAVE_S = 60.0, 30.0

_SHORT_TIMEOUT_MS, _LONG_TIMEOUT_MS = 150, 120_000

#: A broker may answer as late as it likes: a task gives it up sooner.
_PATIENCE = {
    "stalled_s": 0.2,
    "isolate_s": 0.4,
    "end_patience_s": 0.3,
    "last_commit_patience_s": 2.0,
}


#: Well within a lease, which is not renewed meanwhile.
_DIES_WITHIN_S = 5.0

#: Of tasks whose executors stall. A busy machine may let it lapse, which a mirror survives, too.
_SHORT_LEASE_S = 0.5
_BEATS_IN_A_LEASE = 5

#: At such a check no task dies, but each system call that sends is one, and may stand still behind it.
_NEVER = 1_000_000_000


class _Mirror:
    """A driver and its tasks."""

    def __init__(
        self, world: TaskWorld, driver: Driver, dice: random.Random, *, can_stall: bool = False
    ) -> None:
        self._world = world
        self._driver = driver
        self._dice = dice
        self._can_stall = can_stall
        self._tasks: list[Following] = []
        self._stalled: list[Following] = []
        self._held: list[Held] = []
        self._partitions = [TopicPartition(TOPIC, each.number) for each in world.partitions]

    def begin(self, *, lives: bool = False) -> None:
        """Start a task."""
        is_mortal = not lives and self._dice.random() < 0.5
        at_check = self._dice.randint(0, _LATEST_CHECK) if is_mortal else math.inf
        if self._can_stall and not is_mortal:
            at_check = self._dice.choice([_NEVER, math.inf])
        self._tasks.append(self._driver.start(at_check, can_be_stopped=self._can_stall))

    def kill(self) -> None:
        """Kill a task: its last requests may still arrive."""
        task = self._take_a_task()
        task.control.close()
        if not task.running.ends_within(_DIES_WITHIN_S):  # a thread cannot die while it waits for an answer
            self.let_requests_go()
        task.kill()

    def end(self) -> None:
        """Ask a task to end, as if its executor was to be removed."""
        task = self._take_a_task()
        self._driver.server.end_one(task.job)
        self._finish(task)

    def stall(self) -> None:
        """Stop a task's process, and start another: the stopped one may have all partitions."""
        task = self._take_a_task()
        assert task.process is not None
        task.process.stop()
        self._stalled.append(task)
        self.begin(lives=self._dice.random() < 0.5)

    def wake(self) -> None:
        """Let stopped processes go on, often behind their lease, while others have their partitions."""
        for each in self._stalled:
            assert each.process is not None
            each.process.go_on()
        self._tasks += self._stalled
        self._stalled = []

    def outlive_a_lease(self) -> None:
        """Let time pass, so that tasks that stand still lose their lease."""
        time.sleep(2 * _SHORT_LEASE_S if self._stalled else 0.0)  # the length of a pause

    def _take_a_task(self) -> Following:
        return self._tasks.pop(self._dice.randrange(len(self._tasks)))

    def _finish(self, task: Following) -> None:
        with suppress(Stopped, Killed):
            self._world.finish_driven(task)

    def recall(self) -> None:
        """Have a partition aligned again."""
        self._driver.server.recall([self._dice.choice(self._partitions)])

    def interrupt(self) -> None:
        """Lose the mirror's place in its group, and get it again."""
        self._driver.server.end_lease()
        time.sleep(self._dice.choice([0.0, 0.01]))
        self._driver.begin_generation()

    def revoke(self) -> None:
        """Take partitions from all tasks, and give them back: also a silent broker is left in time."""
        gone = self._partitions if self._dice.random() < 0.6 else [self._dice.choice(self._partitions)]
        self._driver.server.withdraw(gone)
        if not self._driver.server.await_left(gone, _LEAVE_S):
            self._world.problems.append(f"{gone} are not left within {_LEAVE_S} s")
        self._driver.want_ranges(self._world.open_ranges())

    def hold_requests_back(self) -> None:
        """Let a broker answer some requests very late; they take effect then."""
        world, api = self._world, self._dice.choice([ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT, ApiKey.FETCH])
        nodes = world.destination.nodes if api is ApiKey.PRODUCE else world.source.nodes
        self._held.append(Held(self._dice.choice(nodes), api, times=self._dice.randint(1, 2)))

    def let_requests_go(self) -> None:
        """Let the held requests take effect."""
        for each in self._held:
            each.release()

    def replace_dead(self, *, lives: bool = False) -> None:
        """Start a task for each that has ended by itself, as Spark does; there is one at least."""
        dead = [each for each in self._tasks if not each.running.is_running]
        self._tasks = [each for each in self._tasks if each not in dead]
        for each in dead:
            self._finish(each)
        for _ in range(max(len(dead), 1 - len(self._tasks))):
            self.begin(lives=lives)

    def catch_up(self, ends: Sequence[int]) -> bool:
        """Wait until all is copied; return whether that was in time."""
        deadline = time.monotonic() + _CATCH_UP_S
        while not self._world.has_caught_up(self._driver, ends):
            if time.monotonic() > deadline:
                return False
            self.replace_dead(lives=True)
            time.sleep(0.005)
        return True

    def stop(self) -> None:
        """End the mirror."""
        self.wake()
        self._driver.server.request_stop()
        for each in self._tasks:
            self._finish(each)


@runs(weight=4)
def by_a_driver(world: TaskWorld, dice: random.Random) -> TaskEnd:
    """Tasks begin, end and die, and get partitions from each other, while producers write."""
    if IncidentKind.SOURCE_GAP in world.expected:
        return to_the_end(world, dice)  # a range without an end waits at a gap that nothing proves
    _set_timeouts(world, dice)
    with world.driven(**_PATIENCE) as driver:
        mirror = _Mirror(world, driver, dice)
        happen = [mirror.begin, mirror.kill, mirror.end, mirror.recall, mirror.interrupt, mirror.revoke]
        happen += [mirror.hold_requests_back, mirror.let_requests_go]
        driver.want_ranges(world.open_ranges())
        mirror.begin()
        for _ in range(dice.randint(1, 6)):
            _let_some_grow(world, dice)
            dice.choice(happen)()
            mirror.replace_dead()
            time.sleep(dice.choice([0.0, 0.01, 0.05]))  # the tasks may come to any point
        ends = _copy_the_rest(world, driver, mirror)
    return _end_of(world, driver), ends


def executors_die_join_and_stall(world: TaskWorld, dice: random.Random) -> TaskEnd:
    """Executors die, join, and stall for longer than a lease, while producers write."""
    if IncidentKind.SOURCE_GAP in world.expected:
        return to_the_end(world, dice)  # as above
    _set_timeouts(world, dice)
    with world.driven(_SHORT_LEASE_S, **_PATIENCE) as driver, _heartbeats(driver):
        mirror = _Mirror(world, driver, dice, can_stall=True)
        happen = [mirror.begin, mirror.kill, mirror.stall, mirror.stall, mirror.outlive_a_lease, mirror.wake]
        happen += [mirror.end, mirror.recall, mirror.hold_requests_back, mirror.let_requests_go]
        driver.want_ranges(world.open_ranges())
        mirror.begin()
        mirror.begin()
        for _ in range(dice.randint(3, 8)):
            _let_some_grow(world, dice)
            dice.choice(happen)()
            mirror.replace_dead()
            time.sleep(dice.choice([0.0, 0.01, 0.05]))
        # Behind its lease, if it has waited for one; else perhaps before.
        dice.choice([mirror.outlive_a_lease, mirror.wake])()
        mirror.wake()
        ends = _copy_the_rest(world, driver, mirror)
    return _end_of(world, driver), ends


EXECUTORS = Run("executors die, join and stall", 1, executors_die_join_and_stall)


def _set_timeouts(world: TaskWorld, dice: random.Random) -> None:
    """Let tasks wait for answers briefly or long, until the end of the step."""
    settings = world.brokers.settings
    if dice.random() < 0.3:  # a commit that is held has an unknown outcome
        world.set(source=replace(settings.source, request_timeout_ms=_SHORT_TIMEOUT_MS))
    elif not world.setup.has_incidents:  # a task that leaves partitions waits for no answer; but see a gap
        world.set(
            source=replace(settings.source, request_timeout_ms=_LONG_TIMEOUT_MS),
            destination=replace(settings.destination, request_timeout_ms=_LONG_TIMEOUT_MS),
        )
    world.at_the_end_of_the_step(world.be_patient)


@contextmanager
def _heartbeats(driver: Driver) -> Iterator[None]:
    """Renew the lease all the time."""
    is_over = threading.Event()

    def beat() -> None:
        while not is_over.wait(_SHORT_LEASE_S / _BEATS_IN_A_LEASE):
            driver.beat()

    beating = threading.Thread(target=beat, daemon=True)
    beating.start()
    try:
        yield
    finally:
        is_over.set()
        beating.join()


def _let_some_grow(world: TaskWorld, dice: random.Random) -> None:
    for each in world.partitions:
        if dice.random() < 0.5:
            dice.choice([each.any_batch, each.any_batch_behind_a_gap, each.any_transaction])()


def _copy_the_rest(world: TaskWorld, driver: Driver, mirror: _Mirror) -> list[int]:
    """Let the tasks reach the ends of the source, end them, and return these ends."""
    mirror.let_requests_go()
    ends = world.reachable_ends()
    if not mirror.catch_up(ends):
        world.problems.append(f"the tasks of a driver do not reach {ends}: {driver.waits_for()}")
    mirror.stop()
    return ends


def _end_of(world: TaskWorld, driver: Driver) -> Outcome:
    return outcome_of(world, TaskResult(tuple(driver.stops), complete=True), driver)
