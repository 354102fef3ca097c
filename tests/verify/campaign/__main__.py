"""Run trials, print each that is wrong, and count them."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from rig.cluster import two_clusters
from tests.world.clusters import TwoBrokers

from .cases import CASES, Case
from .clusters import run_between_clusters
from .trial import Trial, run_trials

#: Trials between two brokers that are new.
_SLICE = 50


def main() -> None:
    """Run trials, and report how many are wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.verify.campaign", description=main.__doc__)
    parser.add_argument("first", type=int, help="seed of the first trial")
    parser.add_argument("count", type=int, help="number of trials")
    parser.add_argument("--records", type=int, default=300, help="most records of a topic (default: 300)")
    parser.add_argument("--findings", metavar="FILE", help="append each report to this file, as JSON")
    parser.add_argument("--cases", action="store_true", help="run so many of each case, and no trials")
    parser.add_argument("--clusters", action="store_true", help="copy between real clusters, by their tools")
    args = parser.parse_args()
    if args.cases:
        sys.exit(_run_cases(args.first, args.count))
    seeds = range(args.first, args.first + args.count)
    wrong = 0
    outcomes = Counter[str]()
    with Path(args.findings or "/dev/null").open("a", encoding="utf-8") as findings:
        for trial in _between_clusters(seeds) if args.clusters else _embedded(seeds, args.records):
            complaint = trial.complaint()
            assert trial.report is not None
            outcomes[trial.report.outcome.value] += 1
            if complaint:
                wrong += 1
                print(f"WRONG {complaint}: {trial.details}", flush=True)
            json.dump({"complaint": complaint, "report": trial.report.to_json_object()}, findings)
            findings.write("\n")
    counted = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    print(f"{args.count} trials from seed {args.first}: {counted}; {wrong} wrong")
    sys.exit(bool(wrong))


def _embedded(seeds: range, records: int) -> Iterator[Trial]:
    for begin in range(0, len(seeds), _SLICE):
        with TwoBrokers.started() as brokers:
            yield from run_trials(brokers, seeds[begin : begin + _SLICE], records=records)


def _between_clusters(seeds: range) -> Iterator[Trial]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-")))
        source, destination = stack.enter_context(two_clusters())
        yield from run_between_clusters(source, destination, seeds, directory)


def _run_cases(first: int, count: int) -> bool:
    """Run each case with some seeds; return whether any was wrong."""
    complaints = [
        f"WRONG {name}, seed {seed}: {complaint}"
        for name, case in CASES.items()
        for seed in range(first, first + count)
        if (complaint := _run_case(case, seed))
    ]
    print("\n".join([*complaints, f"{count} of each of {len(CASES)} cases: {len(complaints)} wrong"]))
    return bool(complaints)


def _run_case(case: Case, seed: int) -> str | None:
    with TwoBrokers.started() as brokers:
        return case(random.Random(seed), brokers)


if __name__ == "__main__":
    main()
