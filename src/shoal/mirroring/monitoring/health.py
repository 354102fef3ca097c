"""
The health of a mirror for Kubernetes and load balancers: ``/healthz`` and ``/readyz``.

Both answer without the token of ``--http-token-file``: a kubelet sends none, and they contain only the phase,
and which cluster does not answer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from http import HTTPStatus

from ...timing import Timing
from ..model.progress import Phase
from .door import Answer, Route
from .metrics import Metrics

__all__ = ["health_routes"]


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
    silent_for_s = metrics.phase_s if reported_at is None else time.time() - reported_at
    has_work = any(each.stopped is None for each in metrics.partitions().values())
    if silent_for_s < restart_after_s or not has_work:
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
