"""A trial of ``shoal mirror`` to a directory and back: everything is killed in the middle of both ways."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from rig.judge import Verdict, compare
from rig.load import await_markers, create_topic
from rig.read import read_topic
from rig.shoal import run_shoal, state_in
from rig.wait import TimedOut, wait_until
from tests.hasty import hasty

from .load import load
from .movers import Started
from .processes import Ended, MirrorRun, end_orphans
from .setup import Program, draw_setup

__all__ = ["ArchiveTrial"]

#: The time of one process, with the start of Spark on a busy machine.
_ATTEMPT_S = 240.0

#: A lease is 30 s, and so is a request's timeout.
_ORPHANS_END_WITHIN_S = 60.0

#: A copy at the least limit takes about so long: kills come within it.
_COPY_S = 4.0

#: The time within which a mirror begins to copy on an idle machine.
_BEGINS_S = 8.0

_ROUNDS = (30, 60)

#: More processes of a way than these never fail one after the other, since nothing else is wrong.
_FAILURES = 3

#: The kills, and how often each comes.
_KILLS: dict[Callable[[MirrorRun], None], int] = {
    MirrorRun.kill_all: 4,
    MirrorRun.kill: 2,
    MirrorRun.kill_jvm: 2,
    MirrorRun.kill_workers: 2,
}


class ArchiveTrial:
    """One trial; the same seed draws the same records, options and kills.

    Attributes:
        killed: The number of processes of ``shoal mirror`` that the trial has killed, or whose children.
    """

    def __init__(self, seed: int, source: str, destination: str, room: Path) -> None:
        """
        Prepare.

        Args:
            source: The bootstrap servers of the archived cluster.
            destination: Those of the cluster that the archive is restored to.
            room: A directory for the archive, and for the output of the processes.
        """
        self._dice = dice = random.Random(f"archive {seed}")
        self._source, self._destination, self._room = source, destination, room
        self._topic = f"archived-{seed}-{time.time_ns()}"
        setup = draw_setup(dice, self._topic, Program.MIRROR, None)
        self._setup = replace(setup, isolation="read_committed", partitions=dice.randint(1, 4))
        self._archive = str(room / "archive")
        self._attempts = self._keys = 0
        self._orphans: list[psutil.Process] = []
        self.killed = 0

    def run(self) -> Verdict:
        """Archive and restore, kill both ways, and return the verdict of another project's consumer."""
        topic, dice = self._topic, self._dice
        create_topic(self._source, topic, self._setup.partitions, config={"retention.ms": "-1"})
        self._load()
        segments = ["--segment-bytes", "1m", "--segment-seconds", dice.choice(["1", "2"])]
        way_in = ["--from", self._source, "--to", self._archive, *segments]
        for _ in range(dice.choice([1, 1, 2])):
            self._kill_in(way_in)
        self._to_the_end(way_in)
        way_out = ["--from", self._archive, "--to", self._destination]
        for _ in range(dice.choice([1, 1, 2])):
            self._kill_in(way_out)
        self._to_the_end(way_out)
        left = end_orphans(self._orphans, _ORPHANS_END_WITHIN_S)
        assert not left, left
        return compare(read_topic(self._source, topic), read_topic(self._destination, topic))

    def differences(self) -> Sequence[str]:
        """Return what ``shoal verify`` says of each two of source, archive and destination that differ."""
        ends = (self._source, self._archive, self._destination)
        found = []
        for first, second in ((0, 1), (1, 2), (0, 2)):
            verify = ["verify", "--from", ends[first], "--to", ends[second], "--topics", self._topic]
            done = run_shoal(*verify, state=self._room)
            if done.returncode:
                found.append(f"{ends[first]} and {ends[second]}: {done.stdout}{done.stderr}")
        return found

    def _load(self) -> None:
        setup, topic = self._setup, self._topic
        rounds = self._dice.randint(*_ROUNDS)
        load(self._source, setup, topic, setup.partitions, rounds, self._keys)
        ends = await_markers(self._source, topic, range(setup.partitions))
        self._keys += sum(ends) + 1

    def _start(self, way: Sequence[str], *options: str) -> MirrorRun:
        self._attempts += 1
        mirror = ["mirror", "--json", "--verbose", "--topics", self._topic, *way, *options]
        log = self._room / f"attempt-{self._attempts}"
        return MirrorRun(Started(mirror, hasty(commit_interval_s=0.2)), log, state_in(self._room))

    def _kill_in(self, way: Sequence[str]) -> None:
        """Run a mirror that copies slowly, and kill it, or a part of it first; producers may go on."""
        dice = self._dice
        early, pause_s, again_s = dice.random() < 0.2, dice.uniform(0, _COPY_S), dice.uniform(0, _COPY_S)
        kill = dice.choices(list(_KILLS), list(_KILLS.values()))[0]
        run = self._start(way, "--limit", dice.choice(["5k", "20k", "100k"]))
        if early:
            time.sleep(dice.uniform(0, _BEGINS_S))  # a moment of its start, not a wait for a condition
        else:
            wait_until(lambda: _copies(run) or not run.is_running, "its first batch", _ATTEMPT_S, 0.02)
            if self._source in way and dice.random() < 0.5:
                self._load()
            time.sleep(pause_s)
        for each, then_s in ((kill, again_s), (MirrorRun.kill_all, 0.0)):
            if not run.is_running:
                break
            with suppress(Ended):
                each(run)
                self.killed += 1
            with suppress(TimedOut):
                wait_until(lambda: not run.is_running, "its end", then_s + 0.1)
        run.kill()
        self._orphans += run.orphans

    def _to_the_end(self, way: Sequence[str]) -> None:
        """Run mirrors, one after the other, until one has copied all."""
        for _ in range(_FAILURES):
            run = self._start(way, "--once")
            code = run.end(_ATTEMPT_S)
            assert code is not None, f"{run.errors} did not end"
            if code == 0:
                return
        raise AssertionError(f"{_FAILURES} mirrors failed: {run.stderr}")


def _copies(run: MirrorRun) -> bool:
    return run.last_line().get("phase") == "copying"
