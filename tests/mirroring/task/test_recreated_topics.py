"""A topic is deleted and created again under its name, while a task has its partition aligned."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from shoal.mirroring.model.incidents import IncidentKind
from shoal_broker import Broker
from tests.world import clusters
from tests.world.clusters import TwoBrokers
from tests.world.control import Watched
from tests.world.faults import list_by_name
from tests.world.history import History

#: If requests list topics by name, the task notices only pauses longer than this.
PAUSE_S = 0.1


@pytest.fixture(params=["by id", "by name"])
def two(request: pytest.FixtureRequest) -> Iterator[TwoBrokers]:
    """Brokers that list topics by id, or that are too old for it; a fetch brings six batches."""
    with TwoBrokers.started() as started:
        if request.param == "by name":
            for broker in (started.source, started.destination):
                list_by_name(broker)
        yield started.with_settings(fetch_buffer_bytes=65_536 + 300).with_timing(recreated_after_s=PAUSE_S)


def recreate(broker: Broker, count: int = 0) -> History:
    """Delete the topic, create another one of its name, and put so many records into it."""
    return clusters.recreate(broker, with_offsets=True).named("new", count)


def values(brokers: TwoBrokers) -> list[bytes]:
    return [each.value or b"" for each in brokers.copied()]


def numbered(name: bytes, count: int) -> list[bytes]:
    return [b"%s %d" % (name, number) for number in range(count)]


def split_values(brokers: TwoBrokers) -> tuple[list[bytes], list[bytes]]:
    """Return the values of the former topic at the destination, and those behind them."""
    found = values(brokers)
    of_former = sum(each.startswith(b"old") for each in found)
    return found[:of_former], found[of_former:]


class Paused(Watched):
    """A task's control under which its process pauses, as by SIGSTOP, before it takes a certain answer."""

    def __init__(self, turn: int) -> None:
        super().__init__()
        self.pauses = threading.Event()
        self.goes_on = threading.Event()
        self._turns_left = turn

    def check_lease(self) -> None:
        """Count a turn: one for each of a worker and a copy loop, and one for each Produce request."""
        self._turns_left -= 1
        if self._turns_left == 0:
            self.pauses.set()
            assert self.goes_on.wait(30)

    def go_on(self) -> None:
        """End the pause once it was long enough to be noticed."""
        threading.Timer(1.5 * PAUSE_S, self.goes_on.set).start()


@pytest.mark.parametrize("turn", [2, 3, 4, 5, 9])
def test_source_topic_recreated_while_the_task_pauses_stops_the_partition(two: TwoBrokers, turn: int) -> None:
    control = Paused(turn)
    two.topic()[0].named("old", 40)
    running = two.start(control=control)
    assert control.pauses.wait(10)
    recreate(two.source, 60)
    control.go_on()
    (stopped,) = running.result().stopped
    assert stopped.cause is IncidentKind.SOURCE_RESET
    former, new = split_values(two)
    assert former == numbered(b"old", len(former))
    assert new == []
