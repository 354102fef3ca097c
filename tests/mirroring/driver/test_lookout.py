"""A lookout lets each watch look in turn, and takes little CPU however long a look takes."""

from __future__ import annotations

import time

from shoal.client.cluster import Cluster
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, Disconnected
from shoal.mirroring.driver.lookout import Lookout, Watch
from shoal.mirroring.driver.schedule import PartitionSchedule, Running
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.timing import Timing
from tests.running_mirror import running
from tests.world.clusters import TwoBrokers
from tests.world.waiting import wait_until


class Busy(Watch):
    """Takes so much CPU for each look."""

    failure = "cannot look: "

    def __init__(self, mirror: Running, cpu_s: float = 0.0, error: Exception | None = None) -> None:
        super().__init__(mirror)
        self.looks: list[float] = []
        self._cpu_s = cpu_s
        self._error = error

    def look(self, source: Cluster, destination: Cluster) -> None:
        self.looks.append(time.monotonic())
        until_s = time.thread_time() + self._cpu_s
        while time.thread_time() < until_s:
            pass
        if self._error is not None:
            raise self._error


def mirror_of(brokers: TwoBrokers, warnings: list[str]) -> Running:
    timing = Timing(shortest_refresh_s=0.01)
    sides = brokers.settings.source, brokers.settings.destination
    options = MirrorOptions(*sides, TopicSelection("topic"), refresh_s=0.01, timing=timing)
    metrics = Metrics()
    return running(options, PartitionSchedule({}, metrics), metrics, warn=warnings.append)


def test_watch_that_fails_delays_no_other_and_warns_once(brokers: TwoBrokers) -> None:
    warnings: list[str] = []
    mirror = mirror_of(brokers, warnings)
    for_good = Busy(mirror, error=BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "group g"))
    for_now = Busy(mirror, error=Disconnected("a broker", "it is away"))
    sound = Busy(mirror)
    with Lookout(mirror, for_good, for_now, sound):
        wait_until(lambda: len(sound.looks) >= 3)
    (warning,) = warnings
    assert "GROUP_AUTHORIZATION_FAILED" in warning


def test_looks_that_take_much_cpu_are_rarer_than_the_refresh(brokers: TwoBrokers) -> None:
    mirror = mirror_of(brokers, [])
    busy = Busy(mirror, cpu_s=0.02)
    with Lookout(mirror, busy):
        wait_until(lambda: len(busy.looks) == 2)
    first, second = busy.looks[:2]
    assert second - first >= 60 * 0.02
