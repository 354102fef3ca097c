"""
Mutants of shoal and of its broker against their tests: ``python -m tests.mutants --help``.

Each mutant is a copy of the packages with one change to a comparison, `and`, `or`, `not`, `+` or `-`. The
program draws mutants by a seed. A failing test kills a mutant. If all tests pass that execute its line, or no
test does, the mutant survived, and the table lists it first. The exit code is 1 if the share of killed
mutants is below --least.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from .areas import AREAS, CAMPAIGNS, modules_of
from .report import Share, line_of, table_of, write_json
from .run import Runs
from .survey import Survey, survey
from .trial import Mutant, Result, draw, try_mutant


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, help="seed of a draw to repeat (default: random, and printed)")
    parser.add_argument("--count", type=int, default=50, help="number of mutants (default: 50)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with number N of the draw")
    parser.add_argument(
        "--of",
        nargs="+",
        choices=AREAS,
        default=[*AREAS],
        metavar="AREA",
        help=f"areas to mutate: {', '.join(AREAS)} (default: all)",
    )
    parser.add_argument(
        "--by",
        nargs="+",
        metavar="TESTS",
        help="files and directories of tests, or 'campaigns' (default: the tests of the areas)",
    )
    parser.add_argument(
        "--most", type=int, metavar="TESTS", help="the quickest so many tests judge a mutant (default: all)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (default: 2)")
    parser.add_argument(
        "--least",
        type=float,
        default=0.0,
        metavar="PERCENT",
        help="least share of killed mutants (default: 0)",
    )
    parser.add_argument("--minutes", type=float, help="begin no mutant after this time")
    parser.add_argument(
        "--survey", type=Path, metavar="FILE", help="keep the unmutated run in FILE, and use it again"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON, too")
    return parser.parse_args()


def _tests(args: argparse.Namespace) -> list[str]:
    if args.by is None:
        return list(dict.fromkeys(test for area in args.of for test in AREAS[area].tests))
    return [test for each in args.by for test in (CAMPAIGNS if each == "campaigns" else (each,))]


def _try_all(
    runs: Runs, surveyed: Survey, mutants: Sequence[Mutant], jobs: int, deadline: float
) -> Iterator[Result]:
    """Yield the result of each mutant that begins before the deadline."""

    def try_in_time(mutant: Mutant) -> Result | None:
        return try_mutant(runs, surveyed, mutant) if time.monotonic() < deadline else None

    with ThreadPoolExecutor(jobs) as workers:
        futures = [workers.submit(try_in_time, mutant) for mutant in mutants]
        try:
            for future in as_completed(futures):
                if result := future.result():
                    yield result
        except BaseException:
            workers.shutdown(wait=False, cancel_futures=True)
            runs.end()
            raise


def main() -> int:
    args = _arguments()
    seed = secrets.randbelow(1_000_000) if args.seed is None else args.seed
    deadline = time.monotonic() + args.minutes * 60 if args.minutes else float("inf")
    # As Ctrl-C: the runs end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(f"seed {seed}", flush=True)
    runs, tests = Runs(), _tests(args)
    try:
        surveyed = survey(runs, tests, args.survey)
    except BaseException:
        runs.end()
        raise
    for test in surveyed.failed:
        print(f"left out, it fails unmutated: {test}")
    drawn, executed, total = draw(surveyed, modules_of(args.of), seed, args.first + args.count, args.most)
    mutants = drawn[args.first :]
    print(
        f"{len(mutants)} mutants of {total}, {executed} of which are in lines that the tests execute",
        flush=True,
    )
    results: list[Result] = []
    for result in _try_all(runs, surveyed, mutants, args.jobs, deadline):
        results.append(result)
        print(line_of(result), flush=True)
        if args.json:
            write_json(args.json, results, seed=seed, areas=args.of, tests=tests, executed=executed)
    share = Share(Counter(each.verdict for each in results), args.least)
    print(f"\n{table_of(results)}\n\n{share.sentence}")
    return share.exit_code


if __name__ == "__main__":
    sys.exit(main())
