"""The plan of a trial, drawn from its seed: the same seed and number make the same plan.

Moments are counted, not timed. A fault comes after a number of Produce responses of the destination, or
it affects the request of its kind with a given number.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import Enum, IntEnum

from rig.consumers import GroupProtocol
from rig.load import CODECS, Codec
from rig.proxy import Step
from rig.read import Isolation

__all__ = [
    "AGES",
    "COMMIT_EVENTS",
    "COORDINATOR_EVENTS",
    "KINDS",
    "OVERLAP_EVENTS",
    "Age",
    "Api",
    "Change",
    "Error",
    "Event",
    "EventKind",
    "GroupPlan",
    "Kind",
    "Meanwhile",
    "Network",
    "Plan",
    "Refusal",
    "Side",
    "StayPlan",
    "TopicChange",
    "draw",
    "kind_of",
]

BROKERS = 3

DAY_MS = 86_400_000
THIRTY_DAYS_MS = 30 * DAY_MS

#: Default producer expiration of the two destinations; a day, as in every Kafka.
DEFAULT_EXPIRATION_MS = DAY_MS

#: For trials in which brokers forget producers during the copy. Slightly longer than a broker's restart.
SHORT_EXPIRATION_MS = 3_000

#: For trials with stalls: shorter than the longest of them, so that some requests time out.
QUICK_REQUEST_TIMEOUT_MS = 4_000
_STALLS_S = (0.3, 1.5, 6.0)


#: Of all trials, this part has a paused process or a second mirror; and the lengths of pauses. The longest
#: pause exceeds the timeouts of requests and sessions.
_PAUSED = 0.25
_PAUSES_S = (0.5, 1.5, 6.0, 12.0)


#: Of all trials of a streaming mirror, this part has a fault while two of its windows overlap.
_OVERLAPPING = 0.2

#: Of all trials between real clusters, this part has a controller failover or a full disk.
_CLUSTER_EVENTS = 0.2


class Kind(Enum):
    """The kind of mirror and of destination."""

    PRODUCT = "product"
    """``shoal mirror``, a process with Spark."""
    TOPICS = "topics"
    """The same, while topics of the source are created, grow, or are recreated (`topics`)."""
    CONSUMERS = "consumers"
    """The same, with consumers that stop at one cluster and go on at the other (`consumers`)."""
    MAKER = "mirror-maker"
    """``shoal mirror-maker``, a process with Spark."""
    ENGINE = "engine"
    """``run_copy_task`` in a Python process, without Spark."""
    EMBEDDED = "embedded broker"
    """The same, into the embedded broker, which can return errors on demand."""
    TASK = "tasks and events"
    """Tasks in this process between embedded brokers, with events before each (`tests.campaigns.plan`)."""
    SCENARIO = "scenario"
    """The engine between two embedded brokers whose topics, positions and clocks change (`scenarios`)."""

    @property
    def has_spark(self) -> bool:
        return self in (Kind.PRODUCT, Kind.TOPICS, Kind.CONSUMERS, Kind.MAKER)

    @property
    def is_within(self) -> bool:
        """Whether all of a trial is in this process, without real clusters."""
        return self in (Kind.TASK, Kind.SCENARIO)


#: Of ten trials between real clusters, or into one embedded broker, the number of each kind.
_OTHERS = (
    *(Kind.PRODUCT, Kind.ENGINE, Kind.TOPICS),
    *(Kind.PRODUCT, Kind.ENGINE, Kind.MAKER),
    *(Kind.PRODUCT, Kind.ENGINE, Kind.CONSUMERS),
    Kind.EMBEDDED,
)

#: The kinds of trials, in turn: every second one is within this process.
KINDS = tuple(
    kind
    for number, other in enumerate(_OTHERS)
    for kind in (other, Kind.TASK if number % 2 else Kind.SCENARIO)
)


class Age(Enum):
    """Age of the records, which determines whether the destination's brokers forget their producer."""

    FRESH = "fresh"
    OLD = "30 days old"
    """The broker forgets their producer at each check, many times a second."""
    MIXED = "30 days old and fresh in turn"
    EXPIRING = "fresh, producers forgotten after 3 s"


AGES = (Age.FRESH, Age.FRESH, Age.OLD, Age.OLD, Age.MIXED, Age.EXPIRING)


class Side(Enum):
    SOURCE = "source"
    DESTINATION = "destination"


class Api(IntEnum):
    """The API keys that shoal uses during a copy."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    SYNC_GROUP = 14
    LIST_GROUPS = 16
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23


_SIDE_OF = {
    Api.PRODUCE: Side.DESTINATION,
    Api.FETCH: Side.SOURCE,
    Api.OFFSET_COMMIT: Side.SOURCE,
    Api.OFFSET_FETCH: Side.SOURCE,
    Api.FIND_COORDINATOR: Side.SOURCE,
    Api.JOIN_GROUP: Side.SOURCE,
    Api.SYNC_GROUP: Side.SOURCE,
    Api.HEARTBEAT: Side.SOURCE,
    Api.INIT_PRODUCER_ID: Side.DESTINATION,
}


class EventKind(Enum):
    """Events of a process or of a cluster."""

    KILL_WORKER = "kill -9 of a Python worker"
    KILL_OLD_WORKER = "kill -9 of a Python worker whose window is about to end"
    KILL_NEW_WORKER = "kill -9 of a Python worker that waits for its window"
    KILL_DRIVER_IN_OVERLAP = "kill -9 of the driver while two windows overlap"
    KILL_TASK = "kill -9 of a task's process"
    KILL_JVM = "kill -9 of the JVM"
    KILL_DRIVER = "kill -9 of the driver, its JVM orphaned"
    KILL_DRIVER_AND_JVM = "kill -9 of the driver and its JVM"
    SIGTERM = "SIGTERM"
    KILL_BROKER = "kill -9 and start of a broker"
    RESTART_BROKER = "clean restart of a broker"
    MOVE_LEADERS = "leaders move"
    KILL_CONTROLLER = "kill -9 and start of the active controller"
    RESTART_CONTROLLER = "clean restart of the active controller"
    FILL_DISK = "full disk of a broker, which ends it"
    PAUSE_TASK = "SIGSTOP and SIGCONT of a task's process"
    PAUSE_WORKERS = "SIGSTOP and SIGCONT of all Python workers"
    PAUSE_DRIVER = "SIGSTOP and SIGCONT of the driver"
    PAUSE_ALL = "SIGSTOP and SIGCONT of the whole mirror"
    CONTEND = "a second mirror wants the group"
    MOVE_COORDINATORS = "group coordinators move"
    KILL_COORDINATOR = "kill -9 and start of a group's coordinator"
    KILL_BEFORE_COMMIT = "kill -9 of the mirror between a translation and its commit"
    KILL_AFTER_COMMIT = "kill -9 of the mirror between the commit of a translation and its acknowledgement"


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a process or of a cluster.

    Attributes:
        after: Number of Produce responses by the destination before it.
        side: Side of the broker, or of the leaders.
        node_id: The broker; or the number of steps by which each partition's leader moves.
        down_s: Time between a broker's end and its start, or a process's pause and its continuation.
    """

    kind: EventKind
    after: int
    side: Side | None = None
    node_id: int = 0
    down_s: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.kind.value} ({self.side.value})" if self.side else self.kind.value

    def __str__(self) -> str:
        broker = f" {self.node_id}" if self.kind in BROKER_EVENTS else ""
        down = f" down {self.down_s:.1f} s" if self.down_s else ""
        return f"{self.name}{broker} at {self.after}{down}"


#: A fault while the tasks of one window copy, and those of the next one wait for the partitions.
OVERLAP_EVENTS = (EventKind.KILL_OLD_WORKER, EventKind.KILL_NEW_WORKER, EventKind.KILL_DRIVER_IN_OVERLAP)

#: Faults of the coordinators of consumer groups, and of the commit of their translated offsets.
COORDINATOR_EVENTS = (EventKind.MOVE_COORDINATORS, EventKind.KILL_COORDINATOR)
COMMIT_EVENTS = (EventKind.KILL_BEFORE_COMMIT, EventKind.KILL_AFTER_COMMIT)

BROKER_EVENTS = frozenset({EventKind.KILL_BROKER, EventKind.RESTART_BROKER, EventKind.FILL_DISK})


@dataclass(frozen=True, slots=True)
class Network:
    """A proxy's fault; the fields are those of `rig.proxy.Disturbance`."""

    side: Side
    api: Api
    step: Step
    after: int
    stall_s: float
    cut: bool
    reset: bool
    late: bool = False

    @property
    def name(self) -> str:
        if self.late:
            return "a request that arrives late"
        if self.api is Api.PRODUCE and self.step is Step.BEFORE_RESPONSE and self.cut:
            return "acknowledgement lost after the append"
        return f"{'stalled' if self.stall_s else 'cut'} {self.step.value}"

    def __str__(self) -> str:
        stall = f" {self.stall_s:g} s" if self.stall_s else ""
        cut = (", then cut" if self.stall_s else "") if self.cut else ", then let go"
        reset = " by a reset" if self.reset and self.cut else ""
        return f"{self.side.value} {self.api.name} {self.name}{stall}{cut}{reset} at {self.after}"


class Error(IntEnum):
    """Errors of a broker that has a full disk, or has lost its replicas."""

    REQUEST_TIMED_OUT = 7
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    KAFKA_STORAGE_ERROR = 56


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error that the embedded broker returns to Produce requests.

    Attributes:
        after: Number of requests that pass first.
        times: Number of requests to refuse.
        effect: ``"before"``: no record was written; ``"after"``: they were.
        partition: The only partition to refuse; None for the whole request.
    """

    error: Error
    after: int
    times: int
    effect: str
    partition: int | None

    @property
    def name(self) -> str:
        return f"{self.error.name} {self.effect} the append"

    @property
    def stops(self) -> bool:
        """Whether a partition has to stop, because retries do not help."""
        return self.error is Error.RECORD_LIST_TOO_LARGE

    def __str__(self) -> str:
        whom = "" if self.partition is None else f" to partition {self.partition}"
        return f"{self.name} x{self.times}{whom} at {self.after}"


class Change(Enum):
    """A change of the source's topics."""

    RECREATED = "source topic recreated"
    PARTITIONS = "partitions added"
    TOPIC = "a topic created"


class Meanwhile(Enum):
    """The mirror's state while the topics change."""

    RUNS = "while it runs"
    WORKERS_PAUSED = "while its workers are paused"
    PAUSED = "while all of it is paused"
    KILLED = "between kill -9 and start"
    STOPPED = "between SIGTERM and start"


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A change of the source's topics; after it, the topics have all their records.

    Attributes:
        after: Number of Produce responses by the destination before it.
        rounds: Number of batches for each of the new partitions.
        goes_on: Of a recreated topic: whether the mirror continues at once; otherwise it stops, and
            continues with another option.
        latest: Of a created topic: the mirror has ``--start latest``, and was started once before.
        down_s: Additional time of the pause, or of the mirror's absence, after the change.
    """

    change: Change
    meanwhile: Meanwhile
    after: int
    rounds: int
    goes_on: bool
    latest: bool
    down_s: float

    @property
    def name(self) -> str:
        return f"{self.change.value} {self.meanwhile.value}"

    def __str__(self) -> str:
        policy = "continue" if self.goes_on else "fail, then continue"
        how = f" ({policy})" if self.change is Change.RECREATED else " (--start latest)" * self.latest
        return f"{self.name}{how} at {self.after}{f' down {self.down_s:g} s' if self.down_s else ''}"


Fault = Event | Network | Refusal | TopicChange


@dataclass(frozen=True, slots=True)
class StayPlan:
    """A stay of a group's consumer at one cluster.

    Attributes:
        most: Stop after this number of records.
        applies: Begin after `shoal groups --apply`, and not after the mirror's own translation. The way back
            to the source always needs the command.
    """

    most: int
    applies: bool


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group whose consumer begins at the source, and changes the cluster before each other stay.

    Attributes:
        name: The group's name.
        protocols: Its protocol at each side.
        stays: The stays while the mirror runs; one more at the destination reads to the end.
    """

    name: str
    protocols: tuple[GroupProtocol, GroupProtocol]
    stays: tuple[StayPlan, ...]

    def protocol(self, side: Side) -> GroupProtocol:
        return self.protocols[0 if side is Side.SOURCE else 1]


@dataclass(frozen=True, slots=True)
class Plan:
    """A trial.

    Attributes:
        seed: Seed of the whole run.
        number: The trial's number in it.
        partitions: Number of partitions of the topic.
        rounds: Number of batches (or of a transaction's batches) for each partition.
        largest_batch: Records in the largest batches.
        codecs: Codecs of the batches, in turn.
        layout_seed: Determines the partitions' leaders, and the contents of the records.
        delay_s: Delay of each Produce request, so that there are moments.
        request_timeout_ms: The mirror's ``request.timeout.ms``.
        fetch_buffer_bytes: The mirror's.
        commit_interval_ms: The mirror's.
        isolation: The ``isolation.level`` of the mirror and of the comparison.
        streams: The product only: it streams until all faults have come, and is stopped by SIGTERM
            before ``--once`` completes it.
        slice_s: Length of its slices then: short ones end and begin during faults.
        again: Run once more after the end: the copy must not change.
        several: The embedded broker accepts several batches of a partition in a request.
        together_bytes: Limit for a partition's bytes in a request then, without Spark.
        rebatch: The mirror's ``--rebatch``.
        raw: Of ``mirror-maker``: ``--use.raw.bytes``.
        at_least_once: Of ``mirror-maker``: ``--delivery at-least-once``.
        groups: The groups whose consumers change clusters.
    """

    seed: int
    number: int
    kind: Kind
    age: Age
    partitions: int
    rounds: int
    largest_batch: int
    codecs: tuple[Codec, ...]
    layout_seed: int
    delay_s: float
    request_timeout_ms: int
    fetch_buffer_bytes: int
    commit_interval_ms: int
    isolation: Isolation
    streams: bool
    slice_s: float
    again: bool
    faults: tuple[Fault, ...]
    several: bool = False
    together_bytes: int = 1024 * 1024
    rebatch: str | None = None
    raw: bool = False
    at_least_once: bool = False
    groups: tuple[GroupPlan, ...] = ()

    @property
    def topic(self) -> str:
        return f"chaos-{self.number}"

    @property
    def new_topic(self) -> str:
        """The topic that a `TopicChange` creates."""
        return f"{self.topic}-new"

    @property
    def topic_change(self) -> TopicChange | None:
        return next((fault for fault in self.faults if isinstance(fault, TopicChange)), None)

    @property
    def expiration_ms(self) -> int:
        """The destination's ``producer.id.expiration.ms``."""
        return SHORT_EXPIRATION_MS if self.age is Age.EXPIRING else DEFAULT_EXPIRATION_MS

    def __str__(self) -> str:
        streaming = f", slices of {self.slice_s:g} s" if self.streams and self.kind is not Kind.MAKER else ""
        how = f"{self.kind.value}{streaming}, {self.age.value}"
        if self.isolation == "read_uncommitted":
            how += ", read_uncommitted"
        if self.several:
            how += ", several batches in a request"
        if self.rebatch:
            how += f", joined below {self.rebatch}"
        if self.kind is Kind.MAKER:
            how += ", batches as they are" if self.raw else ", decoded"
            how += ", at least once" if self.at_least_once else ""
        if self.groups:
            how += f", groups with {', '.join(str(len(each.stays)) for each in self.groups)} stays"
        return f"{how}: {'; '.join(map(str, self.faults))}"


def kind_of(number: int) -> Kind:
    return KINDS[number % len(KINDS)]


def draw(seed: int, number: int, kind: Kind | None = None) -> Plan:
    """Make the plan of a trial that is no scenario; without a kind, the number determines it."""
    dice = random.Random(f"{seed}/{number}")
    kind = kind or kind_of(number)
    plan = Plan(
        seed=seed,
        number=number,
        kind=kind,
        age=dice.choice(AGES),
        partitions=dice.randint(3, 6),
        rounds=dice.randint(40, 100),
        largest_batch=dice.choice([3, 12, 40]),
        codecs=tuple(dice.sample(CODECS, dice.randint(1, 3))),
        layout_seed=dice.randrange(2**32),
        delay_s=dice.choice([0.005, 0.01, 0.02]),
        request_timeout_ms=30_000,
        fetch_buffer_bytes=_fetch_buffer_bytes(kind, dice),
        commit_interval_ms=dice.choice([1, 50, 500, 5_000]),
        isolation="read_uncommitted" if dice.random() < 0.15 else "read_committed",
        streams=kind.has_spark and (dice.random() < 0.6 or kind is not Kind.PRODUCT),
        slice_s=random.Random(f"{seed}/{number}/slices").choice([1.0, 1.0, 3.0, 15.0]),
        again=not kind.has_spark or kind is Kind.TOPICS or (kind is Kind.PRODUCT and dice.random() < 0.15),
        faults=(),
    )
    faults = tuple(_fault(plan, dice) for _ in range(dice.choice([1, 2, 2, 3])))
    faults = tuple(sorted(faults, key=lambda fault: fault.after))
    has_stalls = any(isinstance(fault, Network) and fault.stall_s for fault in faults)
    plan = replace(plan, faults=faults, request_timeout_ms=QUICK_REQUEST_TIMEOUT_MS if has_stalls else 30_000)
    plan = _with_overlap(_with_cluster_events(_with_pauses(_with_small_batches(plan))))
    return _with_topic_change(_with_consumers(_as_maker(plan)))


def _with_consumers(plan: Plan) -> Plan:
    """Add groups that move, and faults of their coordinators and translations, for two of the others."""
    if plan.kind is not Kind.CONSUMERS:
        return plan
    dice = random.Random(f"{plan.seed}/{plan.number}/consumers")
    protocols: list[GroupProtocol] = ["classic", "consumer"]
    groups = tuple(
        GroupPlan(
            f"{plan.topic}-reader-{number}",
            (dice.choice(protocols), dice.choice(protocols)),
            tuple(
                StayPlan(dice.choice([1, dice.randint(1, 60), dice.randint(60, 600)]), dice.random() < 0.4)
                for _ in range(dice.choice([1, 2, 2, 3, 4]))
            ),
        )
        for number in range(dice.randint(3, 5))
    )
    faults = (*plan.faults[:2], *(_group_fault(plan, dice) for _ in range(dice.choice([1, 2]))))
    return replace(
        plan,
        # Consumers of the copy would read aborted records, too, and those of the source would not.
        isolation="read_committed",
        faults=tuple(sorted(faults, key=lambda fault: fault.after)),
        groups=groups,
    )


def _group_fault(plan: Plan, dice: random.Random) -> Fault:
    side = dice.choice(list(Side))
    after = dice.randint(0, plan.rounds)
    match dice.randrange(6):
        case 0 | 1:
            return Event(dice.choice(COMMIT_EVENTS), after)
        case 2 | 3:
            kind = dice.choice(COORDINATOR_EVENTS)
            moves = kind is EventKind.MOVE_COORDINATORS
            steps = dice.randint(1, BROKERS - 1) if moves else 0
            return Event(kind, after, side, steps, 0.0 if moves else dice.choice([0.0, 1.5, 5.0]))
    # Only the mirror commits to the destination through the proxies.
    api = dice.choice([Api.OFFSET_COMMIT, Api.OFFSET_FETCH, Api.LIST_GROUPS, Api.FIND_COORDINATOR])
    return Network(
        side=Side.DESTINATION,
        api=api,
        step=dice.choice(list(Step)),
        after=dice.randint(0, 6),
        stall_s=0.0,
        cut=True,
        reset=dice.random() < 0.5,
    )


def _with_overlap(plan: Plan) -> Plan:
    """Add a fault between two windows, by separate dice: older seeds keep their plans."""
    dice = random.Random(f"{plan.seed}/{plan.number}/overlap")
    if not plan.streams or plan.kind is not Kind.PRODUCT or dice.random() >= _OVERLAPPING:
        return plan
    kind = dice.choice(OVERLAP_EVENTS)
    event = Event(kind, dice.randint(0, plan.rounds // 2))
    return replace(
        plan,
        # So short that no window becomes quiet and is prolonged. Spark starts a job in a quarter of it.
        slice_s=4.0,
        faults=tuple(sorted((*plan.faults, event), key=lambda fault: fault.after)),
    )


def _with_cluster_events(plan: Plan) -> Plan:
    """Add a controller failover or a full disk, by separate dice: older seeds keep their plans."""
    dice = random.Random(f"{plan.seed}/{plan.number}/cluster events")
    if plan.kind is Kind.EMBEDDED or dice.random() >= _CLUSTER_EVENTS:
        return plan
    kind = dice.choice([EventKind.KILL_CONTROLLER, EventKind.RESTART_CONTROLLER, EventKind.FILL_DISK])
    side = Side.DESTINATION if kind is EventKind.FILL_DISK else dice.choice([Side.DESTINATION, *Side])
    node_id = dice.randint(1, BROKERS) if kind in BROKER_EVENTS else 0
    event = Event(kind, dice.randint(0, plan.rounds), side, node_id, dice.choice([0.0, 1.5, 5.0]))
    return replace(plan, faults=tuple(sorted((*plan.faults, event), key=lambda fault: fault.after)))


def _with_topic_change(plan: Plan) -> Plan:
    """Change the source's topics so early that the mirror is still copying."""
    if plan.kind is not Kind.TOPICS:
        return plan
    dice = random.Random(f"{plan.seed}/{plan.number}/topics")
    change = dice.choice([Change.RECREATED, Change.RECREATED, Change.PARTITIONS, Change.TOPIC])
    down = [Meanwhile.KILLED, Meanwhile.STOPPED]
    paused = [Meanwhile.RUNS, Meanwhile.WORKERS_PAUSED, Meanwhile.PAUSED]
    # If a topic is created while the mirror is down, the mirror could skip its records.
    meanwhile = dice.choice([*down, *(down if change is not Change.RECREATED else []), *paused])
    topic_change = TopicChange(
        change=change,
        meanwhile=meanwhile,
        after=dice.randint(0, plan.rounds // 2),
        rounds=dice.randint(1, plan.rounds),
        goes_on=dice.random() < 0.6,
        latest=change is not Change.RECREATED and dice.random() < 0.6,
        down_s=0.0 if meanwhile is Meanwhile.RUNS else dice.choice([0.0, 1.5]),
    )
    faults = sorted((*plan.faults[:2], topic_change), key=lambda fault: fault.after)
    return replace(plan, faults=tuple(faults))


def _as_maker(plan: Plan) -> Plan:
    if plan.kind is not Kind.MAKER:
        return plan
    dice = random.Random(f"{plan.seed}/{plan.number}/maker")
    return replace(plan, raw=dice.random() < 0.5, at_least_once=dice.random() < 0.3, rebatch=None)


def _with_pauses(plan: Plan) -> Plan:
    """Add paused processes or a second mirror, by separate dice: older seeds keep their plans."""
    dice = random.Random(f"{plan.seed}/{plan.number}/pauses")
    if dice.random() >= _PAUSED:
        return plan
    kinds = [EventKind.PAUSE_TASK]
    if plan.kind.has_spark:
        kinds = [
            EventKind.PAUSE_WORKERS,
            EventKind.PAUSE_WORKERS,
            EventKind.PAUSE_DRIVER,
            EventKind.PAUSE_ALL,
            EventKind.CONTEND,
        ]
    kind = dice.choice(kinds)
    paused_s = 0.0 if kind is EventKind.CONTEND else dice.choice(_PAUSES_S)
    event = Event(kind, dice.randint(0, plan.rounds), down_s=paused_s)
    return replace(plan, faults=tuple(sorted((*plan.faults, event), key=lambda fault: fault.after)))


def _with_small_batches(plan: Plan) -> Plan:
    """Draw the options for small batches, by separate dice: older seeds keep their plans."""
    dice = random.Random(f"{plan.seed}/{plan.number}/small batches")
    return replace(
        plan,
        several=plan.kind is Kind.EMBEDDED and dice.random() < 0.6,
        # A low limit, so that there are many requests, and moments.
        together_bytes=dice.choice([600, 1_500, 20_000]),
        rebatch=dice.choice(["500", "4k", "4k:zstd"]) if dice.random() < 0.15 else None,
    )


def _fetch_buffer_bytes(kind: Kind, dice: random.Random) -> int:
    largest = 16 * 1024 * 1024
    # 64 KiB of a buffer are for the response around the record sets.
    return dice.choice([1_048_576, largest] if kind.has_spark else [68_000, 300_000, largest])


def _fault(plan: Plan, dice: random.Random) -> Fault:
    after = dice.randint(0, plan.rounds)
    if plan.kind is Kind.EMBEDDED and dice.random() < 0.7:
        return _refusal(plan, after, dice)
    drawn = dice.random()
    if drawn < 0.40:
        return _process_event(plan, after, dice)
    if drawn < 0.60:
        return _cluster_event(plan, after, dice)
    return _network(plan, after, dice)


def _refusal(plan: Plan, after: int, dice: random.Random) -> Refusal:
    error = dice.choice(list(Error))
    effect = {
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "after",
        Error.RECORD_LIST_TOO_LARGE: "before",
        Error.NOT_ENOUGH_REPLICAS: "before",
    }.get(error) or dice.choice(["before", "after"])
    partition = dice.choice([None, dice.randrange(plan.partitions)])
    # If a partition stops, the process ends; the next start meets the next error.
    times = dice.randint(1, 2 if error is Error.RECORD_LIST_TOO_LARGE else 6)
    return Refusal(error, after, times, effect, partition)


def _process_event(plan: Plan, after: int, dice: random.Random) -> Event:
    if not plan.kind.has_spark:
        return Event(EventKind.KILL_TASK, after)
    kinds = [
        EventKind.KILL_WORKER,
        EventKind.KILL_WORKER,
        EventKind.KILL_JVM,
        EventKind.KILL_DRIVER,
        EventKind.KILL_DRIVER_AND_JVM,
        EventKind.SIGTERM,
    ]
    return Event(dice.choice(kinds), after)


def _cluster_event(plan: Plan, after: int, dice: random.Random) -> Event:
    sides = [Side.SOURCE] if plan.kind is Kind.EMBEDDED else [Side.DESTINATION, Side.DESTINATION, Side.SOURCE]
    kind = dice.choice([EventKind.KILL_BROKER, EventKind.RESTART_BROKER, EventKind.MOVE_LEADERS])
    if kind is EventKind.MOVE_LEADERS:
        return Event(kind, after, dice.choice(sides), dice.randint(1, BROKERS - 1))
    return Event(
        kind,
        after,
        dice.choice(sides),
        dice.randint(1, BROKERS),
        round(dice.choice([0, dice.uniform(0, 6)]), 1),
    )


def _network(plan: Plan, after: int, dice: random.Random) -> Network:
    others = [Api.LIST_OFFSETS, Api.METADATA, Api.OFFSET_COMMIT, Api.OFFSET_FETCH, Api.FIND_COORDINATOR]
    others += [Api.INIT_PRODUCER_ID, Api.OFFSET_FOR_LEADER_EPOCH]
    if plan.kind.has_spark:
        others += [Api.JOIN_GROUP, Api.SYNC_GROUP, Api.HEARTBEAT]
    api = dice.choice([*[Api.PRODUCE] * 12, *[Api.FETCH] * 4, *others])
    side = _SIDE_OF.get(api) or dice.choice(list(Side))
    if plan.kind is Kind.EMBEDDED and side is Side.DESTINATION:
        api, side = Api.FETCH, Side.SOURCE  # the embedded broker has no proxy, but its own faults
    step = dice.choice(list(Step))
    if api is Api.PRODUCE and dice.random() < 0.25:
        step = Step.BEFORE_RESPONSE
    stall_s = dice.choice([0.0, 0.0, *_STALLS_S])
    # There are few of all others: one of the first of its kind.
    if api is not Api.PRODUCE:
        after = dice.randint(0, 12 if api is Api.FETCH else 3)
    late = (
        api is Api.PRODUCE and plan.age is Age.FRESH and step is Step.BEFORE_REQUEST and dice.random() < 0.5
    )
    return Network(
        side=side,
        api=api,
        step=step,
        after=after,
        stall_s=QUICK_REQUEST_TIMEOUT_MS / 1000 + 1.5 if late else stall_s,
        cut=step is Step.AFTER_REQUEST or not stall_s or dice.random() < 0.3,
        reset=dice.random() < 0.5,
        late=late,
    )
