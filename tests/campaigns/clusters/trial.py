"""One trial: load a topic, mirror it under faults, and compare."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rig.judge import Verdict
from rig.proxy import Disturbance, Step
from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from shoal_broker.faults import Fault as BrokerFault
from tests.campaigns import plan as tasks
from tests.campaigns.trial import run_trial as run_tasks

from .arena import Arena
from .consumers import MovingConsumers
from .load import create_on, delete_on, layout
from .movers import Mover
from .plan import (
    COMMIT_EVENTS,
    Api,
    Change,
    Event,
    EventKind,
    Kind,
    Meanwhile,
    Network,
    Plan,
    Refusal,
    Side,
    TopicChange,
)
from .processes import Ended, MirrorRun, end_orphans
from .scenarios import SCENARIOS, ScenarioPlan, run_scenario
from .topics import SourceTopics

__all__ = ["Outcome", "TaskPlan", "run_scenario_trial", "run_task_trial", "run_trial"]

#: Timeout of one process, with all faults: brokers come back within ten seconds.
_ATTEMPT_S = 150.0

#: Number of processes that may fail one after the other, without those that were killed.
_FAILURES = 4

#: An orphan ends after it notices that its driver is gone; a lease is 30 s, and so is a request's timeout.
_ORPHANS_END_WITHIN_S = 45.0

#: Timeout until a stream has copied anything.
_STREAM_S = 90.0

#: If a stream is idle for so long, no further fault can occur.
_IDLE_S = 15.0

#: Number of streams, one after the other, before ``--once`` completes the trial; and of attempts that are
#: left for it if consumers move, which need a mirror as long as they do.
_STREAMS = 3

_POLL_S = 0.005

#: Interval between reads of the group's positions.
_POLL_COMMITTED_S = 0.3

#: Number of processes that may be killed, or end without an error, before everything is copied.
_ATTEMPTS = 12

#: Time for which a second mirror-maker copies beside the first.
_MEMBER_S = 15.0

#: Time for which the commit of a translated offset is held up, so that the mirror can be killed meanwhile.
_HELD_S = 5.0

#: Reason for which a partition of a recreated topic stops (docs/operating.md).
_CREATED_AGAIN = "created again"


@dataclass
class Outcome:
    """The result of a trial.

    Attributes:
        plan: The plan that was run.
        comparison: Verdict on both topics, at the end.
        problems: Problems besides wrong records: a partition that stopped, a process that did not end.
        came: The names of the faults that occurred.
        attempts: Number of processes started.
        failures: Number of processes that ended by themselves with an error.
        errors: The last error of each of them.
        seconds: Duration of the trial.
        phases: Seconds of each phase.
        reading: The verdict on what the consumers have read that moved.
        moves: Number of their moves.
    """

    plan: Plan | ScenarioPlan | TaskPlan
    comparison: Verdict = field(default_factory=Verdict)
    problems: list[str] = field(default_factory=list)
    came: list[str] = field(default_factory=list)
    attempts: int = 0
    failures: int = 0
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    reading: Verdict = field(default_factory=Verdict)
    moves: int = 0

    @property
    def is_exact(self) -> bool:
        return self.comparison.is_exact and self.reading.is_exact and not self.problems


def run_trial(plan: Plan, arena: Arena, logs: Path, patience: float = 1.0) -> Outcome:
    """Run a plan; write the processes' output to ``logs``, and both clusters' logs if they differ.

    Args:
        patience: Factor of the timeouts, 1 for two idle cores.
    """
    logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        trial = _Trial(plan, arena, logs, stack, patience)
        began = time.monotonic()
        try:
            trial.run()
        finally:
            trial.outcome.seconds = time.monotonic() - began
    return trial.outcome


def run_scenario_trial(plan: ScenarioPlan) -> Outcome:
    """Run a trial of a scenario; it needs no arena."""
    began = time.monotonic()
    stage, problems = run_scenario(plan, SCENARIOS[plan.scenario]())
    records = sum(len(partition.ever) for partition in stage.partitions)
    return Outcome(
        plan,
        Verdict(due=records),
        problems,
        came=[plan.scenario],
        attempts=stage.tasks,
        seconds=time.monotonic() - began,
    )


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """A trial of tasks in this process.

    Attributes:
        without: Names of events to leave out.
    """

    seed: int
    number: int
    without: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        return Kind.TASK

    def drawn(self) -> tasks.TaskPlan:
        return tasks.draw(self.seed + self.number, self.without)

    def __str__(self) -> str:
        plan = self.drawn()
        return "; ".join(["tasks", str(plan.setup), *map(str, plan.steps)])


def run_task_trial(plan: TaskPlan) -> Outcome:
    """Run a trial of tasks; it needs no arena."""
    began, drawn = time.monotonic(), plan.drawn()
    problems, records = run_tasks(drawn)
    came = sorted({event.name for step in drawn.steps for event in step.events})
    seconds = time.monotonic() - began
    return Outcome(
        plan, Verdict(due=records), problems, came=came, attempts=len(drawn.steps), seconds=seconds
    )


def _embedded(plan: Plan) -> Broker:
    """Return a broker that forgets a producer between two of its requests in flight."""
    return Broker(
        config={
            "producer.id.expiration.ms": str(plan.expiration_ms),
            "producer.id.expiration.check.interval.ms": "1",
            "shoal.multi.batch.produce": str(plan.several).lower(),
        }
    )


class _Trial:
    def __init__(self, plan: Plan, arena: Arena, logs: Path, stack: ExitStack, patience: float) -> None:
        self.plan = plan
        self._patience = patience
        self.outcome = Outcome(plan)
        self._arena = arena
        self._logs = logs
        self._broker = stack.enter_context(_embedded(plan)) if plan.kind is Kind.EMBEDDED else None
        self._topics = SourceTopics(arena.bootstrap(Side.SOURCE), plan)
        self._mover = Mover(plan, arena.proxied(Side.SOURCE), self._mirrors_into, logs)
        self._consumers = MovingConsumers(plan, {side: arena.bootstrap(side) for side in Side}, patience)
        self._growing = threading.Thread(target=self._grow, name="growing")
        change = plan.topic_change
        self._goes_on = change is not None and change.goes_on
        self._has_changed = self._was_recreated = False
        self._starting = threading.Lock()
        self._broker_faults: list[tuple[Refusal | None, BrokerFault]] = []
        self._disturbances: list[tuple[Network, Disturbance]] = []
        self._current: MirrorRun | None = None
        self._orphans: list[psutil.Process] = []
        self._over = threading.Event()
        self._events: list[threading.Thread] = []
        self._came: list[str] = []
        self._ends: list[int] = []

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.outcome.phases[name] = time.monotonic() - began

    # Before and after

    def run(self) -> None:
        with self._phase("create"):
            self._prepare()
        with self._phase("load"):
            self._ends = self._topics.load()
        try:
            with self._phase("mirror"):
                self._let_things_go_wrong()
                self._mirror()
        finally:
            self._over.set()
            self._consumers.end()
            if self._current is not None:
                if self._current.is_running:
                    self._current.kill()
                    self._current.wait(10)
                self._orphans += self._current.orphans
            for each in self._events:
                each.join()
            if self._growing.is_alive():
                self._growing.join()
            left = end_orphans(self._orphans, _ORPHANS_END_WITHIN_S)
            self.outcome.problems += [f"an orphan did not end: {each}" for each in left]
            self._note_what_came()
            for proxies in self._arena.proxies.values():
                proxies.clear()
            if self._broker:
                self._broker.faults.clear()
        with self._phase("heal"):
            self._arena.heal()
        if self._was_recreated and not self._goes_on and not self.outcome.problems:
            with self._phase("stop"):
                self._stay_and_go_on()
        if self.plan.again and not self.outcome.problems:
            with self._phase("again"):
                self._once_more()
        if self.plan.groups and not self.outcome.problems:
            with self._phase("consumers"):
                self._judge_consumers()
        with self._phase("compare"):
            self.outcome.comparison = self._topics.compare(self._destination)
            if not self.outcome.comparison.due:
                self.outcome.problems.append("there was no record to compare")
            self.outcome.problems += self._topics.problems
            self._judge_doubles()
        if self.outcome.is_exact:
            self._clean_up()
        else:
            self._keep()

    def _prepare(self) -> None:
        plan, arena = self.plan, self._arena
        self._topics.create()
        if self._broker is None:
            arena.expire_producers_after(plan.expiration_ms)
            create_on(arena.bootstrap(Side.DESTINATION), plan.topic, layout(plan, "destination"))
        else:
            admin = AdminClient({"bootstrap.servers": self._broker.bootstrap, "log_level": 0})
            new = NewTopic(plan.topic, plan.partitions, 1, config={"retention.ms": "-1"})
            admin.create_topics([new])[plan.topic].result()
        change = plan.topic_change
        if change is not None and change.latest:
            self._topics.load_what_is_passed_over()
            self._run_once(self._logs / "first start", "the first start")
            if self.outcome.problems:
                raise RuntimeError("; ".join(self.outcome.problems))

    @property
    def _destination(self) -> str:
        """The brokers themselves."""
        return self._broker.bootstrap if self._broker else self._arena.bootstrap(Side.DESTINATION)

    @property
    def _mirrors_into(self) -> str:
        return self._broker.bootstrap if self._broker else self._arena.proxied(Side.DESTINATION)

    def _clean_up(self) -> None:
        shutil.rmtree(self._logs, ignore_errors=True)
        self._topics.delete()
        if self.plan.groups:
            self._consumers.forget()
        if self._broker is None:
            for topic in self._topics.names:
                delete_on(self._arena.bootstrap(Side.DESTINATION), topic)

    def _keep(self) -> None:
        """Keep the files for a diagnosis."""
        for side, cluster in self._arena.clusters.items():
            for node_id, log_dir in cluster.log_dirs.items():
                # Also of a topic that is created during the trial.
                for partition in sorted(log_dir.glob(f"{self.plan.topic}-*")):
                    where = self._logs / side.value / str(node_id) / partition.name
                    shutil.copytree(partition, where, dirs_exist_ok=True)
                (self._logs / f"{side.value}-{node_id}.log").write_text(cluster.output(node_id, 3000))
        comparison = self.outcome.comparison
        lines = [repr(self.plan), str(self.plan), *self.outcome.problems, *comparison.details]
        lines += self.outcome.reading.details
        (self._logs / "trial.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")

    # Faults

    def _let_things_go_wrong(self) -> None:
        for proxies in self._arena.proxies.values():
            proxies.clear()
        self._arena.proxies[Side.DESTINATION].delays_s = {Api.PRODUCE: self.plan.delay_s}
        for fault in self.plan.faults:
            match fault:
                case Network():
                    self._disturb(fault)
                case Event():
                    thread = threading.Thread(target=self._bring_about, args=(fault,), name=str(fault))
                    self._events.append(thread)
                case TopicChange():
                    thread = threading.Thread(target=self._change_topics, args=(fault,), name=str(fault))
                    self._events.append(thread)
        if self._broker:
            self._refuse(self._broker)

    def _disturb(self, fault: Network) -> None:
        disturbance = Disturbance(
            fault.api, fault.step, fault.after, 1, fault.stall_s, fault.cut, fault.reset, fault.late
        )
        self._disturbances.append((fault, disturbance))
        self._arena.proxies[fault.side].disturb(disturbance)

    def _refuse(self, broker: Broker) -> None:
        """Queue the embedded broker's faults: of several, the oldest comes first."""
        passed = 0
        for fault in self.plan.faults:
            if isinstance(fault, Refusal):
                if fault.after > passed:
                    self._broker_fault(broker, None, times=fault.after - passed, delay_s=self.plan.delay_s)
                    passed = fault.after
                self._broker_fault(
                    broker,
                    fault,
                    times=fault.times,
                    error=ErrorCode(fault.error),
                    effect=fault.effect,
                    partition=fault.partition,
                )
        self._broker_fault(broker, None, times=None, delay_s=self.plan.delay_s)

    def _broker_fault(self, broker: Broker, refusal: Refusal | None, **how: object) -> None:
        self._broker_faults.append((refusal, broker.faults.add(ApiKey.PRODUCE, **how)))  # type: ignore[arg-type]

    def _answered(self) -> int:
        """Number of Produce requests that the destination has answered."""
        if self._broker:
            return sum(fault.hits for _, fault in self._broker_faults)
        return self._arena.proxies[Side.DESTINATION].responses(Api.PRODUCE)

    def _bring_about(self, event: Event) -> None:
        if not self._await_moment(event.after):
            return
        if event.kind is EventKind.FILL_DISK and not self._arena.has_disks:
            return
        if event.side is not None:
            self._arena.bring_about(event, self.plan.topic)
            self._came.append(event.name)
        elif event.kind is EventKind.CONTEND:
            self._contend()
            self._came.append(event.name)
        elif event.kind in COMMIT_EVENTS:
            self._kill_in_commit(event)
        elif self._do_to_mirror(lambda run: run.suffer(event.kind, event.down_s)):
            self._came.append(event.name)

    def _kill_in_commit(self, event: Event) -> None:
        """Kill the mirror while it waits for the commit of a translated offset.

        As its connection ends, a request that is held up never arrives.
        """
        before = event.kind is EventKind.KILL_BEFORE_COMMIT
        step = Step.BEFORE_REQUEST if before else Step.BEFORE_RESPONSE
        held = Disturbance(Api.OFFSET_COMMIT, step, stall_s=_HELD_S)
        self._arena.proxies[Side.DESTINATION].disturb(held)
        while not held.hits:
            if self._over.wait(_POLL_S):
                return
        if self._do_to_mirror(lambda run: run.suffer(EventKind.KILL_DRIVER_AND_JVM)):
            self._came.append(event.name)

    def _await_moment(self, after: int) -> bool:
        """Wait until the destination has answered this many Produce requests; return whether it has."""
        while self._answered() < after:
            if self._over.wait(_POLL_S):
                return False
        return True

    def _do_to_mirror(self, do: Callable[[MirrorRun], None]) -> bool:
        """Apply a function to the running process, or to the next one; return whether it was applied."""
        while not self._over.is_set():
            run = self._current
            if run is not None and run.is_running:
                try:
                    do(run)
                except Ended:
                    continue  # perhaps the next one has such a part to kill
                return True
            self._over.wait(_POLL_S)
        return False

    def _change_topics(self, change: TopicChange) -> None:
        if not self._await_moment(change.after):
            return
        try:
            match change.meanwhile:
                case Meanwhile.RUNS:
                    self._change(change)
                case Meanwhile.WORKERS_PAUSED:
                    self._do_to_mirror(lambda run: self._change_paused(run, EventKind.PAUSE_WORKERS, change))
                case Meanwhile.PAUSED:
                    self._do_to_mirror(lambda run: self._change_paused(run, EventKind.PAUSE_ALL, change))
                case Meanwhile.KILLED:
                    self._change_while_down(EventKind.KILL_DRIVER_AND_JVM, change)
                case Meanwhile.STOPPED:
                    self._change_while_down(EventKind.SIGTERM, change)
        except Exception as error:
            # In its own thread the exception would be lost.
            self.outcome.problems.append(f"{change.name}: {type(error).__name__}: {error}")

    def _change(self, change: TopicChange) -> None:
        self._was_recreated = change.change is Change.RECREATED
        self._topics.change(change)
        self._has_changed = True
        self._came.append(change.name)

    def _change_paused(self, run: MirrorRun, kind: EventKind, change: TopicChange) -> None:
        with run.paused_part(kind):
            self._change(change)
            time.sleep(change.down_s)  # the additional pause, not a wait for a condition

    def _change_while_down(self, kind: EventKind, change: TopicChange) -> None:
        with self._starting:
            run = self._current
            if run is not None and run.is_running:
                with suppress(Ended):
                    run.suffer(kind)
                run.end(_ATTEMPT_S * self._patience)
            self._change(change)
            time.sleep(change.down_s)  # the additional absence, not a wait for a condition

    def _contend(self) -> None:
        """Start a second mirror for the same group: whichever of the two copies, the copy is exact."""
        log = self._logs / "contender"
        log.mkdir(parents=True, exist_ok=True)
        mover = replace(self._mover, directory=log)
        started = mover.started(self._ends, once=True, goes_on=self._goes_on)
        contender = MirrorRun(started, log / "attempt", {"XDG_STATE_HOME": str(log)})
        if self.plan.kind is Kind.MAKER:
            while contender.is_running and contender.last_line().get("phase") != "copying":
                if self._over.wait(_POLL_COMMITTED_S):
                    break
            self._over.wait(_MEMBER_S)
            contender.send_signal(signal.SIGTERM)
        if contender.end(_ATTEMPT_S * self._patience) is None:
            contender.kill()
            self.outcome.problems.append("a second mirror of the same group did not end")
        self._orphans += contender.orphans

    def _note_what_came(self) -> None:
        came = self._came + [fault.name for fault, met in self._disturbances if met.hits]
        came += [refusal.name for refusal, met in self._broker_faults if refusal and met.hits]
        self.outcome.came = came

    # The mirror

    def _mirror(self) -> None:
        for each in self._events:
            each.start()
        if self.plan.groups:
            self._growing.start()
            self._consumers.begin()
        while self.outcome.failures < _FAILURES and self.outcome.attempts < _ATTEMPTS:
            streams = self.plan.streams and self.outcome.attempts < self._streams and self._is_eventful
            once = not streams and self.plan.kind is not Kind.MAKER
            run = self._start(once=once)
            code = run.end(_ATTEMPT_S * self._patience) if once else self._stop_stream(run)
            self._orphans += run.orphans
            with self._starting:
                pass  # topics that change while the mirror is down have changed
            if code is None:
                self.outcome.problems.append(f"attempt {self.outcome.attempts} did not end")
                return
            if self._is_done(run, code, once=once):
                return
            self._judge(run, code, once=once)
            if self.outcome.problems:
                return
        failures, attempts = self.outcome.failures, self.outcome.attempts
        self.outcome.problems.append(f"{failures} of {attempts} attempts failed, and none has copied all")

    def _is_done(self, run: MirrorRun, code: int, *, once: bool) -> bool:
        """Whether everything is copied, or no further copying is allowed."""
        if self.plan.groups and self._is_eventful:
            return False
        if self.plan.kind is Kind.MAKER:
            return code == 0 and self._is_committed()
        if self.plan.kind is Kind.TOPICS and self._has_changed and not self._is_eventful:
            # The following runs do the rest: the promises are about their exit codes and their copy.
            return run.killed or code in self._good_codes or self._has_stopped_as_it_must(run)
        if code in self._good_codes:
            return (once and not run.killed) or bool(run.last_line().get("complete"))
        return once and self._has_stopped_as_it_must(run)

    @property
    def _streams(self) -> int:
        """Number of streams, one after the other, before ``--once`` completes the trial."""
        return _ATTEMPTS - _STREAMS if self.plan.groups else _STREAMS

    def _grow(self) -> None:
        """Load more while the mirror and the consumers run."""
        try:
            self._ends = self._topics.load_more()
        except Exception as error:
            # In its own thread the exception would be lost.
            self.outcome.problems.append(f"the source did not grow: {type(error).__name__}: {error}")

    def _judge_consumers(self) -> None:
        if not self._consumers.problems:
            self._consumers.finish()
        self.outcome.problems += self._consumers.problems
        self.outcome.moves = self._consumers.moves
        if not self.outcome.problems:
            self.outcome.reading = self._consumers.judge()

    @property
    def _good_codes(self) -> tuple[int, ...]:
        """Exit codes of a complete copy; 4 is that of a mirror that continued in a recreated topic."""
        return (0, 4) if self._was_recreated and self._goes_on else (0,)

    def _has_stopped_as_it_must(self, run: MirrorRun) -> bool:
        """Whether partitions have stopped for the only reason that this trial has for it."""
        stopped = run.last_line().get("stopped") or {}
        may_stop = self._was_recreated and not self._goes_on
        return may_stop and bool(stopped) and all(_CREATED_AGAIN in each for each in stopped.values())

    def _is_committed(self) -> bool:
        """Whether the group's positions are the ends of all partitions."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._arena.bootstrap(Side.SOURCE),
                "group.id": self.plan.topic,  # never joined
                "log_level": 0,
            }
        )
        try:
            asked = [TopicPartition(self.plan.topic, number) for number in range(self.plan.partitions)]
            return [each.offset for each in consumer.committed(asked, timeout=10)] == self._ends
        except KafkaException:
            return False  # a broker is down
        finally:
            consumer.close()

    def _start(self, *, once: bool) -> MirrorRun:
        with self._starting:
            self.outcome.attempts += 1
            log = self._logs / f"attempt-{self.outcome.attempts}"
            self._current = run = self._run(log, once=once)
            return run

    def _run(self, log: Path, *, once: bool) -> MirrorRun:
        started = self._mover.started(self._ends, once=once, goes_on=self._goes_on)
        spark = {"XDG_STATE_HOME": str(self._logs.parent)} if self.plan.kind.has_spark else None
        return MirrorRun(started, log, spark)

    @property
    def _is_eventful(self) -> bool:
        """Whether an event is still to come, or not over yet, as of a broker that is down.

        The events of a trial with consumers end with their moves.
        """
        if self.plan.groups:
            return self._consumers.are_moving or self._growing.is_alive()
        return any(each.is_alive() for each in self._events) or any(
            fault.api is Api.PRODUCE and not met.hits for fault, met in self._disturbances
        )

    def _stop_stream(self, run: MirrorRun) -> int | None:
        """Let a stream run until all faults have come, then stop it as an operator would."""
        deadline = time.monotonic() + _STREAM_S * self._patience
        answered = self._answered()
        while run.is_running and self._is_wanted(run) and time.monotonic() < deadline:
            if self._answered() != answered or self.plan.groups:
                answered = self._answered()
                deadline = time.monotonic() + _IDLE_S * self._patience
            self._over.wait(_POLL_S if self._is_eventful else _POLL_COMMITTED_S)
        if run.is_running:
            run.send_signal(signal.SIGTERM)
        return run.end(_ATTEMPT_S * self._patience)

    def _is_wanted(self, run: MirrorRun) -> bool:
        """Whether a stream still has records to copy, or faults to come."""
        return self._is_eventful or (self.plan.kind is Kind.MAKER and not self._is_committed())

    def _judge(self, run: MirrorRun, code: int, *, once: bool) -> None:
        """Count an attempt that did not complete; if a partition stopped, that is a separate problem."""
        if run.killed or (code == 0 and not once) or (not once and self._has_stopped_as_it_must(run)):
            return
        if code == -signal.SIGTERM and not once:
            return  # no fault was left before Python had installed its handlers
        self.outcome.failures += 1
        self.outcome.errors.append(run.last_error())
        stopped = run.last_line().get("stopped") or {}
        if any(isinstance(fault, Refusal) and fault.stops for fault in self.plan.faults):
            return  # as documented: it stops with a reason, and the next start continues
        self.outcome.problems += [f"{partition} stopped: {reason}" for partition, reason in stopped.items()]

    def _stay_and_go_on(self) -> None:
        """Start it again, and require the same stop; then let it continue by its option."""
        run, code = self._run_to_its_end(self._logs / "stop")
        if code != 0 and not self._has_stopped_as_it_must(run):
            self.outcome.problems.append(f"a run that may only stop ended with {code}: {run.last_line()}")
        stopped = run.last_line().get("stopped") or {}
        self.outcome.problems += self._topics.compare_stopped(self._destination, stopped)
        self._goes_on = True

    def _once_more(self) -> None:
        """Run once more: a complete copy stays the same; one of a topic that changed late is completed."""
        self._run_once(self._logs / "again", "a run with little or nothing to do")

    def _run_once(self, log: Path, what: str) -> None:
        run, code = self._run_to_its_end(log)
        if code not in self._good_codes:
            self._judge(run, code, once=True)
            self.outcome.problems.append(f"{what} ended with {code}")

    def _run_to_its_end(self, log: Path) -> tuple[MirrorRun, int]:
        self.outcome.attempts += 1
        run = self._run(log, once=True)
        code = run.end(_ATTEMPT_S * self._patience)
        if code is None:
            run.kill()
            self.outcome.problems.append(f"a run without faults did not end: {log.name}")
            code = -1
        end_orphans(run.orphans, _ORPHANS_END_WITHIN_S)
        return run, code

    def _judge_doubles(self) -> None:
        """Allow a duplicate in at-least-once delivery only after a fault."""
        if self.outcome.comparison.again and not self.outcome.came:
            self.outcome.problems.append(
                f"{self.outcome.comparison.again} records are there again for nothing"
            )
