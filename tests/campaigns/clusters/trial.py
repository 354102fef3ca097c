"""One trial between real clusters: a plan, step by step, and the judge after every step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..report import Outcome
from .arena import Arena
from .checks import check
from .lag import LAG_HEAD, lag_rows
from .memory import MEMORY_HEAD
from .plan import ClustersPlan
from .setup import Program
from .world import ClustersWorld

__all__ = ["run_trial"]


def run_trial(plan: ClustersPlan, arena: Arena, logs: Path, patience: float = 1.0) -> Outcome:
    """Run a plan up to the first step after which anything is wrong.

    Args:
        logs: Directory for the output of the processes; and for both clusters' logs if anything is wrong.
        patience: Factor of the timeouts, 1 for two idle cores.
    """
    logs.mkdir(parents=True, exist_ok=True)
    trial = _Trial(plan, ClustersWorld(plan.setup, arena, logs, patience))
    began = time.monotonic()
    try:
        if plan.setup.lasts_s:
            trial.run_long()
        else:
            trial.run()
    finally:
        trial.outcome.seconds = time.monotonic() - began
        trial.world.consumers.end()
    outcome = trial.outcome
    if outcome.is_exact:
        trial.world.clean_up()
    else:
        trial.world.keep_logs()
        lines = [str(plan), repr(plan.setup), *outcome.problems]
        lines += [*outcome.comparison.details, *outcome.reading.details]
        (logs / "trial.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return outcome


class _Trial:
    def __init__(self, plan: ClustersPlan, world: ClustersWorld) -> None:
        self.world = world
        self.outcome = Outcome(plan)
        self._plan = plan

    def run(self) -> None:
        """Run all steps, let the operator accept what has happened, and copy the rest."""
        with self._phase("create"):
            self.world.prepare()
        for number, step in enumerate(self._plan.steps):
            lasts_s = self._plan.setup.lasts_s[number] if self._plan.setup.lasts_s else 0
            with self._step(f"after step {number}", self._rounds(number), lasts_s):
                if not number:
                    self.world.consumers.begin()
                step.play(self.world, f"{self._plan.seed}/{number}")
            if not self.outcome.is_exact:
                return
        with self._step("at the end", 1):
            self.world.continues = True
            # Consumers that still move need a mirror that follows.
            follows = self.world.consumers.are_moving or self._plan.setup.program is Program.MAKER
            self.world.copy_all(follows=follows)
        if self.outcome.is_exact and self._plan.setup.groups:
            with self._phase("consumers"):
                self._let_consumers_finish()
        if not self.outcome.comparison.due:
            self.outcome.problems.append("there was no record to compare")

    def run_long(self) -> None:
        """Run the same, and judge what only hours show; last of all by ``shoal verify``."""
        world, outcome = self.world, self.outcome
        with world.arrivals:
            self.run()
        outcome.problems += world.memory.problems()
        outcome.problems += [f"the mirror ended by itself: {each}" for each in world.errors]
        outcome.tables = [
            (MEMORY_HEAD, world.memory.rows()),
            (LAG_HEAD, lag_rows(world.arrivals.all, world.windows)),
        ]
        with self._phase("verify"):
            outcome.problems += world.verify()

    def _rounds(self, number: int) -> int:
        return self._plan.setup.rounds if not number else self._plan.setup.rounds // 3

    @contextmanager
    def _step(self, when: str, rounds: int, lasts_s: int = 0) -> Iterator[None]:
        """Let the source grow, run, and judge."""
        world = self.world
        with self._phase("load"):
            world.begin_step(rounds, lasts_s)
        try:
            with self._phase("mirror"):
                yield
        finally:
            with self._phase("heal"):
                world.end_step()
        with self._phase("check"):
            self._judge(when)

    def _judge(self, when: str) -> None:
        world, outcome = self.world, self.outcome
        outcome.comparison = check(world)
        if self._plan.setup.groups:
            outcome.reading = world.consumers.judge(to_end=False)
        outcome.problems = [f"{when}: {each}" for each in [*world.problems, *world.consumers.problems]]
        outcome.came, outcome.attempts = world.came, world.attempts
        outcome.failures, outcome.errors = world.failures, world.errors
        outcome.moves = world.consumers.moves
        if outcome.comparison.again and not outcome.came and not world.was_killed:
            outcome.problems.append(f"{when}: {outcome.comparison.again} records are there again for nothing")

    def _let_consumers_finish(self) -> None:
        world, outcome = self.world, self.outcome
        world.consumers.finish()
        outcome.problems += world.consumers.problems
        outcome.moves = world.consumers.moves
        if not outcome.problems:
            outcome.reading = world.consumers.judge(to_end=True)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        began, phases = time.monotonic(), self.outcome.phases
        try:
            yield
        finally:
            phases[name] = phases.get(name, 0.0) + time.monotonic() - began
