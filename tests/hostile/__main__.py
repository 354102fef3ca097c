"""A hostile cluster against all clients: ``python -m tests.hostile --help``.

The exit code is 0 only if every promise was kept.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
import time

from .clients import CLIENTS, COMMANDS, lie_to_all

#: The clients of each part, and the share of the lies that it gets.
_PARTS = {"cluster": (CLIENTS, 1), "commands": (COMMANDS, 10)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--seed", type=int, help="seed of a run to repeat (default: random, and printed)")
    parser.add_argument("--only", choices=_PARTS, help="only this part (default: both in turn)")
    parser.add_argument("--lies", type=int, default=1_000, help="number of a cluster's lies (default: 1,000)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with trial N")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no trial after this time")
    return parser.parse_args()


def main() -> int:
    args = _arguments()
    seed = secrets.randbelow(1_000_000) if args.seed is None else args.seed
    # As Ctrl-C: the servers end, and their data is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(f"seed {seed}", flush=True)
    deadline = time.monotonic() + args.minutes * 60
    has_problems = False
    for victims, share in [_PARTS[args.only]] if args.only else _PARTS.values():
        for result in lie_to_all(seed, args.lies // share, victims, first=args.first):
            print(result, *result.problems, sep="\n  ", flush=True)
            has_problems |= bool(result.problems)
            if time.monotonic() > deadline:
                break
    return 1 if has_problems else 0


if __name__ == "__main__":
    sys.exit(main())
