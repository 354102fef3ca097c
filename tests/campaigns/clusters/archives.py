"""The world of ``shoal mirror`` to a directory and back, and its kills in the middle of both ways."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import psutil
from confluent_kafka.admin import AdminClient

from rig.judge import Verdict, compare
from rig.load import await_markers, create_topic
from rig.read import read_topic
from rig.shoal import run_shoal, state_in
from rig.wait import TimedOut, wait_until
from shoal.mirroring.model.incidents import IncidentKind
from tests.hasty import hasty

from ..catalogue import Catalogue, Family, Plan, Step
from ..kinds import Kind
from ..report import Outcome
from .load import load
from .movers import Started
from .processes import Ended, MirrorRun, end_orphans
from .setup import Program, Setup, draw_setup

__all__ = ["ARCHIVES", "ArchivePlan", "draw_archive", "run_archive"]

#: The time of one process, with the start of Spark on a busy machine.
_ATTEMPT_S = 240.0

#: A lease is 30 s, and so is a request's timeout.
_ORPHANS_END_WITHIN_S = 60.0

#: A copy at the least limit takes about so long: kills come within it.
_COPY_S = 4.0

#: The time within which a mirror begins to copy on an idle machine.
_BEGINS_S = 8.0

#: The number of replicas by the brokers' default.replication.factor (KIP-464).
_AS_BROKERS_SAY = -1

#: More processes of a way than these never fail one after the other, since nothing else is wrong.
_FAILURES = 3


class ArchiveWorld:
    """
    A cluster, its archive in a directory, and the cluster that it is restored to.

    Attributes:
        came: The names of the kills that came.
        attempts: Number of processes started.

    """

    def __init__(self, setup: Setup, source: str, destination: str, room: Path) -> None:
        """
        Create the topic, and load it.

        Args:
            source: The bootstrap servers of the archived cluster.
            destination: Those of the cluster that the archive is restored to.
            room: A directory for the archive, and for the output of the processes.

        """
        self._setup, self._room = setup, room
        self._topic = f"{setup.topic}-{time.time_ns()}"
        self._ends = source, str(room / "archive"), destination
        self._keys = 0
        self._orphans: list[psutil.Process] = []
        self._kills: list[tuple[str, Callable[[MirrorRun], None]]] = []
        self.came: list[str] = []
        self.attempts = 0
        create_topic(source, self._topic, setup.partitions, _AS_BROKERS_SAY, {"retention.ms": "-1"})
        self.load()

    def load(self) -> None:
        """Let the source grow."""
        source, setup = self._ends[0], self._setup
        load(source, setup, self._topic, setup.partitions, setup.rounds, self._keys)
        self._keys += sum(await_markers(source, self._topic, range(setup.partitions))) + 1

    def expect(self, event: str, incidents: Sequence[IncidentKind], stops: Sequence[str]) -> None:
        """Note which kill is next."""
        self._event = event

    def kill_next(self, kill: Callable[[MirrorRun], None]) -> None:
        """Kill a part of the next process, in the order of these calls."""
        self._kills.append((self._event, kill))

    def archive(self, *, once: bool) -> MirrorRun:
        """Start a mirror to the directory; one that does not end is slow."""
        return self._start(0, ["--segment-bytes", "1m", "--segment-seconds", "1"], once=once)

    def restore(self, *, once: bool) -> MirrorRun:
        """Start a mirror from the directory; one that does not end is slow."""
        return self._start(1, [], once=once)

    def _start(self, first: int, options: Sequence[str], *, once: bool) -> MirrorRun:
        self.attempts += 1
        way = ["--from", self._ends[first], "--to", self._ends[first + 1], "--topics", self._topic]
        speed = ["--once"] if once else ["--limit", "20k"]
        mirror = ["mirror", "--json", "--verbose", *way, *options, *speed]
        log = self._room / f"attempt-{self.attempts}"
        return MirrorRun(Started(mirror, hasty(commit_interval_s=0.2)), log, state_in(self._room))

    def kill(self, run: MirrorRun, dice: random.Random) -> None:
        """Kill parts of a mirror at some moments, and all of it last; producers may go on meanwhile."""
        if dice.random() < 0.2:
            time.sleep(dice.uniform(0, _BEGINS_S))  # a moment of its start, not a wait for a condition
        else:
            wait_until(lambda: _copies(run) or not run.is_running, "its first batch", _ATTEMPT_S, 0.02)
            if dice.random() < 0.3:
                self.load()
        for name, each in (*self._kills, ("all is killed", MirrorRun.kill_all)):
            with suppress(TimedOut):  # a pause before the next kill
                wait_until(lambda: not run.is_running, "its end", dice.uniform(0.1, _COPY_S))
            if run.is_running:
                with suppress(Ended):
                    each(run)
                    self.came.append(name)
        self._kills.clear()
        run.kill()
        self._orphans += run.orphans

    def to_the_end(self, start: Callable[[], MirrorRun]) -> None:
        """Run mirrors, one after the other, until one has copied all."""
        for _ in range(_FAILURES):
            run = start()
            code = run.end(_ATTEMPT_S)
            assert code is not None, f"{run.stderr}\ndid not end"
            if code == 0:
                return
        raise AssertionError(f"{_FAILURES} mirrors failed: {run.stderr}")

    def judge(self, *, is_whole: bool) -> Verdict:
        """Compare what another project's consumer reads at both clusters."""
        source, _, destination = self._ends
        there = read_topic(destination, self._topic) if is_whole or self._is_at(destination) else {}
        return compare(read_topic(source, self._topic), there, least=None if is_whole else 0)

    def _is_at(self, bootstrap: str) -> bool:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        return self._topic in admin.list_topics(timeout=30).topics

    def problems(self) -> Sequence[str]:
        """Return the orphans that did not end, and what ``shoal verify`` finds between each two ends."""
        found = [
            f"an orphan did not end: {each}" for each in end_orphans(self._orphans, _ORPHANS_END_WITHIN_S)
        ]
        for first, second in ((0, 1), (1, 2), (0, 2)):
            verify = ["verify", "--from", self._ends[first], "--to", self._ends[second]]
            done = run_shoal(*verify, "--topics", self._topic, state=self._room)
            if done.returncode:
                found.append(f"{self._ends[first]} and {self._ends[second]}: {done.stdout}{done.stderr}")
        return found


def _copies(run: MirrorRun) -> bool:
    return run.last_line().get("phase") == "copying"


ARCHIVES: Catalogue[ArchiveWorld, bool] = Catalogue()
happens, runs = ARCHIVES.happens, ARCHIVES.runs

ArchivePlan: TypeAlias = Plan[Setup, ArchiveWorld, bool]


@happens(Family.SPARK, weight=2)
def first_process_is_killed(world: ArchiveWorld, dice: random.Random) -> None:
    """Kill the mirror's first process; the others are orphans."""
    world.kill_next(MirrorRun.kill)


@happens(Family.SPARK, weight=2)
def jvm_is_killed(world: ArchiveWorld, dice: random.Random) -> None:
    """Kill the JVM of the driver."""
    world.kill_next(MirrorRun.kill_jvm)


@happens(Family.SPARK, weight=2)
def python_workers_are_killed(world: ArchiveWorld, dice: random.Random) -> None:
    """Kill the processes of all tasks."""
    world.kill_next(MirrorRun.kill_workers)


@runs()
def archived_in_part(world: ArchiveWorld, dice: random.Random) -> bool:
    """A slow mirror to the directory is killed on its way."""
    world.kill(world.archive(once=False), dice)
    return False


@runs()
def archived_whole(world: ArchiveWorld, dice: random.Random) -> bool:
    """Mirrors run until one has archived all."""
    world.to_the_end(lambda: world.archive(once=True))
    return False


@runs()
def restored_in_part(world: ArchiveWorld, dice: random.Random) -> bool:
    """A slow mirror from the directory is killed on its way."""
    world.kill(world.restore(once=False), dice)
    return False


@runs()
def restored_whole(world: ArchiveWorld, dice: random.Random) -> bool:
    """Mirrors run until one has restored all."""
    world.to_the_end(lambda: world.archive(once=True))  # the source may have grown since
    world.to_the_end(lambda: world.restore(once=True))
    return True


def draw_archive(seed: int, without: Collection[str] = ()) -> ArchivePlan:
    """Plan the trial of a seed: kills on both ways, and each way to its end."""
    dice = random.Random(f"{seed}/archive")
    drawn = draw_setup(dice, f"archived-{seed}", Program.MIRROR, None)
    setup = replace(drawn, isolation="read_committed", partitions=dice.randint(1, 4), rebatch=None)
    steps: list[Step[ArchiveWorld, bool]] = []
    for part, whole in (("archived in part", "archived whole"), ("restored in part", "restored whole")):
        killed = ARCHIVES.draw_steps(dice, {Family.SPARK: 1}, (1, 2), without=without)
        steps += [Step(each.events[:2], ARCHIVES.ways[part]) for each in killed]
        steps.append(Step((), ARCHIVES.ways[whole]))
    return Plan(Kind.ARCHIVES, seed, setup, None, tuple(steps))


def run_archive(plan: ArchivePlan, source: str, destination: str, room: Path) -> Outcome:
    """Run a plan up to the first step after which anything is wrong."""
    room.mkdir(parents=True, exist_ok=True)
    began, outcome = time.monotonic(), Outcome(plan)
    world = ArchiveWorld(plan.setup, source, destination, room)
    for number, step in enumerate(plan.steps):
        outcome.comparison = world.judge(is_whole=step.play(world, f"{plan.seed}/{number}"))
        if not outcome.is_exact:
            break
    else:
        outcome.problems += world.problems()
    if not world.came:
        outcome.problems.append("nothing was killed")
    outcome.came, outcome.attempts = world.came, world.attempts
    outcome.seconds = time.monotonic() - began
    return outcome
