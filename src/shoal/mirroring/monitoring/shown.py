"""
Everything that a mirror shows while it runs, if its options ask for it: metrics, health, page and report.

``/healthz`` and ``/readyz`` are for Kubernetes and load balancers. Both answer without the token of
``--http-token-file``: a kubelet sends none, and they contain only the phase, and which cluster does not
answer. docs/metrics.md explains each metric of ``/metrics``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from http import HTTPStatus

from ...numbers import CONTENT_TYPE, process_text
from ...timing import Timing
from ..model.options import MetricsBy, MirrorOptions
from ..model.progress import Phase
from .door import Answer, Door, OnCommand, Route
from .metrics import Metrics
from .page import About, MirrorPage, Processes

__all__ = ["exposition", "health_routes", "metrics_routes", "show"]


def show(
    options: MirrorOptions,
    about: About,
    metrics: Metrics,
    processes: Processes,
    on_command: OnCommand,
    warn: Callable[[str], object],
    notify: Callable[[str], object],
    resources: ExitStack,
) -> MirrorPage:
    """
    Show a mirror until its resources are closed; listen before anything is created.

    Args:
        about: The identity of the mirror.
        processes: Returns the usage of the driver and its JVMs.
        on_command: Carries out the commands of an operator.
        notify: A function that receives the addresses.

    Raises:
        ConfigError: An address is taken, or the report cannot be written.

    """
    page = resources.enter_context(MirrorPage(options.report, about, metrics, processes, warn))
    door = Door(options.http_token_file, warn)
    of_metrics = metrics_routes(metrics, processes, by_topic=options.metrics_by is MetricsBy.TOPIC)
    health = health_routes(metrics, options.timing)
    if options.metrics is not None:
        address = door.listen("metrics", options.metrics, of_metrics, health)
        notify(f"metrics at http://{address}/metrics")
    if options.ui is not None:
        address = door.listen("ui", options.ui, {**page.routes, **of_metrics}, health)
        notify(f"page at http://{address}/")
    if options.control is not None:
        door.listen_on_socket(options.control, {**page.routes, **of_metrics, **health}, on_command)
        notify(f"control socket at {options.control}")
    resources.enter_context(door)
    return page


def metrics_routes(metrics: Metrics, processes: Processes, *, by_topic: bool = False) -> Mapping[str, Route]:
    """Return the route of the metrics; it reads the usage of the driver and its JVMs at each scrape."""

    def answer() -> Answer:
        return Answer(exposition(metrics, processes, by_topic=by_topic), {"Content-Type": CONTENT_TYPE})

    return {"/metrics": answer}


def exposition(metrics: Metrics, processes: Processes, *, by_topic: bool = False) -> bytes:
    """Return the state of a mirror in Prometheus's text format."""
    state = metrics.state(processes())
    return (state.to_prometheus(by_topic=by_topic) + process_text()).encode()


def health_routes(metrics: Metrics, timing: Timing) -> Mapping[str, Route]:
    """Return the routes, for a server of these metrics."""
    return {
        "/healthz": lambda: _healthz(metrics, timing.restart_after_s),
        "/readyz": lambda: _readyz(metrics),
    }


def _healthz(metrics: Metrics, restart_after_s: float) -> Answer:
    """
    Answer whether a restart is of no use: 503 if a mirror copies, and no task has reported for so long.

    Partitions that wait or are stopped are no reason for a restart, nor is a long start.
    """
    if metrics.phase is not Phase.COPYING or metrics.phase_s < restart_after_s:
        return _answer(metrics.phase.value)
    reported_at = metrics.last_report_at
    silent_for_s = metrics.phase_s if reported_at is None else metrics.clock.wall() - reported_at
    if silent_for_s < restart_after_s or not metrics.has_work:
        return _answer(metrics.phase.value)
    return _answer(f"no task has reported for {silent_for_s:.0f} s", HTTPStatus.SERVICE_UNAVAILABLE)


def _readyz(metrics: Metrics) -> Answer:
    """Answer whether tasks copy: 503 before, once the mirror stops, and while a cluster does not answer."""
    phase = metrics.phase
    silent = [each.sentence for each in metrics.clusters.values() if each is not None]
    is_ready = phase is Phase.COPYING and not silent
    status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
    return _answer(", ".join([phase.value, *silent]), status)


def _answer(text: str, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return Answer(f"{text}\n".encode(), status=status)
