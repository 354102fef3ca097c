"""
A hostile cluster against all clients, and hostile clients against the gateway.

``python -m tests.hostile --help`` lists the options.

The exit code is 0 only if every promise was kept.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
import time
from collections.abc import Iterator

from .clients import CLIENTS, COMMANDS, lie_to_all
from .gateway import attack_gateway
from .result import Result

_PARTS = ("cluster", "commands", "gateway")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--seed", type=int, help="seed of a run to repeat (default: random, and printed)")
    parser.add_argument("--only", choices=_PARTS, help="only this part (default: all in turn)")
    parser.add_argument("--lies", type=int, default=1_000, help="number of a cluster's lies (default: 1,000)")
    parser.add_argument(
        "--requests", type=int, default=10_000, help="number of requests to the gateway (default: 10,000)"
    )
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with trial or request N")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no trial after this time")
    return parser.parse_args()


def _results(part: str, seed: int, args: argparse.Namespace) -> Iterator[Result]:
    """Run a part; yield its result so far."""
    match part:
        case "cluster":
            return lie_to_all(seed, args.lies, CLIENTS, first=args.first)
        case "commands":
            return lie_to_all(seed, args.lies // 10, COMMANDS, first=args.first)
        case _:
            return attack_gateway(seed, args.requests, first=args.first)


def main() -> int:
    args = _arguments()
    seed = secrets.randbelow(1_000_000) if args.seed is None else args.seed
    # As Ctrl-C: the servers end, and their data is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(f"seed {seed}", flush=True)
    deadline = time.monotonic() + args.minutes * 60
    has_problems = False
    for part in [args.only] if args.only else _PARTS:
        for result in _results(part, seed, args):
            print(result, *result.problems, sep="\n  ", flush=True)
            has_problems |= bool(result.problems)
            if time.monotonic() > deadline:
                break
    return 1 if has_problems else 0


if __name__ == "__main__":
    sys.exit(main())
