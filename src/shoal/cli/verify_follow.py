"""``shoal verify --follow``: rounds until a signal, with a line for each and metrics."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import ConfigError, OptionError, ShoalError, Stopped
from ..exit_codes import EXIT_NOT_COMPARED
from ..mirroring.model.option_values import check_range
from ..result_file import check_result_file
from ..verify.follow import Follower, FollowStatus, Round
from .http_options import add_http_options
from .output import print_json, say, stamp_lines, warn
from .verify_metrics import serve_metrics

__all__ = ["add_follow_options", "check_follow_options", "follow"]

_DEFAULT_INTERVAL_S = 10.0
_LONGEST_INTERVAL_S = 86_400.0

#: The most sentences of a round that are printed; the metrics count all.
_MOST_NEWS = 20


def add_follow_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--follow`` and the options that it needs."""
    group = parser.add_argument_group("following a mirror")
    group.add_argument(
        "--follow",
        action="store_true",
        help="verify the records that come, round after round, until SIGINT or SIGTERM",
    )
    group.add_argument(
        "--interval",
        type=float,
        metavar="SECONDS",
        help=f"with --follow: the pause between two rounds (default: {_DEFAULT_INTERVAL_S:g})",
    )
    group.add_argument(
        "--state",
        metavar="FILE",
        help="with --follow: keep the positions of the verification in this file, and continue from there",
    )
    group.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="with --follow: serve metrics to Prometheus at this address. Port 0 takes a free port",
    )
    add_http_options(group)


def check_follow_options(args: argparse.Namespace) -> None:
    """
    Check the options that belong to ``--follow``, and those that contradict it.

    Raises:
        OptionError: One of them cannot be used.

    """
    if args.follow:
        for name in ("report", "sample"):
            if getattr(args, name) is not None:
                raise OptionError(
                    "{follow} and {option} contradict each other: a report has an end, and positions have no "
                    "gaps. Remove one of them",
                    option=name,
                )
        if args.interval is not None:
            check_range("interval", args.interval, 0.1, _LONGEST_INTERVAL_S, "seconds")
        if args.state is not None:
            check_result_file("state", args.state)
        return
    for name in ("interval", "state", "metrics"):
        if getattr(args, name) is not None:
            raise OptionError("{option} needs {follow}. Add it, or remove this option", option=name)


def follow(follower: Follower, args: argparse.Namespace) -> int:
    """
    Verify until a signal; return the exit code.

    Raises:
        ShoalError: The first round failed, or the configuration cannot work.

    """
    stamp_lines(is_service=True)
    pause_s = _DEFAULT_INTERVAL_S if args.interval is None else args.interval
    with _Signals() as signals, serve_metrics(args, lambda: follower.status):
        while not signals.stop.is_set():
            _round(follower, signals, as_json=args.json)
            signals.stop.wait(pause_s)
    if not follower.status.rounds:
        return EXIT_NOT_COMPARED
    return follower.status.outcome.exit_code


class _Interrupted(BaseException):
    """A signal came while this thread waited for brokers. No handler of errors of brokers may catch it."""


class _Signals:
    """
    Handles SIGINT and SIGTERM while it is entered.

    Attributes:
        stop: Set by these signals.

    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._interrupts = False
        self._before: dict[signal.Signals, Any] = {}

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """
        Let a signal end the block at once: it waits for brokers, and keeps nothing.

        Raises:
            Stopped: A signal came.

        """
        try:
            try:
                self._interrupts = True
                if self.stop.is_set():
                    raise Stopped
                yield
            finally:
                self._interrupts = False
        except _Interrupted:
            raise Stopped from None

    def _end(self, *_: object) -> None:
        self.stop.set()
        if self._interrupts:
            self._interrupts = False  # once: connections are being closed
            raise _Interrupted

    def __enter__(self) -> _Signals:
        self._before = {each: signal.signal(each, self._end) for each in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *exc_info: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)


def _round(follower: Follower, signals: _Signals, *, as_json: bool) -> None:
    try:
        result = follower.round(signals.stop, signals.interrupting)
    except Stopped:
        return
    except ConfigError:
        raise
    except ShoalError as error:
        if not follower.status.rounds:
            raise
        warn(f"this round failed, and the next one compares the same records: {error}")
        return
    if follower.status.rounds == 1:
        for warning in result.report.warnings:
            warn(warning)
    for sentence in result.news[:_MOST_NEWS]:
        say(sentence)
    if len(result.news) > _MOST_NEWS:
        say(f"and {len(result.news) - _MOST_NEWS:,} more differences and problems in this round")
    if as_json:
        print_json(_values(result))
    elif result.report.records or result.news:
        print(_line(result), flush=True)


def _line(result: Round) -> str:
    """Return a round as one line."""
    status = result.status
    differing = sum(sum(each.differing.values()) for each in status.partitions.values())
    problems = sum(each.problem is not None for each in status.partitions.values())
    lag = sum(each.lag or 0 for each in status.partitions.values())
    parts = [f"{result.report.records:,} records are the same in this round", f"lag {lag:,} records"]
    if differing:
        parts.append(f"{differing:,} records differ so far")
    if problems:
        parts.append(f"{problems:,} of {len(status.partitions):,} partitions not compared")
    return f"{status.outcome.value}: {', '.join(parts)}, {status.round_s:.1f} s"


def _values(result: Round) -> dict[str, object]:
    status: FollowStatus = result.status
    return {
        "type": "verify-round",
        "round": status.rounds,
        "outcome": status.outcome.value,
        "records": result.report.records,
        "bytes_read": result.report.bytes_read,
        "elapsed_s": status.round_s,
        "news": list(result.news),
        "partitions": [
            {
                "source": str(source),
                "records": each.records,
                "batches": each.batches,
                "differing": {kind.value: count for kind, count in each.differing.items()},
                "lag": each.lag,
                "reached": each.reached,
                "problem": each.problem,
            }
            for source, each in sorted(status.partitions.items())
        ],
    }
