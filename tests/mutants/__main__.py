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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from .areas import AREAS, CAMPAIGNS, modules_of
from .trial import Mutant, Result, Verdict, draw, end_runs, survey, try_mutant


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
    parser.add_argument("--minutes", type=float, help="begin no mutant after this time")
    parser.add_argument(
        "--least",
        type=float,
        default=0.0,
        metavar="PERCENT",
        help="least share of killed mutants (default: 0)",
    )
    return parser.parse_args()


def _tests(args: argparse.Namespace) -> list[str]:
    if args.by is None:
        return list(dict.fromkeys(test for area in args.of for test in AREAS[area].tests))
    return [test for each in args.by for test in (CAMPAIGNS if each == "campaigns" else (each,))]


def line_of(result: Result) -> str:
    """Return a mutant and its verdict in one line, as a row of a table."""
    site, verdict = result.mutant.site, result.verdict.value
    if result.verdict is Verdict.SURVIVED:
        verdict = f"**survived** {len(result.mutant.tests)} tests"
    change = _change(" ".join(site.before.split()), " ".join(site.after.split())).replace("|", "\\|")
    return f"| {result.mutant.place} | `{change}` | {verdict} | {result.said} |"


def _change(before: str, after: str) -> str:
    """Return both expressions with what they share at their ends cut to a few characters."""
    if len(before) <= 70:
        return f"{before} → {after}"
    start = next(i for i in range(len(before)) if before[i] != after[i : i + 1])
    start = max(0, start - 30)
    return f"…{before[start : start + 65]}… → …{after[start : start + 65]}…"


def table_of(results: Sequence[Result]) -> str:
    """Return all results as a table, survivors first."""
    ordered = sorted(results, key=lambda each: (each.verdict.is_killed, each.mutant.place))
    return "\n".join(["| place | mutation | verdict | by |", "|---|---|---|---|", *map(line_of, ordered)])


@dataclass(frozen=True)
class Share:
    """
    The share of mutants that tests killed, of those that are not equivalent.

    Attributes:
        counts: The number of mutants of each verdict.
        least: The least share that passes, in percent.

    """

    counts: Counter[Verdict]
    least: float

    @property
    def judged(self) -> int:
        """How many mutants tests could have killed."""
        return self.counts.total() - self.counts[Verdict.EQUIVALENT]

    @property
    def percent(self) -> float:
        """The share; 0 if there is no mutant to kill, which shows nothing."""
        return 100 * (self.judged - self._survived) / max(1, self.judged)

    @property
    def _survived(self) -> int:
        return sum(count for verdict, count in self.counts.items() if verdict.has_survived)

    @property
    def exit_code(self) -> int:
        return 1 if self.percent < self.least else 0

    @property
    def sentence(self) -> str:
        counts = self.counts
        return (
            f"{self.percent:.1f} % of {self.judged} mutants were killed, {counts[Verdict.TIMED_OUT]} of them "
            f"by time, and at least {self.least:g} % are required: {self._survived} survived, "
            f"{counts[Verdict.NOT_RUN]} of them in lines that no test runs. "
            f"{counts[Verdict.EQUIVALENT]} more are equivalent"
        )


def main() -> int:
    args = _arguments()
    seed = secrets.randbelow(1_000_000) if args.seed is None else args.seed
    deadline = time.monotonic() + args.minutes * 60 if args.minutes else float("inf")
    # As Ctrl-C: the runs end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(f"seed {seed}", flush=True)
    surveyed = survey(_tests(args))
    drawn, executed, total = draw(surveyed, modules_of(args.of), seed, args.first + args.count, args.most)
    mutants = drawn[args.first :]
    print(
        f"{len(mutants)} mutants of {total}, {executed} of them in lines that the tests execute", flush=True
    )

    def try_in_time(mutant: Mutant) -> Result | None:
        if time.monotonic() > deadline:
            return None
        result = try_mutant(surveyed, mutant)
        print(line_of(result), flush=True)
        return result

    with ThreadPoolExecutor(args.jobs) as workers:
        try:
            results = [each for each in workers.map(try_in_time, mutants) if each]
        except BaseException:
            workers.shutdown(wait=False, cancel_futures=True)
            end_runs()
            raise
    share = Share(Counter(each.verdict for each in results), args.least)
    print(f"\n{table_of(results)}\n\n{share.sentence}")
    return share.exit_code


if __name__ == "__main__":
    sys.exit(main())
