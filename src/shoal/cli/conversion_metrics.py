"""``--metrics`` of the gateway: its conversions and its process."""

from __future__ import annotations

import argparse
import importlib.metadata
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from .. import kinds
from ..declare import given, option
from ..gateway.converting import Conversions, held_bytes, totals
from ..mirroring.model.http_access import HttpOptions
from ..net.address import Address
from ..numbers import CONTENT_TYPE, gauge, labels, process_text, text
from .output import say, warn

__all__ = ["Conversions", "Gateway", "MetricsOptions", "metrics_text", "serve_metrics"]


@dataclass(frozen=True, slots=True)
class Gateway:
    """The gateway as a whole."""

    held_bytes: int = gauge(
        "shoal_conversion_memory_bytes", "Converted bytes in memory that wait for the sockets of clients."
    )
    builds: dict[str, int] = gauge("shoal_build_info", "1, with the version of shoal.", label="version")


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
    options.check_served(metrics=options.metrics)
    if options.metrics is None:
        return nullcontext()
    # Imported here: a gateway without metrics does not pay for the imports.
    from ..mirroring.monitoring.door import Answer, Door

    def answer() -> Answer:
        return Answer(metrics_text(), {"Content-Type": CONTENT_TYPE})

    door = Door(options.http_token_file, warn)
    address = door.listen("metrics", options.metrics, {"/metrics": answer})
    say(f"metrics at http://{address}/metrics")
    return door


def metrics_text() -> bytes:
    """Return the answer to a scrape: conversions by direction, the version, and the process."""
    conversions = [(labels(direction=api.value), total) for api, total in totals().items()]
    whole = Gateway(held_bytes(), {importlib.metadata.version("shoal"): 1})
    return (text(Conversions, conversions) + text(Gateway, [("", whole)]) + process_text()).encode()
