"""Trials of the campaign: ``python -m tests.campaigns --help``."""

from __future__ import annotations

import argparse
import random
import sys
import time

from .plan import draw
from .trial import run_trial

__all__: list[str] = []


def main() -> int:
    """Run trials; return 1 if any was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=__doc__)
    parser.add_argument("--trials", type=int, default=100, help="number of trials (default: 100)")
    parser.add_argument("--seed", type=int, help="seed of the first trial (default: random, and printed)")
    parser.add_argument("--without", action="append", default=[], metavar="EVENT", help="leave an event out")
    parser.add_argument("--plan", action="store_true", help="print each trial's plan")
    options = parser.parse_args()
    first = random.randrange(10**9) if options.seed is None else options.seed
    print(f"{options.trials} trials from seed {first} on", flush=True)
    wrong, began = 0, time.monotonic()
    for seed in range(first, first + options.trials):
        plan = draw(seed, options.without)
        if options.plan:
            print(plan, flush=True)
        began_trial = time.monotonic()
        problems = run_trial(plan)
        if problems:
            wrong += 1
            print(plan, *problems[:3], sep="\n", flush=True)
        if options.plan:
            print(f"  {time.monotonic() - began_trial:.1f} s", flush=True)
    print(f"{options.trials - wrong} of {options.trials} trials exact, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
