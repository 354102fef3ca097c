"""Trials in which everything goes wrong, each copy judged: ``python -m tests.campaigns --help``.

Half of them are between real clusters, and half within this process.

The exit code is 0 only if every trial was exact.
"""

from __future__ import annotations

import argparse
import itertools
import secrets
import signal
import sys
import tempfile
import time
import traceback
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TypeAlias

from rig.disk import mounts_are_refused

from .clusters.arena import Arena, open_arena
from .clusters.plan import Kind, Plan, draw, kind_of
from .clusters.report import line_of, markdown
from .clusters.scenarios import SCENARIOS, ScenarioPlan, draw_scenario
from .clusters.trial import Outcome, TaskPlan, run_scenario_trial, run_task_trial, run_trial

_AnyPlan: TypeAlias = Plan | ScenarioPlan | TaskPlan

#: Number of trials to search for one with the selected fault.
_SEARCHED = 5_000


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=__doc__)
    parser.add_argument("--trials", type=int, default=400, help="number of trials (default: 400)")
    parser.add_argument("--minutes", type=float, help="begin no trial after this time")
    parser.add_argument("--seed", type=int, help="seed of a run to repeat (default: random, and printed)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with trial number N")
    parser.add_argument("--only", type=int, metavar="N", help="only trial number N, --trials times")
    parser.add_argument(
        "--kind", choices=[kind.name.lower() for kind in Kind], help="only trials of this kind"
    )
    parser.add_argument(
        "--fault", metavar="TEXT", help="only trials with a fault whose name contains this text"
    )
    parser.add_argument(
        "--scenario", metavar="TEXT", help="only trials of the scenarios whose name contains this text"
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="EVENT",
        help="no such event in trials of tasks",
    )
    parser.add_argument(
        "--agent", action="store_true", help="run shoal's Java agent in the destination's brokers"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=1.0,
        metavar="FACTOR",
        help="factor of the timeouts, 1 for two idle cores (default: 1)",
    )
    parser.add_argument("--logs", type=Path, help="directory for the files of trials that were not exact")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the summary as Markdown")
    parser.add_argument("--plans", action="store_true", help="print the plans only")
    return parser.parse_args()


def main() -> int:
    args = _arguments()
    seed = secrets.randbelow(1_000_000) if args.seed is None else args.seed
    kind = Kind[args.kind.upper()] if args.kind else None
    scenarios = [name for name in SCENARIOS if (args.scenario or "") in name]
    if not scenarios:
        sys.exit(
            f"--scenario {args.scenario!r}: no scenario contains this text. Use one of {', '.join(SCENARIOS)}"
        )
    if args.scenario:
        kind = Kind.SCENARIO
    numbers = _numbers(args, seed, kind)

    def plan_of(number: int) -> _AnyPlan:
        match kind or kind_of(number):
            case Kind.TASK:
                return TaskPlan(seed, number, tuple(args.without))
            case Kind.SCENARIO:
                return draw_scenario(seed, number, scenarios)
            case _:
                return draw(seed, number, kind)

    if args.plans:
        for number in numbers:
            print(f"{number:3} {plan_of(number)}")
        return 0
    # As Ctrl-C: the brokers end, and their files are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    logs = args.logs or Path(tempfile.mkdtemp(prefix="shoal-campaign-"))
    print(f"seed {seed}, {len(numbers)} trials, logs in {logs}", flush=True)
    began = time.monotonic()
    outcomes: list[Outcome] = []
    with _arena_for(kind, with_agent=args.agent) as arena:
        print(f"ready after {time.monotonic() - began:.0f} s", flush=True)
        if arena is not None and (refused := mounts_are_refused()):
            print(f"no trial fills a disk: this process may not mount ({refused})", flush=True)
        for turn, number in enumerate(numbers):
            if args.minutes and time.monotonic() - began > args.minutes * 60:
                break
            outcomes.append(_run(arena, plan_of(number), logs / f"trial-{number:03}-{turn}", args.patience))
            print(line_of(outcomes[-1]), flush=True)
    summary = markdown(outcomes, seed, time.monotonic() - began)
    print("\n" + summary)
    if args.report:
        args.report.write_text(summary, encoding="utf-8")
    return 0 if outcomes and all(each.is_exact for each in outcomes) else 1


def _numbers(args: argparse.Namespace, seed: int, kind: Kind | None) -> list[int]:
    if args.only is not None:
        return [args.only] * (1 if args.plans else args.trials)
    if args.fault is None:
        return list(range(args.first, args.first + args.trials))
    searched = range(args.first, args.first + _SEARCHED)
    with_faults = (number for number in searched if not (kind or kind_of(number)).is_within)
    found = (
        number
        for number in with_faults
        if any(args.fault in fault.name for fault in draw(seed, number, kind).faults)
    )
    numbers = list(itertools.islice(found, args.trials))
    if not numbers:
        sys.exit(f"--fault {args.fault!r}: no fault of {_SEARCHED} trials contains this text")
    return numbers


def _arena_for(kind: Kind | None, *, with_agent: bool) -> AbstractContextManager[Arena | None]:
    """Open the clusters, unless all trials are within this process."""
    return nullcontext() if kind and kind.is_within else open_arena(with_agent=with_agent)


def _run(arena: Arena | None, plan: _AnyPlan, logs: Path, patience: float) -> Outcome:
    try:
        if isinstance(plan, TaskPlan):
            return run_task_trial(plan)
        if isinstance(plan, ScenarioPlan):
            return run_scenario_trial(plan)
        assert arena is not None, "only trials within this process have no arena"
        return run_trial(plan, arena, logs, patience)
    except Exception as error:
        # If a trial raises, the others continue; it counts as a trial that was not exact.
        logs.mkdir(parents=True, exist_ok=True)
        (logs / "traceback.txt").write_text(traceback.format_exc(), encoding="utf-8")
        return Outcome(plan, problems=[f"the trial itself failed: {type(error).__name__}: {error}"])


if __name__ == "__main__":
    sys.exit(main())
