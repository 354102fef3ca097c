"""A driver steers its tasks by options and commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from shoal.client.coordinator import MemberId
from shoal.declare import given
from shoal.errors import ConfigError
from shoal.mirroring.assignment import Wanted
from shoal.mirroring.control import ControlConnection, ControlServer
from shoal.mirroring.driver.schedule import PartitionSchedule
from shoal.mirroring.driver.steering import Steering
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.mirroring.model.steering import SteeringOptions
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.prepare.changes import PreparedTopic
from shoal.topic_partition import TopicPartition
from tests.control import parsed
from tests.running_mirror import running
from tests.snapshots import Texts
from tests.world.waiting import wait_until

NAMES = ("orders", "orders.old", "logs")


class Mirror:
    """A driver without clusters, whose tasks the tests connect."""

    def __init__(self, **options: Any) -> None:
        self.said: list[str] = []
        self.retried = 0
        self.is_stopped = False
        self.metrics = Metrics()
        self.schedule = PartitionSchedule({}, self.metrics)
        for name in NAMES:
            self.add(name)
        self.server = ControlServer("127.0.0.1", "secret", self.schedule)
        self.server.renew(MemberId(), 600.0)
        say = self.said.append
        parsed = MirrorOptions("localhost:1", "localhost:1", "topic", **options)  # type: ignore[arg-type]
        self.steering = Steering(
            running(parsed, self.schedule, self.metrics, control=self.server, warn=say, notify=say),
            stop=self._stop,
            retry=self._retry,
            create_lost=lambda topic: None,
        )

    def add(self, name: str) -> None:
        self.schedule.add(PreparedTopic(name, name, 1))

    def _retry(self) -> None:
        self.retried += 1

    def _stop(self) -> None:
        self.is_stopped = True

    def __enter__(self) -> Mirror:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.server.close()

    def do(self, line: str) -> Mapping[str, Any]:
        answer = self.steering.carry_out(*parsed(line))
        return {**answer.values, "text": answer.text}

    def task(self) -> ControlConnection:
        """Connect a task with one partition of each topic."""
        control = ControlConnection(self.server.address, "secret")
        partitions = [TopicPartition(name, 0) for name in NAMES]
        ranges = [CopyRange(*each, each.topic, 0, OPEN_END) for each in partitions]
        self.server.want({each.source: Wanted(each) for each in ranges})
        wait_until(lambda: len(control.assignment) == len(ranges))
        return control


@pytest.fixture
def started() -> Iterator[Callable[..., Mirror]]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Mirror(**options))


# Commands reach tasks


def test_pause_holds_for_topics_that_are_found_later(started: Callable[..., Mirror]) -> None:
    mirror = started()
    mirror.do("pause orders.*")
    mirror.add("orders.new")
    mirror.steering.look()
    assert "orders.new" in mirror.steering.status.paused


def test_name_pauses_only_the_topic_of_this_name(started: Callable[..., Mirror]) -> None:
    mirror = started()
    mirror.do("pause orders.old")
    assert mirror.steering.status.paused == {"orders.old"}
    mirror.do("pause no-such-topic")
    assert mirror.steering.status.paused == {"orders.old"}
    mirror.do("pause (orders)")
    assert mirror.steering.status.paused == {"orders", "orders.old"}
    mirror.do("resume orders.old")
    assert mirror.steering.status.paused == {"orders"}, "an expression matches whole names"


def test_options_steer_the_first_task_until_commands_change_it(started: Callable[..., Mirror]) -> None:
    mirror = started(limit="9m", pause="logs,orders.o.*")
    with mirror.task() as task:
        assert task.steering.paused == {"logs", "orders.old"}
        (said,) = mirror.said
        assert re.search(r"logs, orders\.o\.\* \(2 .*\b9m/s", said)
        mirror.do("resume logs")
        wait_until(lambda: task.steering.paused == {"orders.old"})


def test_retry_and_stop_call_the_mirror(started: Callable[..., Mirror]) -> None:
    mirror = started()
    mirror.do("retry")
    mirror.do("stop")
    assert (mirror.retried, mirror.is_stopped) == (1, True)


def test_status_shows_the_steering(started: Callable[..., Mirror]) -> None:
    mirror = started(limit="50m")
    mirror.do("pause logs")
    status = mirror.do("status")
    assert status["steering"]["paused"] == ["logs"]
    assert "limit: 50m/s" in status["text"]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("puase", {"topics": "x"}),
        ("", {}),
        ("pause", {}),
        ("pause", {"topics": "a", "topic": "b"}),
        ("pause", {"topics": "("}),
        ("pause", {"topics": "*"}),
        ("pause", {"topics": ""}),
        ("limit", {"bytes": "fast"}),
        ("limit", {"bytes": "0"}),
        ("continue", {"topic": "a"}),
        ("resume", {"topics": "logs"}),
        ("stop", {"now": ""}),
    ],
)
def test_wrong_command_is_refused_with_its_reason(
    started: Callable[..., Mirror], name: str, given: Mapping[str, str], texts: Texts
) -> None:
    mirror = started()
    with pytest.raises(ConfigError) as error:
        mirror.steering.carry_out(name, given)
    texts(str(error.value))
    assert mirror.steering.status.sentences == []


# Options


@pytest.mark.parametrize(
    "options", [{"limit": "0"}, {"limit": "-5"}, {"limit": "2000000g"}, {"pause": "("}, {"control": ""}]
)
def test_option_that_cannot_be_used_is_refused(options: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigError):
        given(SteeringOptions, options)
