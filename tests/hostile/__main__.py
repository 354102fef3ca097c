"""Hostile clients and clusters against all servers and clients: ``python -m tests.hostile --help``.

The exit code is 0 only if every promise was kept.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
import time
from pathlib import Path

from .client_campaign import SERVERS, ClientResult, Target, attack_server
from .cluster_campaign import ClusterResult, lie_to_all
from .command_campaign import CommandResult, lie_to_commands
from .report import client_table, cluster_line_of, cluster_table, command_line_of, line_of

_LINE_EVERY = 10


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--seed", type=int, help="seed of a run to repeat (default: random, and printed)")
    parser.add_argument(
        "--only", choices=[*SERVERS, "cluster", "commands"], help="only this part (default: all in turn)"
    )
    parser.add_argument(
        "--requests", type=int, default=500_000, help="number for each server (default: 500,000)"
    )
    parser.add_argument("--lies", type=int, default=1_000, help="number of a cluster's lies (default: 1,000)")
    parser.add_argument("--runs", type=int, default=20, help="number of commands (default: 20)")
    parser.add_argument(
        "--mirror-every",
        type=int,
        default=4,
        metavar="N",
        help="run a mirror as every N-th command (default: 4)",
    )
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with input or trial N")
    parser.add_argument(
        "--step", type=int, default=10_000, help="requests between two checks (default: 10,000)"
    )
    parser.add_argument("--minutes", type=float, help="begin no step after this time")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the tables as Markdown")
    return parser.parse_args()


def main() -> int:
    args = _arguments()
    seed = secrets.randbelow(1_000_000) if args.seed is None else args.seed
    # As Ctrl-C: the servers end, and their data is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(f"seed {seed}", flush=True)
    deadline = time.monotonic() + args.minutes * 60 if args.minutes else float("inf")
    clusters = [_lie(seed, args, deadline)] if args.only in (None, "cluster") else []
    commands = [_lie_to_commands(seed, args, deadline)] if args.only in (None, "commands") else []
    clients = [_attack(each, seed, args, deadline) for each in SERVERS if args.only in (None, each)]
    tables = [client_table(clients, seed)] if clients else []
    tables += [cluster_table(each, seed) for each in clusters]
    tables += [command_line_of(each) + "\n" for each in commands]
    print("\n" + "\n".join(tables))
    if args.report:
        args.report.write_text("\n".join(tables), encoding="utf-8")
    problems = [each.problems for each in clients] + [each.problems for each in clusters]
    problems += [each.problems for each in commands]
    return 1 if any(problems) else 0


def _lie(seed: int, args: argparse.Namespace, deadline: float) -> ClusterResult:
    result = ClusterResult()
    for result in lie_to_all(seed, first=args.first, lies=args.lies, deadline=deadline):
        if result.trials % _LINE_EVERY == 0 or result.problems:
            print(cluster_line_of(result), flush=True)
    for problem in result.problems:
        print(f"  {problem}", flush=True)
    return result


def _lie_to_commands(seed: int, args: argparse.Namespace, deadline: float) -> CommandResult:
    result = CommandResult()
    steps = lie_to_commands(
        seed, first=args.first, runs=args.runs, deadline=deadline, mirror_every=args.mirror_every
    )
    for result in steps:
        print(command_line_of(result), flush=True)
    for problem in result.problems:
        print(f"  {problem}", flush=True)
    return result


def _attack(part: str, seed: int, args: argparse.Namespace, deadline: float) -> ClientResult:
    result = ClientResult(part)
    with Target.started(part) as target:
        steps = attack_server(
            target,
            seed,
            first=args.first,
            requests=args.requests,
            step_requests=args.step,
            deadline=deadline,
        )
        for result in steps:
            print(line_of(result), flush=True)
        # Before the end of the servers, which may be one more problem.
        for problem in result.problems:
            print(f"  {problem}", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
