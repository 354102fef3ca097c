"""Everything that a mirror shows while it runs, if its options ask for it: metrics, page and report."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from ..model.options import MetricsBy, MirrorOptions
from .door import Door, OnCommand
from .health import health_routes
from .metrics import Metrics
from .page import About, MirrorPage
from .page.history import Processes
from .prometheus import metrics_routes

__all__ = ["show"]


def show(
    options: MirrorOptions,
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
        processes: Returns the usage of the driver and its JVMs.
        on_command: Carries out the commands of an operator.
        notify: A function that receives the addresses.

    Raises:
        ConfigError: An address is taken, or the report cannot be written.

    """
    about = About(options.source.servers, options.destination.servers)
    page = resources.enter_context(MirrorPage(options.report, about, metrics, processes, warn))
    door = Door(options.http, warn)
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
