"""The ways in which tasks run: to the end, killed, stopped, steered, beside another, without an end."""

from __future__ import annotations

import random
import time
from dataclasses import replace

from shoal.mirroring.control.limit import Allowance
from shoal.mirroring.model.incidents import Delivery, IncidentKind
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.steering import UNSTEERED, TaskSteering
from shoal.protocol.apis import ApiKey
from tests.world.clusters import TOPIC
from tests.world.control import Mortal, Watched, partitions_of
from tests.world.tasks import TaskWorld

from .events import TASKS, TaskEnd, runs
from .incident_events import (
    SILENT_STOPS,
    copy_is_created_again,
    copy_loses_its_tail,
    create_source_topic,
    delete_source_topic,
    others_write_to_the_copy,
    source_deletes_records,
    source_loses_its_tail,
    source_topic_is_created_again,
    store_foreign,
)

__all__: list[str] = []

#: The most checks of a lease before a task dies, or before something happens to it.
_LATEST_CHECK = 25

#: The time for a task to wait for offsets that a recreated topic does not have.
_NEW_TOPIC_PATIENCE_S = 3.0

#: Ten times the time that a task without an end needs to catch up on a busy machine.
_CATCH_UP_S = 40.0

#: How often a task that is held back looks at its lease before it is let go.
_CHECKS_WHILE_HELD = 30


def _ends(world: TaskWorld) -> list[int]:
    return [each.end_offset for each in world.closed_ranges()]


@runs(weight=7)
def to_the_end(world: TaskWorld, dice: random.Random) -> TaskEnd:
    """A task copies up to the present ends."""
    ends = _ends(world)
    return world.run(), ends


@runs(weight=6)
def killed(world: TaskWorld, dice: random.Random) -> TaskEnd:
    """A task's process dies at some step, if it lives so long."""
    ends = _ends(world)
    return world.run(Mortal(dice.randint(0, _LATEST_CHECK))), ends


@runs(weight=2)
def up_to_an_earlier_end(world: TaskWorld, dice: random.Random) -> TaskEnd:
    """A task copies a part of what is there, up to any offset of any batch, and may die meanwhile."""
    ranges = [
        each._replace(end_offset=dice.randint(_least_end(world, each), each.end_offset))
        for each in world.planned_ranges()
    ]
    # A driver plans no end before a position, also if the source has lost its tail since.
    ends = [min(each.end_offset, end) for each, end in zip(ranges, _ends(world), strict=True)]
    control = Mortal(dice.randint(0, _LATEST_CHECK)) if dice.random() < 0.3 else Watched()
    return world.run(control, ranges), ends


def _least_end(world: TaskWorld, each: CopyRange) -> int:
    """Return the position, or where a range begins: the driver sets no end before the position."""
    position = world.position(each.partition)
    return min(each.start_offset if position is None else position.source_offset, each.end_offset)


@runs(weight=3)
def stopped(world: TaskWorld, dice: random.Random) -> TaskEnd:
    """The driver asks a task at some step to end in good order."""
    ends = _ends(world)
    acting = Watched(dice.randint(0, _LATEST_CHECK), lambda: acting.request_stop())
    return world.run(acting), ends


@runs(weight=2)
def beside_another(world: TaskWorld, dice: random.Random) -> TaskEnd:
    """A task that has not noticed yet that it is an orphan, beside the one in its place."""
    ends = _ends(world)
    running = []
    for _ in range(dice.randint(2, 3)):
        control = Watched()
        running.append((world.start(control), control))
        time.sleep(dice.choice([0.0, 0.01, 0.05]))  # the former one may come to any point
    outcomes = [world.finish(*each) for each in running]
    return outcomes[-1], ends


@runs(weight=2)
def while_the_source_grows(world: TaskWorld, dice: random.Random) -> TaskEnd:
    """Producers write while a task copies up to the ends of before."""
    ends = _ends(world)
    before = [world.position(each.number) for each in world.partitions]
    acting = Watched(dice.randint(0, _LATEST_CHECK), world.a_partition().any_batch)
    outcome = world.run(acting)
    for partition, position, end in zip(world.partitions, before, ends, strict=True):
        reached = world.position(partition.number)
        most = max(end, 0 if position is None else position.source_offset)
        # A compressed message of an older format has the offset of its last one.
        if reached is not None and reached.source_offset > most and partition.has_epochs:
            world.problems.append(f"partition {partition.number}: {reached} is behind the range's end {end}")
    return outcome, ends


@runs(weight=2)
def while_leaders_move(world: TaskWorld, dice: random.Random) -> TaskEnd:
    """Partitions move from broker to broker, and so from worker to worker, while a task copies them."""
    ends = _ends(world)

    def move() -> None:
        for cluster in (world.source, world.destination):
            for each in world.partitions:
                if dice.random() < 0.6:
                    cluster.move_leader(TOPIC, each.number, dice.randint(1, len(cluster.nodes)))

    return world.run(Watched(dice.randint(0, _LATEST_CHECK), move)), ends


@runs(weight=1)
def while_the_source_topic_is_away(world: TaskWorld, dice: random.Random) -> TaskEnd:
    """An operator deletes the source topic while a task copies it, and creates it again after the task."""
    setup = world.setup
    may_stop = IncidentKind.SOURCE_RESET in world.expected and setup.operator_accepts and not setup.are_same
    if not may_stop or world.readers.groups:
        return to_the_end(world, dice)
    world.loses_acknowledged(*range(len(world.partitions)))
    world.expect("source topic is away", [IncidentKind.SOURCE_RESET], SILENT_STOPS)
    timing = world.brokers.settings.timing
    world.set(timing=replace(timing, deletion_confirmed_s=0.05))
    with_offsets = dice.random() < 0.5
    outcome = world.run(
        Watched(dice.randint(0, _LATEST_CHECK), lambda: delete_source_topic(world, with_offsets=with_offsets))
    )
    if not world.has_source_topic:
        create_source_topic(world)
    world.set(timing=timing)
    return replace(outcome, is_complete=False), []


@runs(weight=2)
def while_the_copy_changes(world: TaskWorld, dice: random.Random) -> TaskEnd:
    """Another producer writes to the copy while a task does, or the copy loses acknowledged records."""
    if world.setup.delivery is Delivery.AT_LEAST_ONCE:
        ends = _ends(world)
        return world.run(Watched(dice.randint(0, 8), lambda: store_foreign(world, dice))), ends
    if not world.setup.has_incidents:
        return to_the_end(world, dice)
    event = dice.choice([others_write_to_the_copy, copy_loses_its_tail, copy_is_created_again])
    named = TASKS.events[event.__name__.replace("_", " ")]
    world.expect(named.name, [*named.incidents, IncidentKind.DESTINATION_LOSS], named.stops)
    world.loses_acknowledged(*range(len(world.partitions)))
    outcome = world.run(Watched(dice.randint(0, 8), lambda: event(world, dice)))
    # The log may have lost what it had acknowledged last, which the next task finds.
    return replace(outcome, is_complete=False), []


@runs(weight=2)
def while_the_source_changes(world: TaskWorld, dice: random.Random) -> TaskEnd:
    """The source deletes or loses records, or its topic is created again, while a task copies them."""
    if not world.setup.has_incidents:
        return to_the_end(world, dice)
    changes = [source_deletes_records, source_topic_is_created_again]
    if all(each.has_epochs for each in world.partitions):
        changes.append(source_loses_its_tail)  # else nothing shows the loss: a documented limit
    change = dice.choice(changes)
    named = TASKS.events[change.__name__.replace("_", " ")]
    world.expect(named.name, [*named.incidents, IncidentKind.SOURCE_RESET], named.stops)
    world.loses_acknowledged(*range(len(world.partitions)))
    # Those of former tasks: it is too late to wait for them once this one has connected.
    world.let_late_requests_arrive()
    # Often before it has fetched what the source loses.
    at_check = dice.choice([dice.randint(0, 4), dice.randint(0, _LATEST_CHECK)])
    acting = Watched(at_check, lambda: change(world, dice))
    running = world.start(acting)
    # If its first position is of the new topic, the task waits for the offsets that the former one had. A
    # transaction that has lost its marker is open again, and ends in a later step.
    is_new = change is source_topic_is_created_again
    if not running.ends_within(_NEW_TOPIC_PATIENCE_S) and (is_new or _has_open_transaction(world)):
        acting.request_stop()
    return replace(world.finish(running, acting), is_complete=False), []


def _has_open_transaction(world: TaskWorld) -> bool:
    return any(each.log.last_stable_offset < each.log.log_end_offset for each in world.partitions)


@runs(weight=3)
def without_an_end(world: TaskWorld, dice: random.Random) -> TaskEnd:
    """A task follows producers until its driver stops it."""
    control = Watched()
    running = world.start(control, world.open_ranges())
    for _ in range(dice.randint(0, 3)):
        for each in world.partitions:
            each.any_batch()
    ends = world.reachable_ends()
    deadline = time.monotonic() + _CATCH_UP_S
    while running.is_running and not (world.has_caught_up(control, ends) or _leaves_out(control)):
        if time.monotonic() > deadline:
            world.problems.append(f"a task without an end does not reach {ends}: {control.waited_for}")
            break
        running.ends_within(0.01)
    control.request_stop()
    outcome = world.finish(running, control)
    return (outcome if _leaves_out(control) else replace(outcome, is_complete=True)), ends


def _leaves_out(control: Watched) -> bool:
    """Whether a task leaves partitions to the next one, since their topic was away."""
    return any(each["waiting_for"] and each["source_offset"] is None for each in partitions_of(control))


class _Steered(Mortal):
    """A task's control under which the driver steers it at any check of its lease, and may kill it at one."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__(dice.randint(0, 60) if dice.random() < 0.5 else 10_000)
        self.steering: TaskSteering = UNSTEERED
        # Of its own: several threads draw, and in no certain order.
        self._dice = random.Random(dice.random())
        self.allowance = Allowance()

    def check_lease(self) -> None:
        super().check_lease()
        if self._dice.random() < 0.3:
            limit = self._dice.choice([500, 100_000, 10_000_000])
            self.steering = self._dice.choice(
                [
                    UNSTEERED,
                    TaskSteering(),
                    TaskSteering(paused=frozenset({TOPIC})),
                    TaskSteering(bytes_per_s=limit),
                    TaskSteering(frozenset({TOPIC}), limit),
                ]
            )
            self.allowance.begin(self.steering.bytes_per_s)


@runs(weight=1)
def steered(world: TaskWorld, dice: random.Random) -> TaskEnd:
    """The driver pauses, limits and resumes a task at any step."""
    ends = _ends(world)
    return world.run(_Steered(dice)), ends


@runs(weight=2)
def held_back(world: TaskWorld, dice: random.Random) -> TaskEnd:
    """The driver has paused a task before it fetches anything, and lets it go later."""
    ends = _ends(world)

    def let_go() -> None:
        fetches = world.requests["source"][ApiKey.FETCH]
        if fetches and not world.setup.adopts:  # that reads the source, too
            world.problems.append(f"{fetches} fetches were sent while the driver allowed none")
        control.steering = UNSTEERED

    control = Watched(_CHECKS_WHILE_HELD, let_go)
    control.steering = TaskSteering(frozenset({TOPIC}))
    world.count_requests()
    return world.run(control), ends
