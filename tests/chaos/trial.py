"""One trial: load a topic, mirror it while things go wrong, and compare."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rig.proxy import Disturbance
from rig.read import Isolation, read_topic
from rig.wait import wait_until
from shoal.broker import Broker
from shoal.broker.faults import Fault as BrokerFault
from shoal.errors import ErrorCode
from shoal.protocol.apis import ApiKey

from .arena import Arena
from .compare import Comparison, compare
from .load import create_on, delete_on, layout, load
from .plan import Api, Event, EventKind, Kind, Network, Plan, Refusal, Side
from .processes import Ended, MirrorRun, end_orphans
from .scenarios import SCENARIOS, ScenarioPlan, run_scenario

__all__ = ["Outcome", "run_scenario_trial", "run_trial"]

_TASK = Path(__file__).with_name("task.py")

#: One process may take so long, whatever goes wrong: brokers come back within ten seconds.
_ATTEMPT_S = 150.0

#: So many processes one after the other may fail, those that were killed not counted.
_FAILURES = 4

#: An orphan ends when it has noticed that its driver is gone; a lease is 30 s, a request's time-out, too.
_ORPHANS_END_WITHIN_S = 45.0

#: How long a stream may take until it has copied anything.
_STREAM_S = 90.0

#: A stream that has been idle for so long will bring no fault's moment any more.
_IDLE_S = 15.0

#: So many streams, one after the other, before the trial is completed by ``--once``.
_STREAMS = 3

_POLL_S = 0.005


@dataclass
class Outcome:
    """
    Attributes:
        plan: The trial that was run.
        comparison: Of both topics, at the end.
        problems: What should not happen although no record is wrong: a partition that stopped, a
            process that did not end.
        came: The names of the faults that came, or were met.
        attempts: Processes that were started.
        failures: Those that ended with an error by themselves.
        seconds: All in all.
        phases: Seconds by what they were spent on.
    """

    plan: Plan | ScenarioPlan
    comparison: Comparison = field(default_factory=Comparison)
    problems: list[str] = field(default_factory=list)
    came: list[str] = field(default_factory=list)
    attempts: int = 0
    failures: int = 0
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def is_exact(self) -> bool:
        return self.comparison.is_exact and not self.problems and self.comparison.records > 0


def run_trial(plan: Plan, arena: Arena, logs: Path) -> Outcome:
    """Run a plan; ``logs`` gets what its processes wrote, and both logs where they differ."""
    logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        trial = _Trial(plan, arena, logs, stack)
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
        Comparison(records=records),
        problems,
        came=[plan.scenario],
        attempts=stage.tasks,
        seconds=time.monotonic() - began,
    )


def _embedded(plan: Plan) -> Broker:
    """Return a broker that forgets producers so soon that it does between two requests in flight."""
    return Broker(
        config={
            "producer.id.expiration.ms": str(plan.expiration_ms),
            "producer.id.expiration.check.interval.ms": "1",
            "shoal.multi.batch.produce": str(plan.several).lower(),
        }
    )


class _Trial:
    def __init__(self, plan: Plan, arena: Arena, logs: Path, stack: ExitStack) -> None:
        self.plan = plan
        self.outcome = Outcome(plan)
        self._arena = arena
        self._logs = logs
        self._broker = stack.enter_context(_embedded(plan)) if plan.kind is Kind.EMBEDDED else None
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
            expected = load(self._arena.bootstrap(Side.SOURCE), self.plan)
            self._ends = self._source_ends()
        try:
            with self._phase("mirror"):
                self._let_things_go_wrong()
                self._mirror()
        finally:
            self._over.set()
            if self._current is not None:
                if self._current.is_running:
                    self._current.kill()
                    self._current.wait(10)
                self._orphans += self._current.orphans
            for each in self._events:
                each.join()
            left = end_orphans(self._orphans, _ORPHANS_END_WITHIN_S)
            self.outcome.problems += [f"an orphan did not end: {each}" for each in left]
            self._note_what_came()
            for proxies in self._arena.proxies.values():
                proxies.clear()
            if self._broker:
                self._broker.faults.clear()
        with self._phase("heal"):
            self._arena.heal()
        if self.plan.again and not self.outcome.problems:
            with self._phase("again"):
                self._once_more()
        with self._phase("compare"):
            self._compare(expected)
        if self.outcome.is_exact:
            self._clean_up()
        else:
            self._keep()

    def _prepare(self) -> None:
        plan, arena = self.plan, self._arena
        create_on(arena.bootstrap(Side.SOURCE), plan, layout(plan, "source"))
        if self._broker is None:
            arena.expire_producers_after(plan.expiration_ms)
            create_on(arena.bootstrap(Side.DESTINATION), plan, layout(plan, "destination"))
        else:
            admin = AdminClient({"bootstrap.servers": self._broker.bootstrap, "log_level": 0})
            new = NewTopic(plan.topic, plan.partitions, 1, config={"retention.ms": "-1"})
            admin.create_topics([new])[plan.topic].result()

    def _source_ends(self) -> list[int]:
        """Wait until no transaction is open any more (markers come after the commit), and return the ends."""
        ends: list[int] = []

        def is_settled() -> bool:
            ends[:] = self._watermarks("read_uncommitted")
            return ends == self._watermarks("read_committed")

        wait_until(is_settled, f"the last markers of {self.plan.topic}")
        return ends

    def _watermarks(self, isolation: Isolation) -> list[int]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._arena.bootstrap(Side.SOURCE),
                "group.id": "chaos",  # demanded by librdkafka, never joined
                "isolation.level": isolation,
                "log_level": 0,
            }
        )
        try:
            return [
                int(consumer.get_watermark_offsets(TopicPartition(self.plan.topic, number), timeout=30)[1])
                for number in range(self.plan.partitions)
            ]
        finally:
            consumer.close()

    def _compare(self, expected: int) -> None:
        source = read_topic(self._arena.bootstrap(Side.SOURCE), self.plan.topic, self.plan.isolation)
        self.outcome.comparison = compare(source, read_topic(self._destination, self.plan.topic))
        seen = self.outcome.comparison.records
        if seen != expected:
            self.outcome.problems.append(
                f"the source has {seen} records, not the {expected} that were loaded"
            )

    @property
    def _destination(self) -> str:
        """The brokers themselves."""
        return self._broker.bootstrap if self._broker else self._arena.bootstrap(Side.DESTINATION)

    @property
    def _mirrors_into(self) -> str:
        return self._broker.bootstrap if self._broker else self._arena.proxied(Side.DESTINATION)

    def _clean_up(self) -> None:
        shutil.rmtree(self._logs, ignore_errors=True)
        delete_on(self._arena.bootstrap(Side.SOURCE), self.plan.topic)
        if self._broker is None:
            delete_on(self._arena.bootstrap(Side.DESTINATION), self.plan.topic)

    def _keep(self) -> None:
        """Keep what is needed to find out what happened."""
        for side, cluster in self._arena.clusters.items():
            for node_id, log_dir in cluster.log_dirs.items():
                for partition in sorted(log_dir.glob(f"{self.plan.topic}-*")):
                    where = self._logs / side.value / str(node_id) / partition.name
                    shutil.copytree(partition, where, dirs_exist_ok=True)
                (self._logs / f"{side.value}-{node_id}.log").write_text(cluster.output(node_id, 3000))
        comparison = self.outcome.comparison
        lines = [repr(self.plan), str(self.plan), *self.outcome.problems, *comparison.details]
        (self._logs / "trial.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")

    # What goes wrong

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
        if self._broker:
            self._refuse(self._broker)

    def _disturb(self, fault: Network) -> None:
        disturbance = Disturbance(
            fault.api, fault.step, fault.after, 1, fault.stall_s, fault.cut, fault.reset, fault.late
        )
        self._disturbances.append((fault, disturbance))
        self._arena.proxies[fault.side].disturb(disturbance)

    def _refuse(self, broker: Broker) -> None:
        """Line up the embedded broker's faults: of several, the oldest comes first."""
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
        """How many Produce requests the destination has answered."""
        if self._broker:
            return sum(fault.hits for _, fault in self._broker_faults)
        return self._arena.proxies[Side.DESTINATION].responses(Api.PRODUCE)

    def _bring_about(self, event: Event) -> None:
        while self._answered() < event.after:
            if self._over.wait(_POLL_S):
                return
        if event.side is not None:
            self._arena.bring_about(event, self.plan.topic)
            self._came.append(event.name)
            return
        if event.kind is EventKind.CONTEND:
            self._contend()
            self._came.append(event.name)
            return
        while not self._over.is_set():
            run = self._current
            if run is not None and run.is_running:
                try:
                    run.suffer(event.kind, event.down_s)
                except Ended:
                    continue  # perhaps the next one has what is to be killed
                self._came.append(event.name)
                return
            self._over.wait(_POLL_S)

    def _contend(self) -> None:
        """Start a second mirror for the same group: whichever of the two copies, the copy is exact."""
        log = self._logs / "contender"
        log.mkdir(parents=True, exist_ok=True)
        arguments = self._product_arguments(once=True)
        arguments[arguments.index("--checkpoint") + 1] = str(log / "checkpoint")
        contender = MirrorRun(arguments, log / "attempt", {"XDG_STATE_HOME": str(log)})
        if contender.wait(_ATTEMPT_S) is None:
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
        while self.outcome.failures < _FAILURES:
            once = not (self.plan.streams and self.outcome.attempts < _STREAMS and self._is_eventful)
            run = self._start(once=once)
            code = run.wait(_ATTEMPT_S) if once else self._stop_stream(run)
            self._orphans += run.orphans
            if code is None:
                self.outcome.problems.append(f"attempt {self.outcome.attempts} did not end")
                return
            if code == 0 and once and not run.killed:
                return
            if code == 0 and run.last_line().get("complete"):
                return
            self._judge(run, code, once=once)
            if self.outcome.problems:
                return
        self.outcome.problems.append(f"{self.outcome.failures} attempts failed")

    def _start(self, *, once: bool) -> MirrorRun:
        self.outcome.attempts += 1
        log = self._logs / f"attempt-{self.outcome.attempts}"
        if self.plan.kind is Kind.PRODUCT:
            run = MirrorRun(
                self._product_arguments(once=once), log, {"XDG_STATE_HOME": str(self._logs.parent)}
            )
        else:
            run = MirrorRun([str(_TASK), json.dumps(self._task_arguments())], log)
        self._current = run
        return run

    def _product_arguments(self, *, once: bool) -> list[str]:
        plan = self.plan
        source, destination = self._logs / "source.properties", self._logs / "destination.properties"
        timeout = f"request.timeout.ms={plan.request_timeout_ms}\n"
        source.write_text(f"{timeout}isolation.level={plan.isolation}\n", encoding="utf-8")
        destination.write_text(timeout, encoding="utf-8")
        return [
            *["-m", "shoal", "mirror", "--json", "--verbose"],
            *["--from", self._arena.proxied(Side.SOURCE), "--from-config", str(source)],
            *["--to", self._mirrors_into, "--to-config", str(destination)],
            *["--topics", plan.topic, "--group", plan.topic],
            *["--fetch-buffer-bytes", str(plan.fetch_buffer_bytes)],
            *["--commit-interval-ms", str(plan.commit_interval_ms)],
            *["--checkpoint", str(self._logs / "checkpoint")],
            *(["--rebatch", plan.rebatch] if plan.rebatch else []),
            *(["--once"] if once else ["--slice", str(plan.slice_s)]),
        ]

    def _task_arguments(self) -> dict[str, object]:
        plan = self.plan
        return {
            "source": self._arena.proxied(Side.SOURCE),
            "destination": self._mirrors_into,
            "group": plan.topic,
            "topic": plan.topic,
            "ends": self._ends,
            "request_timeout_ms": plan.request_timeout_ms,
            "fetch_buffer_bytes": plan.fetch_buffer_bytes,
            "commit_interval_ms": plan.commit_interval_ms,
            "expiration_ms": plan.expiration_ms,
            "isolation": plan.isolation,
            "together_bytes": plan.together_bytes,
            "rebatch": plan.rebatch,
        }

    @property
    def _is_eventful(self) -> bool:
        """Whether something is still to come, or is not over yet: a broker that is down."""
        return any(each.is_alive() for each in self._events) or any(
            fault.api is Api.PRODUCE and not met.hits for fault, met in self._disturbances
        )

    def _stop_stream(self, run: MirrorRun) -> int | None:
        """Let a stream run until all faults have come, then stop it as its user would."""
        deadline = time.monotonic() + _STREAM_S
        answered = self._answered()
        while run.is_running and self._is_eventful and time.monotonic() < deadline:
            if self._answered() != answered:
                answered = self._answered()
                deadline = time.monotonic() + _IDLE_S
            self._over.wait(_POLL_S)
        if run.is_running:
            run.terminate()
        return run.wait(_ATTEMPT_S)

    def _judge(self, run: MirrorRun, code: int, *, once: bool) -> None:
        """Count an attempt that did not complete; a stopped partition is a problem of its own."""
        if run.killed or (code == 0 and not once):
            return
        self.outcome.failures += 1
        stopped = run.last_line().get("stopped") or {}
        if any(isinstance(fault, Refusal) and fault.stops for fault in self.plan.faults):
            return  # what it has to do: it stops, says why, and goes on when started again
        self.outcome.problems += [f"{partition} stopped: {reason}" for partition, reason in stopped.items()]

    def _once_more(self) -> None:
        """What is complete stays as it is."""
        run = self._start(once=True)
        code = run.wait(_ATTEMPT_S)
        if code is None:
            run.kill()
            self.outcome.problems.append("a run with nothing to do did not end")
        elif code != 0:
            self._judge(run, code, once=True)
            self.outcome.problems.append(f"a run with nothing to do ended with {code}")
        end_orphans(run.orphans, _ORPHANS_END_WITHIN_S)
