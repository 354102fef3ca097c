"""The world of a mirror between real clusters: clusters, topics, processes, and what happens to them.

This world sees the mirror from outside: records, committed positions, exit codes and the lines of ``--json``.
"""

from __future__ import annotations

import math
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil

from rig.proxy import Disturbance
from rig.shoal import run_shoal, state_in
from shoal.errors import ShoalError
from shoal.mirroring.model.incidents import IncidentKind
from shoal.protocol.apis import ApiKey
from shoal.protocol.produce import MOST_IN_FLIGHT
from shoal.topic_partition import TopicPartition

from .arena import Arena, Side
from .consumers import MovingConsumers
from .lag import Arrivals, Window
from .load import create_on, delete_on, layout
from .memory import Memory
from .movers import Mover
from .positions import CommittedPositions
from .processes import Ended, MirrorRun, end_orphans
from .setup import Program, Setup
from .topics import SourceTopics

__all__ = ["ClustersWorld"]

#: Timeout of one process, with all faults: brokers come back within ten seconds.
_ATTEMPT_S = 150.0

#: Number of processes of a step that may fail one after the other, without those that were killed.
_FAILURES = 4

#: Number of processes of a step that may be killed, or end without an error, before everything is copied; one
#: more for each of its events.
_ATTEMPTS = 10

#: An orphan ends after it notices that its driver is gone; a lease is 30 s, and so is a request's timeout.
_ORPHANS_END_WITHIN_S = 45.0

_POLL_S = 0.005

#: Interval between looks at the group's positions.
_LOOK_S = 0.3

#: Time for which a second mirror-maker copies beside the first.
_MEMBER_S = 15.0

#: Batches of each partition before the first start of a mirror with ``--start latest``.
_ROUNDS_BEFORE = 5

#: Batches that producers of a long step write to each partition at once: some 150 records a second in all.
_ROUNDS_AT_ONCE = 3

#: Records that are sent before a mirror begins wait for it.
_START = "start of the mirror"

#: From SIGTERM, after hours of work.
_ENDS_WITHIN_S = 3.0

#: Exit code of a mirror that continued after an incident.
_CONTINUED = 4

#: Of ``shoal verify``, which reads hours of records.
_VERIFIED_WITHIN_S = 1_800.0


class ClustersWorld:
    """Two real clusters, the producers at the source, and the mirrors between them.

    Attributes:
        setup: Its properties before the first step.
        topics: The source's topics.
        positions: The mirror's committed positions.
        consumers: The consumers that move between the clusters.
        arrivals: The records that arrive at the destination, as an independent consumer sees them.
        memory: The memory of the mirror in long steps.
        problems: Sentences about what is wrong.
        came: The names of the events that came.
        windows: When those events began and ended that came at a moment.
        expected: The kinds of incidents that events have made possible.
        incidents: The partitions that continued, each with the kind of its incident.
        reached: The end up to which each partition is copied by a mirror that has copied all; empty if it was
            killed, or stopped on the way.
        stopped: The reasons of the partitions that stopped instead.
        was_killed: Whether any mirror was killed, so that its last line may lack an incident.
        continues: Whether the next mirror continues in a topic that was created again.
        attempts: Number of processes started.
        failures: Number of processes that ended by themselves with an error.
        errors: The last error of each of them.
    """

    def __init__(self, setup: Setup, arena: Arena, logs: Path, patience: float) -> None:
        """Prepare; nothing is created yet.

        Args:
            logs: Directory of the processes' output.
            patience: Factor of the timeouts, 1 for two idle cores.
        """
        self.setup = setup
        self.arena = arena
        self.topics = SourceTopics(arena.bootstrap(Side.SOURCE), setup)
        self.positions = CommittedPositions(arena.bootstrap(Side.SOURCE), setup.topic)
        bootstraps = {side: arena.bootstrap(side) for side in Side}
        self.consumers = MovingConsumers(setup, bootstraps, patience)
        self.arrivals = Arrivals(arena.bootstrap(Side.DESTINATION), self.topics.partitions)
        self.memory = Memory()
        self.problems: list[str] = []
        self.came: list[str] = []
        self.windows: list[Window] = []
        self.expected: set[IncidentKind] = set()
        self.incidents: set[tuple[str, IncidentKind]] = set()
        self.reached: dict[TopicPartition, int] = {}
        self.stopped: dict[str, str] = {}
        self.was_killed = False
        self.continues = setup.continues
        self.attempts = self.failures = 0
        self.errors: list[str] = []
        self._documented: list[str] = []
        self._logs = logs
        self._patience = patience
        self._mover = Mover(setup, arena, logs)
        self._current: MirrorRun | None = None
        self._starting = threading.Lock()
        self._orphans: list[psutil.Process] = []
        self._over = threading.Event()
        self._happening: list[threading.Thread] = []
        self._disturbances: list[tuple[str, Disturbance]] = []
        self._event = ""
        self._moments = setup.rounds
        self._flow: threading.Thread | None = None
        self._flows_since: float | None = None
        self._began_s = 0.0
        self._settling = threading.Lock()
        self._looked_at = 0.0
        self._is_settled = False

    # Before and after

    def prepare(self) -> None:
        """Create the topics, and start the mirror once if it has ``--start latest``."""
        setup = self.setup
        self.topics.create()
        self.arena.expire_producers_after(setup.expiration_ms)
        replicas = layout(setup.topic, Side.DESTINATION, setup.partitions)
        create_on(self.arena.bootstrap(Side.DESTINATION), setup.topic, replicas)
        if setup.starts_latest:
            self.topics.load(_ROUNDS_BEFORE)
            self.copy_all(follows=False)
            self.topics.pass_over()

    def begin_step(self, rounds: int, lasts_s: int = 0) -> None:
        """Let the source grow, and begin to count moments.

        Args:
            lasts_s: For how many seconds the source then grows while a mirror copies.
        """
        self._began_s = time.time()
        if not lasts_s:
            self.windows.append(Window(_START, self._began_s, math.inf))
        self.topics.load(rounds)
        for proxies in self.arena.proxies.values():
            proxies.clear()
            proxies.delays_s = {ApiKey.PRODUCE: self.setup.delay_s}
        self._over.clear()
        self._moments = lasts_s or rounds
        self._looked_at = 0.0
        self.reached, self.stopped = {}, {}
        self._flows_since = None
        self._flow = self._happen("the load", self._let_flow) if lasts_s else None

    def end_step(self) -> None:
        """End all that happens, heal the clusters, and wait until no process is left."""
        self._over.set()
        if self._current is not None and self._current.is_running:
            self._current.kill()
            self._current.wait(10)
        for each in self._happening:
            each.join()
        if self._current is not None:
            self._orphans += self._current.orphans
        left = end_orphans(self._orphans, _ORPHANS_END_WITHIN_S)
        self.problems += [f"an orphan did not end: {each}" for each in left]
        self.came += [name for name, met in self._disturbances if met.hits]
        for found in (self._happening, self._disturbances, self._orphans):
            found.clear()
        for proxies in self.arena.proxies.values():
            most = proxies.most_in_flight(ApiKey.PRODUCE)
            if most > MOST_IN_FLIGHT:
                self.problems.append(f"{most} requests were in flight on one connection")
            proxies.clear()
        self.arena.heal()

    def verify(self) -> Iterator[str]:
        """Let the command compare all that was mirrored; yield what it finds."""
        state = self._logs.parent
        done = run_shoal(*self._mover.verify(), state=state, timeout_s=_VERIFIED_WITHIN_S)
        if done.returncode:
            yield f"shoal verify ended with {done.returncode}: {done.stdout[-3000:]}{done.stderr[-3000:]}"

    def clean_up(self) -> None:
        """Delete what an exact trial has left."""
        shutil.rmtree(self._logs, ignore_errors=True)
        self.topics.delete()
        if self.setup.groups:
            self.consumers.forget()
        for topic in self.topics.names:
            delete_on(self.arena.bootstrap(Side.DESTINATION), topic)

    def keep_logs(self) -> None:
        """Copy the logs of both clusters, for a diagnosis."""
        for side, cluster in self.arena.clusters.items():
            for node_id, log_dir in cluster.log_dirs.items():
                # Also of a topic that is created during the trial.
                for partition in sorted(log_dir.glob(f"{self.setup.topic}-*")):
                    where = self._logs / side.value / str(node_id) / partition.name
                    shutil.copytree(partition, where, dirs_exist_ok=True)
                (self._logs / f"{side.value}-{node_id}.log").write_text(cluster.output(node_id, 3000))

    # For events

    def expect(self, event: str, incidents: Sequence[IncidentKind], stops: Sequence[str]) -> None:
        """Note which event begins, and which incidents and other stops it makes possible."""
        self._event = event
        self.expected.update(incidents)
        self._documented += stops

    def mirrored(self, side: Side) -> Sequence[str]:
        """Return the topics that the mirror reads or writes; those of a side may come later."""
        return self.topics.names

    def a_moment(self, dice: random.Random) -> int:
        """Draw a number of Produce requests of this step; of a long one, of seconds."""
        return dice.randint(0, self._moments)

    def disturb(self, side: Side, disturbance: Disturbance) -> None:
        """Let the proxies of a side disturb a request of the next run."""
        self._disturbances.append((self._event, disturbance))
        self.arena.proxies[side].disturb(disturbance)

    def later(self, dice: random.Random, act: Callable[[], object]) -> None:
        """Act at a moment of the next run, in a thread; if the result is False, the event has not come.

        The moment is after a number of Produce responses, or when all is copied: then no more come.
        """
        after, name = self.a_moment(dice), self._event

        def act_at_the_moment() -> None:
            if not self._await_moment(after):
                return
            began_s = time.time()
            if act() is not False:
                self.came.append(name)
                self.windows.append(Window(name, began_s, time.time()))

        self._happen(name, act_at_the_moment)

    def _happen(self, name: str, act: Callable[[], object]) -> threading.Thread:
        """Act in a thread that the step waits for."""

        def safely() -> None:
            try:
                act()
            except Exception as error:
                # In its own thread the exception would be lost.
                self.problems.append(f"{name}: {type(error).__name__}: {error}")

        thread = threading.Thread(target=safely, name=name)
        self._happening.append(thread)
        thread.start()
        return thread

    def _let_flow(self) -> None:
        """Let the source grow from the first copied batch to the end of a long step."""
        while not self._copies():
            if self._over.wait(_LOOK_S):
                return
        self._flows_since = time.monotonic()
        self.windows.append(Window(_START, self._began_s, time.time()))
        # A pause, so that events get to the topics, too.
        while self._progress() < self._moments and not self._over.wait(_LOOK_S):
            self.topics.load(_ROUNDS_AT_ONCE)

    def to_mirror(self, dice: random.Random, do: Callable[[MirrorRun], None]) -> None:
        """Do something to the mirror at a moment of the next run."""
        self.later(dice, lambda: self._do_to_mirror(do))

    def _await_moment(self, after: int) -> bool:
        while self._progress() < after and not (self._runs() and self.is_settled()):
            if self._over.wait(_POLL_S):
                return False
        return True

    def _runs(self) -> bool:
        return self._current is not None and self._current.is_running

    def _copies(self) -> bool:
        run = self._current
        return run is not None and run.is_running and run.last_line().get("phase") == "copying"

    def _progress(self) -> int:
        """How many Produce requests of this step were answered; of a long one, how many seconds it lasts."""
        if self._flow is None:
            return sum(each.responses(ApiKey.PRODUCE) for each in self.arena.proxies.values())
        lasts_s = 0 if self._flows_since is None else int(time.monotonic() - self._flows_since)
        return min(lasts_s, self._moments)

    def _do_to_mirror(self, do: Callable[[MirrorRun], None]) -> bool:
        """Do something to the running mirror, or to the next one; return whether it was done."""
        while not self._over.is_set():
            run = self._current
            if run is not None and run.is_running:
                try:
                    do(run)
                except Ended:
                    if run.is_running and self.is_settled():
                        return False
                    continue  # perhaps the next one has such a part
                return True
            self._over.wait(_POLL_S)
        return False

    def kill_at(self, held: Disturbance) -> bool:
        """Kill the mirror while a request of it to the destination is held up; return whether one was.

        As its connection ends, a request that is held up never arrives.
        """
        self.arena.proxies[Side.DESTINATION].disturb(held)
        while not held.hits:
            if self._over.wait(_POLL_S) or (self.is_settled() and not self.consumers.are_moving):
                return False
        return self._do_to_mirror(MirrorRun.kill_with_jvm)

    @contextmanager
    def down(self, end: Callable[[MirrorRun], None]) -> Iterator[None]:
        """End the mirror if it runs, and start no other within the block."""
        with self._starting:
            run = self._current
            if run is not None and run.is_running:
                with suppress(Ended):
                    end(run)
                run.end(_ATTEMPT_S * self._patience)
            yield

    def contend(self) -> None:
        """Start a second mirror for the same group, and wait for its end."""
        log = self._logs / f"contender-{self.attempts}"
        log.mkdir(parents=True, exist_ok=True)
        started = replace(self._mover, directory=log).started(once=True, goes_on=self.continues)
        contender = MirrorRun(started, log / "attempt", state_in(log))
        if self.setup.program is Program.MAKER:
            while contender.is_running and contender.last_line().get("phase") != "copying":
                if self._over.wait(_LOOK_S):
                    break
            self._over.wait(_MEMBER_S)
            contender.send_signal(signal.SIGTERM)
        if contender.end(_ATTEMPT_S * self._patience) is None:
            contender.kill()
            self.problems.append("a second mirror of the same group did not end")
        self._note_incidents(contender)
        self._orphans += contender.orphans

    # The mirror

    def copy_all(self, *, follows: bool) -> None:
        """Run mirrors, one after the other, until all is copied that may be.

        Args:
            follows: They follow the source until all events have come; otherwise ``--once``.
        """
        follows = self.setup.program is Program.MAKER or follows
        failures = self.failures + _FAILURES
        for _ in range(_ATTEMPTS + len(self._happening)):
            ends, was_created_again = dict(self.topics.ends), self.topics.was_created_again
            run = self._start(once=not follows)
            is_done = self._follow(run) if follows else True
            stopped_s = time.monotonic()
            code = run.end(_ATTEMPT_S * self._patience)
            self._note_end(time.monotonic() - stopped_s if is_done and self._flow else 0.0)
            self._orphans += run.orphans
            with self._starting:
                pass  # topics that change while the mirror is down have changed
            if code is None:
                self.problems.append(f"attempt {self.attempts} did not end")
                return
            if self._ended_well(run, code, follows=follows) and is_done:
                self.stopped = run.last_line().get("stopped") or {}
                # One with --once copies up to the ends that it has found.
                if follows or was_created_again == self.topics.was_created_again:
                    self.reached = dict(self.topics.ends) if follows else ends
                return
            if self.problems or self.failures >= failures:
                break
        if not self.problems:
            self.problems.append(f"none of {self.attempts} attempts has copied all, {self.failures} failed")

    def _note_end(self, took_s: float) -> None:
        if took_s > _ENDS_WITHIN_S * self._patience:
            self.problems.append(f"a mirror ended {took_s:.1f} s after SIGTERM")

    def copy_until_a_moment(self, dice: random.Random, end: Callable[[MirrorRun], None]) -> None:
        """Run a mirror up to a moment of this step, or to its end."""
        after = self.a_moment(dice)
        run = self._start(once=False)
        deadline = time.monotonic() + _ATTEMPT_S * self._patience
        while run.is_running and self._progress() < after and time.monotonic() < deadline:
            if self.is_settled():
                break
            self._over.wait(_POLL_S)
        with suppress(Ended):
            end(run)
        code = run.end(_ATTEMPT_S * self._patience)
        if code is None:
            self.problems.append(f"attempt {self.attempts} did not end")
            return
        self._ended_well(run, code, follows=True)

    def _start(self, *, once: bool) -> MirrorRun:
        with self._starting:
            self.attempts += 1
            started = self._mover.started(once=once, goes_on=self.continues)
            log = self._logs / f"attempt-{self.attempts}"
            self._current = MirrorRun(started, log, state_in(self._logs.parent), self.is_settled)
            return self._current

    def _follow(self, run: MirrorRun) -> bool:
        """Let a mirror run until nothing more comes, then stop it; return whether it has copied all."""
        progress, deadline = 0, 0.0
        while run.is_running and not self._is_over():
            if self._progress() != progress or not deadline or self.consumers.are_moving:
                progress, deadline = self._progress(), time.monotonic() + _ATTEMPT_S * self._patience
            if self._flow is not None:
                self.memory.look(run.process_id)
            if time.monotonic() > deadline:
                self.failures += 1
                self.errors.append(f"followed without an end: {run.last_line()}")
                break
            self._over.wait(_LOOK_S)
        has_copied = run.is_running and self._is_over()
        if run.is_running:
            run.send_signal(signal.SIGTERM)
        return has_copied

    def _is_over(self) -> bool:
        """Whether all is copied, and nothing is still to happen."""
        is_eventful = any(each.is_alive() for each in self._happening) or self.consumers.are_moving
        # Events that are over may have let the source grow since the last look.
        return not is_eventful and self._looks_settled()

    def is_settled(self) -> bool:
        """Whether each partition has its position at its end, or has stopped; any thread may ask."""
        if self._flow is not None and self._flow.is_alive():
            return False
        with self._settling:
            if time.monotonic() - self._looked_at > _LOOK_S:
                self._is_settled = self._looks_settled()
                self._looked_at = time.monotonic()
            return self._is_settled

    def _looks_settled(self) -> bool:
        stopped = self._current.last_line().get("stopped") or {} if self._current else {}
        try:
            positions = self.positions.read()
        except ShoalError:
            return False  # a broker is down
        return all(
            str(partition) in stopped
            or self._is_at(end, positions[partition].offset if partition in positions else 0)
            for partition, end in list(self.topics.ends.items())
        )

    def _is_at(self, end: int, offset: int) -> bool:
        """Whether a position is at an end, or behind it: a restarted coordinator may write a marker again."""
        return offset == end or (offset > end and not self.topics.was_created_again)

    def _ended_well(self, run: MirrorRun, code: int, *, follows: bool) -> bool:
        """Note incidents, stops and errors of a run; return whether its copy is complete if it may be."""
        self.was_killed |= run.killed
        has_continued = self._note_incidents(run)
        stopped: dict[str, str] = run.last_line().get("stopped") or {}
        unexplained = [
            f"{partition} stopped, and no event explains it: {reason}"
            for partition, reason in stopped.items()
            if not any(part in reason for part in self._documented)
        ]
        self.problems += unexplained
        if run.killed:
            return False
        if code in (0, _CONTINUED):
            if (code == _CONTINUED) != has_continued:
                self.problems.append(f"exit code {code}, and has continued after incidents: {has_continued}")
            return True
        if stopped and not unexplained:
            return True
        if code == -signal.SIGTERM and follows:
            return True  # nothing was left before Python had installed its handlers
        self.failures += 1
        self.errors.append(run.last_error())
        return False

    def _note_incidents(self, run: MirrorRun) -> bool:
        """Note the incidents in the last line of a run; return whether a partition continued after one."""
        found = run.last_line().get("incidents") or []
        for each in found:
            kind = IncidentKind(each["kind"])
            if kind not in self.expected:
                self.problems.append(f"{each['partition']}: an incident out of nothing: {each}")
            if each["continued"]:
                self.incidents.add((each["partition"], kind))
        return any(each["continued"] for each in found)
