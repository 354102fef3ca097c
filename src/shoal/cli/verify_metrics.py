"""``--metrics`` of ``shoal verify --follow`` (docs/verify-follow.md)."""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from ..mirroring.model.option_values import parse_listen
from ..printable import printable
from ..verify import DifferenceKind
from ..verify.follow import FollowStatus
from .output import say

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["metrics_text", "serve_metrics"]

_PARTITION = ("topic", "partition")


def serve_metrics(
    args: argparse.Namespace, status: Callable[[], FollowStatus]
) -> AbstractContextManager[object]:
    """
    Return a server of ``GET /metrics`` that answers while it is entered; nothing without ``--metrics``.

    Raises:
        ConfigError: The address makes no sense, or cannot be listened on; a file cannot be used.

    """
    if args.metrics is None:
        return nullcontext()
    # Imported here: a verification without metrics does not pay for the imports.
    from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

    from ..mirroring.model.http_access import HttpAccess
    from ..mirroring.monitoring.http_server.server import Answer, HttpServer

    def answer(_: object) -> Answer:
        return Answer(metrics_text(status()), {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    address = parse_listen("metrics", args.metrics)
    server = HttpServer("metrics", address, {"/metrics": answer}, HttpAccess.parse(vars(args)))
    say(f"metrics at {server.url}/metrics")
    return server


def metrics_text(status: FollowStatus) -> bytes:
    """Return what a scrape gets."""
    from prometheus_client import generate_latest

    return generate_latest(_Families(status))


class _Families:
    """The metrics of a status, as prometheus_client's encoder takes them."""

    def __init__(self, status: FollowStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        yield from _of_partitions(self._status)
        yield from _of_rounds(self._status)


def _of_partitions(status: FollowStatus) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    records = CounterMetricFamily(
        "shoal_verify_records", "Records that are the same on both sides.", labels=_PARTITION
    )
    batches = CounterMetricFamily(
        "shoal_verify_batches", "Batches of the source that are the same on both sides.", labels=_PARTITION
    )
    # Not a counter: a partition that cannot be compared on is counted again in each round.
    differing = GaugeMetricFamily(
        "shoal_verify_differing_records", "Records that differ.", labels=(*_PARTITION, "kind")
    )
    lag = GaugeMetricFamily(
        "shoal_verify_lag_records",
        "Offsets of the source that were not compared at the end of the last round.",
        labels=_PARTITION,
    )
    problem = GaugeMetricFamily(
        "shoal_verify_not_compared",
        "1 if the last round could not compare all of the partition.",
        labels=_PARTITION,
    )
    for (topic, partition), each in sorted(status.partitions.items()):
        labels = printable(topic), str(partition)
        records.add_metric(labels, each.records)
        batches.add_metric(labels, each.batches)
        problem.add_metric(labels, each.problem is not None)
        if each.lag is not None:
            lag.add_metric(labels, each.lag)
        for kind in DifferenceKind:
            differing.add_metric((*labels, kind.value), each.differing.get(kind, 0))
    yield from (records, batches, differing, lag, problem)


def _of_rounds(status: FollowStatus) -> Iterator[Metric]:
    from prometheus_client import ProcessCollector
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

    yield CounterMetricFamily("shoal_verify_rounds", "Rounds that ended.", value=status.rounds)
    yield CounterMetricFamily(
        "shoal_verify_failed_rounds", "Rounds that an error ended.", value=status.failed_rounds
    )
    yield CounterMetricFamily(
        "shoal_verify_read_bytes", "Bytes read from both clusters.", value=status.bytes_read
    )
    yield GaugeMetricFamily("shoal_verify_round_seconds", "Duration of the last round.", value=status.round_s)
    last = GaugeMetricFamily(
        "shoal_verify_last_round_timestamp_seconds", "The time at which the last round ended.", labels=()
    )
    if status.last_round_at is not None:
        last.add_metric((), status.last_round_at)
    yield last
    build = InfoMetricFamily("shoal_verify_build", "The version of shoal.")
    build.add_metric((), {"version": importlib.metadata.version("shoal")})
    yield build
    yield from ProcessCollector(registry=None).collect()
