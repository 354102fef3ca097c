"""``/healthz`` and ``/readyz``: the phases of a mirror, and the silence of its tasks."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.mirroring.model.progress import Phase
from shoal.mirroring.monitoring.door import Door
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.monitoring.processes import LocalProcesses
from shoal.mirroring.monitoring.shown import health_routes, metrics_routes
from shoal.net.address import Address
from shoal.timing import DEFAULT_TIMING, Timing
from tests.metrics_fed import busy_metrics

LOCAL = Address("127.0.0.1", 0)
IMPATIENT = Timing(restart_after_s=0.0)


class Mirror:
    """The metrics of a mirror, and the server that answers about it."""

    def __init__(
        self, metrics: Metrics, timing: Timing = DEFAULT_TIMING, token_file: Path | None = None
    ) -> None:
        self.metrics = metrics
        self.server = Door(token_file)
        routes = metrics_routes(metrics, LocalProcesses())
        self._address = self.server.listen("metrics", LOCAL, routes, health_routes(metrics, timing))

    def answer(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self._address}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    mirror = Mirror(busy_metrics())
    with mirror.server:
        yield mirror


def at(mirror: Mirror, phase: Phase) -> tuple[int, int]:
    mirror.metrics.enter(phase)
    return mirror.answer("/healthz")[0], mirror.answer("/readyz")[0]


def test_mirror_is_ready_while_tasks_copy() -> None:
    mirror = Mirror(Metrics())
    with mirror.server:
        found = {phase: at(mirror, phase) for phase in Phase}
    assert found == {phase: (200, 200 if phase is Phase.COPYING else 503) for phase in Phase}


def test_body_is_the_phase(mirror: Mirror) -> None:
    mirror.metrics.enter(Phase.STARTING_SPARK)
    assert mirror.answer("/readyz") == (503, f"{Phase.STARTING_SPARK.value}\n")


def test_silent_tasks_are_a_reason_for_a_restart() -> None:
    mirror = Mirror(busy_metrics(), IMPATIENT)
    mirror.metrics.enter(Phase.COPYING)
    with mirror.server:
        status, text = mirror.answer("/healthz")
    assert status == 503
    assert re.match(r"no task .* \d+ s$", text)


def test_silence_before_any_partition_is_no_reason() -> None:
    mirror = Mirror(Metrics(), IMPATIENT)
    mirror.metrics.enter(Phase.COPYING)
    with mirror.server:
        assert mirror.answer("/healthz")[0] == 200


def test_health_needs_no_token_and_metrics_do(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    token.chmod(0o600)
    mirror = Mirror(busy_metrics(), token_file=token)
    with mirror.server:
        assert [mirror.answer(path)[0] for path in ("/healthz", "/readyz", "/metrics")] == [200, 200, 401]
