"""Trials in which everything goes wrong, each copy judged: ``python -m tests.campaigns --help``.

Half of them are between real clusters, and half within this process. One of kind soak lasts an hour, or the
minutes that are given.

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
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from rig.disk import mounts_are_refused
from rig.judge import Verdict
from rig.shoal import serve_broker

from . import plan as tasks
from . import trial as task_trial
from .clusters import plan as clusters
from .clusters.archives import draw_archive, run_archive
from .clusters.arena import Arena, Side, open_arena, open_locked_arena
from .clusters.trial import run_trial
from .kinds import Kind, kind_of
from .report import AnyPlan, Outcome, line_of, markdown

_SOAK_MINUTES = 60.0

#: A login lasts a fifteenth of a soak, so that the mirror renews it often.
_LOGINS = 15

#: Number of trials to search for one with the selected text.
_SEARCHED = 5_000


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=__doc__)
    parser.add_argument("--trials", type=int, default=400, help="number of trials (default: 400)")
    parser.add_argument(
        "--minutes", type=float, help="begin no trial after this time; of a soak, its duration (default: 60)"
    )
    parser.add_argument("--seed", type=int, help="seed of a run to repeat (default: random, and printed)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with trial number N")
    parser.add_argument(
        "--kind", choices=sorted(kind.name.lower() for kind in Kind), help="only trials of this kind"
    )
    parser.add_argument(
        "--with",
        dest="text",
        metavar="TEXT",
        help="only trials whose plan contains this text, such as the name of an event",
    )
    parser.add_argument(
        "--without", action="append", default=[], metavar="EVENT", help="leave this event out of all plans"
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
    parser.add_argument(
        "--embedded", action="store_true", help="trials of kind archives between embedded brokers"
    )
    parser.add_argument("--plans", action="store_true", help="print the plans only")
    found = parser.parse_args()
    if found.embedded and found.kind != Kind.ARCHIVES.value:
        parser.error(f"--embedded needs --kind {Kind.ARCHIVES.value}")
    return found


def main() -> int:
    args = _arguments()
    args.seed = secrets.randbelow(1_000_000) if args.seed is None else args.seed
    kind = Kind[args.kind.upper()] if args.kind else None
    plans = _plans(args, kind)
    if args.plans:
        for plan in plans:
            print(f"{plan.kind.value}, {plan}")
        return 0
    # As Ctrl-C: the brokers end, and their files are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    logs = args.logs or Path(tempfile.mkdtemp(prefix="shoal-campaign-"))
    print(f"seed {args.seed}, {len(plans)} trials, logs in {logs}", flush=True)
    began = time.monotonic()
    outcomes: list[Outcome] = []
    with nullcontext() if args.embedded else _arena_for(plans, with_agent=args.agent) as arena:
        print(f"ready after {time.monotonic() - began:.0f} s", flush=True)
        if arena is not None and (refused := mounts_are_refused()):
            print(f"no trial fills a disk: this process may not mount ({refused})", flush=True)
        for turn, plan in enumerate(plans):
            if args.minutes and kind is not Kind.SOAK and time.monotonic() - began > args.minutes * 60:
                break
            outcomes.append(_run(arena, plan, logs / f"trial-{turn:03}-{plan.seed}", args.patience))
            print(f"{turn}: {line_of(outcomes[-1])}", flush=True)
    summary = markdown(outcomes, args.seed, time.monotonic() - began)
    print("\n" + summary)
    if args.report:
        args.report.write_text(summary, encoding="utf-8")
    return 0 if outcomes and all(each.is_exact for each in outcomes) else 1


def _plans(args: argparse.Namespace, kind: Kind | None) -> list[AnyPlan]:
    """Draw the plans: trial number N of a run is the one whose seed is the run's and N."""
    if kind is Kind.SOAK:
        return [clusters.draw_soak(args.seed, args.minutes or _SOAK_MINUTES, args.without)]

    def draw(number: int) -> AnyPlan:
        match kind or kind_of(number):
            case Kind.TASK:
                return tasks.draw(args.seed + number, args.without)
            case Kind.EXECUTORS:
                return tasks.draw_executors(args.seed + number, args.without)
            case Kind.READERS:
                return tasks.draw_readers(args.seed + number, args.without)
            case Kind.CUTS:
                return tasks.draw_cuts(args.seed + number, args.without)
            case Kind.ARCHIVES:
                return draw_archive(args.seed + number, args.without)
            case found:
                return clusters.draw(args.seed + number, found, args.without)

    if args.text is None:
        return [draw(number) for number in range(args.first, args.first + args.trials)]
    searched = map(draw, range(args.first, args.first + _SEARCHED))
    plans = list(itertools.islice((plan for plan in searched if args.text in str(plan)), args.trials))
    if not plans:
        sys.exit(f"--with {args.text!r}: no plan of {_SEARCHED} contains this text")
    return plans


def _arena_for(plans: list[AnyPlan], *, with_agent: bool) -> AbstractContextManager[Arena | None]:
    """Open the clusters, unless all trials are within this process."""
    if plans and plans[0].kind is Kind.SOAK:
        return open_locked_arena(sum(plans[0].setup.lasts_s) * 1000 // _LOGINS)
    is_within = all(plan.kind.is_within for plan in plans)
    return nullcontext() if is_within else open_arena(with_agent=with_agent)


def _run(arena: Arena | None, plan: AnyPlan, logs: Path, patience: float) -> Outcome:
    try:
        if plan.kind.is_within:
            return _run_within(plan)
        if plan.kind is Kind.ARCHIVES:
            with _ends_of(arena) as ends:
                return run_archive(plan, *ends, logs)
        assert arena is not None, "only trials within this process have no arena"
        return run_trial(plan, arena, logs, patience)
    except Exception as error:
        # If a trial raises, the others continue; it counts as a trial that was not exact.
        logs.mkdir(parents=True, exist_ok=True)
        (logs / "traceback.txt").write_text(traceback.format_exc(), encoding="utf-8")
        return Outcome(plan, problems=[f"the trial itself failed: {type(error).__name__}: {error}"])


@contextmanager
def _ends_of(arena: Arena | None) -> Iterator[tuple[str, str]]:
    """Yield the servers of both clusters; without an arena, those of embedded brokers."""
    if arena is not None:
        yield arena.bootstrap(Side.SOURCE), arena.bootstrap(Side.DESTINATION)
        return
    with serve_broker() as source, serve_broker() as destination:
        yield source.address, destination.address


def _run_within(plan: AnyPlan) -> Outcome:
    began = time.monotonic()
    run = task_trial.run_cuts if plan.kind is Kind.CUTS else task_trial.run_trial
    problems, records = run(plan)
    return Outcome(
        plan,
        Verdict(due=records),
        problems,
        came=plan.events,
        attempts=len(plan.steps),
        seconds=time.monotonic() - began,
    )


if __name__ == "__main__":
    sys.exit(main())
