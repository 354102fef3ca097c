"""A whole mirror is steered over its control socket, with its tasks in threads (``without_jvm``)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import ConfigError, ShoalError
from shoal.mirroring.model.progress import Summary
from shoal.spark.api import mirror
from tests.control import send
from tests.spark.without_jvm import without_jvm
from tests.world.clusters import TwoBrokers
from tests.world.history import History
from tests.world.waiting import wait_until

pytestmark = pytest.mark.timeout(300)


class Mirrors:
    """Mirrors of two topics, each from the same directory."""

    def __init__(self, brokers: TwoBrokers, directory: Path) -> None:
        self.brokers = brokers
        self.notices: list[str] = []
        self.socket = str(directory / "control.sock")
        self._directory = directory
        (self.orders,), (self.logs,) = brokers.topic("orders"), brokers.topic("logs")

    @contextmanager
    def running(self, **options: Any) -> Iterator[Future[Summary]]:
        """Run a mirror until the end of the block, and wait until it takes commands."""
        stop = threading.Event()
        given = {
            "control": self.socket,
            "checkpoint": str(self._directory / "state"),
            "group": "mirror",
            **options,
        }
        parsed = self.brokers.options("orders,logs", **given)
        parsed = replace(parsed, timing=replace(parsed.timing, places_look_s=0.5, commit_interval_s=0.05))
        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(mirror, parsed, on_notice=self.notices.append, stop=stop)
            try:
                wait_until(lambda: done.done() or self._is_ready(), 120)
                yield done
            finally:
                stop.set()
            done.result(120)

    def _is_ready(self) -> bool:
        try:
            return bool(send(self.socket, "status")["ok"])
        except ShoalError:
            return False

    def do(self, command: str) -> Mapping[str, Any]:
        answer = send(self.socket, command)
        assert answer["ok"], answer["text"]
        return answer

    def copied(self, topic: str) -> int:
        return self.brokers.destination.log(topic).log_end_offset

    def stands_still(self, topic: str) -> bool:
        """Whether nothing of a topic is copied for longer than a fetch is on its way."""
        before = self.copied(topic)
        time.sleep(1.0)  # a fetch waits for half of that
        return self.copied(topic) == before


@pytest.fixture
def mirrors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirrors]:
    with without_jvm(monkeypatch), TwoBrokers.started() as brokers:
        yield Mirrors(brokers, tmp_path)


def end_of(history: History) -> int:
    return history.next_offset


def test_mirror_is_paused_and_stopped_and_paused_by_its_option(mirrors: Mirrors) -> None:
    mirrors.orders.plain(2)
    mirrors.logs.plain(2)
    with mirrors.running() as done:
        wait_until(lambda: mirrors.copied("orders") == mirrors.copied("logs") == 2, 60)
        mirrors.do("pause logs")
        wait_until(lambda: mirrors.stands_still("logs"), 60)
        mirrors.logs.plain(3)
        for _ in range(3):
            mirrors.orders.plain(1)
            wait_until(lambda: mirrors.copied("orders") == end_of(mirrors.orders), 60)
        assert mirrors.stands_still("logs")
        assert mirrors.copied("logs") == 2
        assert mirrors.do("status")["steering"]["paused"] == ["logs"]
        mirrors.do("stop")
        summary = done.result(60)
    assert ("control socket" in summary.ended, summary.exit_code) == (True, 0)
    assert not Path(mirrors.socket).exists()
    with mirrors.running(pause="l.*"):
        mirrors.orders.plain(1)
        wait_until(lambda: mirrors.copied("orders") == 6, 60)
        assert mirrors.copied("logs") == 2
        mirrors.do("resume")
        wait_until(lambda: mirrors.copied("logs") == 5, 60)
    assert any("paused: l.*" in each for each in mirrors.notices)
    for history, topic in ((mirrors.orders, "orders"), (mirrors.logs, "logs")):
        mirrors.brokers.assert_exact(history, topic=topic)


def test_second_mirror_on_the_same_socket_is_refused_before_it_does_anything(mirrors: Mirrors) -> None:
    with mirrors.running():
        options = mirrors.brokers.options("orders", control=mirrors.socket, group="another")
        with pytest.raises(ConfigError, match=r"another.*mirror"):
            mirror(options)


def test_limited_mirror_holds_the_rest_until_its_limit_is_lifted(mirrors: Mirrors) -> None:
    topics = {"orders": mirrors.orders, "logs": mirrors.logs}
    for history in topics.values():
        for _ in range(200):
            history.store(history.batch(200), shown=True)

    def is_done() -> bool:
        return all(mirrors.copied(topic) == end_of(history) for topic, history in topics.items())

    # The first batches come at once, and the rest in hours.
    with mirrors.running(limit="100"):
        wait_until(lambda: any(mirrors.copied(topic) for topic in topics), 60)
        wait_until(lambda: all(mirrors.stands_still(topic) for topic in topics), 60)
        assert not is_done()
        mirrors.do("limit none")
        wait_until(is_done, 60)
    mirrors.brokers.assert_exact(mirrors.orders, topic="orders")
