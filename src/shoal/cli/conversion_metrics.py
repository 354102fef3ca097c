"""``--metrics`` of the gateway: its conversions and its process."""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import kinds
from ..declare import given, option
from ..gateway.converting import ConversionTotals, held_bytes, totals
from ..mirroring.model.http_access import HttpOptions
from ..net.address import Address
from .output import say, warn

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["MetricsOptions", "metrics_text", "serve_metrics"]

#: Name, meaning and value of each counter, all by direction.
_COUNTERS: tuple[tuple[str, str, Callable[[ConversionTotals], float]], ...] = (
    ("batches", "Batches that were converted.", lambda each: each.counts.batches),
    ("messages", "Records in the batches that were converted.", lambda each: each.counts.messages),
    (
        "source_bytes",
        "Bytes of the batches before they were converted.",
        lambda each: each.counts.source_bytes,
    ),
    ("bytes", "Bytes of the batches after they were converted.", lambda each: each.counts.converted_bytes),
    ("cpu_seconds", "CPU seconds that conversions took.", lambda each: each.cpu_s),
    ("refused", "Record sets that could not be converted.", lambda each: each.refused),
)


@dataclass(frozen=True)
class MetricsOptions(HttpOptions):
    """The options of the gateway's metrics."""

    metrics: Address | None = option(
        kinds.ADDRESS,
        "serve metrics of conversions and of this process to Prometheus at this address. Port 0 takes a free "
        "port",
        default=None,
        group="monitoring",
    )


def serve_metrics(args: argparse.Namespace) -> AbstractContextManager[object]:
    """
    Return a server of ``GET /metrics`` that answers while it is entered; nothing without ``--metrics``.

    Raises:
        ConfigError: The address makes no sense, or cannot be listened on; a file cannot be used.

    """
    options = MetricsOptions(**given(MetricsOptions, vars(args)))
    if options.metrics is None:
        return nullcontext()
    # Imported here: a gateway without metrics does not pay for the imports.
    from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

    from ..mirroring.monitoring.door import Answer, Door

    def answer() -> Answer:
        return Answer(metrics_text(), {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    door = Door(options.http, warn)
    address = door.listen("metrics", options.metrics, {"/metrics": answer})
    say(f"metrics at http://{address}/metrics")
    return door


def metrics_text() -> bytes:
    """Return what a scrape gets: conversions by direction, the version, and the process."""
    from prometheus_client import generate_latest

    return generate_latest(_Families())


class _Families:
    """The metrics of now, as prometheus_client's encoder takes them."""

    def collect(self) -> Iterator[Metric]:
        return _families()


def _families() -> Iterator[Metric]:
    from prometheus_client import ProcessCollector
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

    now = totals()
    for name, meaning, value in _COUNTERS:
        family = CounterMetricFamily(f"shoal_conversion_{name}", meaning, labels=("direction",))
        for api, total in now.items():
            family.add_metric((api.value,), value(total))
        yield family
    yield GaugeMetricFamily(
        "shoal_conversion_memory_bytes",
        "Converted bytes in memory that wait for the sockets of clients.",
        value=held_bytes(),
    )
    build = InfoMetricFamily("shoal_build", "The version of shoal.")
    build.add_metric((), {"version": importlib.metadata.version("shoal")})
    yield build
    yield from ProcessCollector(registry=None).collect()
