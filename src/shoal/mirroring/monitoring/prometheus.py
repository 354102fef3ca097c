"""The state of a mirror in Prometheus's text format: ``/metrics``. docs/metrics.md explains each metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...numbers import CONTENT_TYPE, process_text
from ..model.processes import ProcessUsage
from .door import Answer, Route
from .metrics import Metrics

__all__ = ["exposition", "metrics_routes"]


def metrics_routes(
    metrics: Metrics, local_processes: Callable[[], Sequence[ProcessUsage]], *, by_topic: bool = False
) -> Mapping[str, Route]:
    """Return the route of the metrics; it reads the driver's and its JVMs' usage at each scrape."""

    def answer() -> Answer:
        return Answer(exposition(metrics, local_processes, by_topic=by_topic), {"Content-Type": CONTENT_TYPE})

    return {"/metrics": answer}


def exposition(
    metrics: Metrics, local_processes: Callable[[], Sequence[ProcessUsage]], *, by_topic: bool = False
) -> bytes:
    """Return the answer to a scrape."""
    state = metrics.state([*local_processes(), *metrics.workers()])
    return (state.to_prometheus(by_topic=by_topic) + process_text()).encode()
