"""Run a mirror between two locked clusters under constant faults: ``python -m tests.campaigns.soak --help``.

The exit code is 0 only if no record was lost, doubled or reordered, memory stayed flat, and everything was as
quick as promised.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from bench.report import machine

from .plan import Setup, draw
from .report import markdown
from .world import soak


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="duration of the load (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the events (default: 0)")
    parser.add_argument("--records-per-s", type=int, default=200, help="rate over all topics (default: 200)")
    parser.add_argument("--refresh", type=int, default=30, help="the mirror's --refresh (default: 30)")
    parser.add_argument("--logs", type=Path, help="directory for the mirror's output, and the results")
    parser.add_argument("--plan", action="store_true", help="print the events without a run")
    return parser.parse_args()


def main() -> int:
    args = _arguments()
    plan = draw(args.seed, Setup(args.minutes * 60, args.records_per_s, args.refresh))
    if args.plan:
        print(plan)
        return 0
    # As Ctrl-C: the load ends early. If there is none yet, the brokers end, and their files are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logs = args.logs or Path(tempfile.mkdtemp(prefix="shoal-soak-"))
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {line}", flush=True)

    say(f"seed {plan.seed}, {len(plan.events)} events, logs in {logs}")
    outcome = soak(plan, logs, say)
    text = f"{machine()}\n\n{markdown(outcome)}"
    (logs / "soak.md").write_text(text, encoding="utf-8")
    print("\n" + text)
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
