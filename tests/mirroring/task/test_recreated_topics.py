"""A topic is deleted and created again under its name, while a task has its partition aligned."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from shoal.mirroring.model.incidents import IncidentKind
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from tests.world import clusters
from tests.world.clusters import TwoBrokers
from tests.world.control import Watched, incidents_of
from tests.world.faults import Held, let_pass, list_by_name
from tests.world.history import History
from tests.world.task import RunningTask, TaskResult
from tests.world.waiting import wait_until

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


def kinds(control: Watched) -> list[str]:
    return [kind for kind, _ in losses(control)]


def losses(control: Watched) -> list[tuple[str, int | None]]:
    return [(kind, lost) for kind, _, lost, _ in incidents_of(control)]


# The source, while a produce takes its time


def recreated_during_a_produce(brokers: TwoBrokers, count: int, control: Watched) -> TaskResult:
    """Copy 40 records; exchange the source topic before the sixth request is answered."""
    brokers.topic()[0].named("old", 40)
    let_pass(brokers.destination, ApiKey.PRODUCE, 5)
    slow = brokers.destination.faults.add(ApiKey.PRODUCE, delay_s=3 * PAUSE_S)
    running = brokers.start(control=control)
    assert brokers.destination.faults.wait_for(slow)
    recreate(brokers.source, count)
    return running.result()


@pytest.mark.parametrize("count", [3, 40, 60])
def test_source_topic_recreated_during_a_slow_produce_stops_the_partition(
    two: TwoBrokers, count: int
) -> None:
    control = Watched()
    (stopped,) = recreated_during_a_produce(two, count, control).stopped
    assert stopped.cause is IncidentKind.SOURCE_RESET
    former, new = split_values(two)
    assert former == numbered(b"old", len(former))
    assert new == []
    assert kinds(control) == ["source-reset"]


@pytest.mark.parametrize("count", [3, 40, 60])
def test_recreated_source_topic_is_copied_as_a_whole_behind_the_former_one(
    two: TwoBrokers, count: int
) -> None:
    control = Watched()
    brokers = two.going_on(IncidentKind.SOURCE_RESET)
    result = recreated_during_a_produce(brokers, count, control)
    assert (result.complete, result.stopped) == (True, ())
    former, new = split_values(two)
    assert former == numbered(b"old", len(former))
    assert new == numbered(b"new", count)
    assert kinds(control) == ["source-reset"]
    position = two.position()
    assert (position.source_offset, position.destination_offset) == (count, len(former) + count)
    assert position.source_topic_id == str(two.source.topics.topic("topic").topic_id)
    assert brokers.run().stopped == ()
    assert split_values(two) == (former, new)


# The source, in other circumstances


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


# The destination


def recreated_while_nothing_comes(brokers: TwoBrokers, control: Watched) -> RunningTask:
    """Copy five records; exchange the destination topic; let five more come."""
    (history,) = brokers.topic()
    history.named("old", 5)
    running = brokers.start(brokers.open_ranges(), control)
    wait_until(lambda: len(values(brokers)) == 5)
    recreate(brokers.destination)
    noticed_from = time.monotonic() + 1.5 * PAUSE_S
    wait_until(lambda: time.monotonic() > noticed_from)
    history.named("old", 5, first=5)
    return running


def test_recreated_destination_topic_stops_the_partition_and_stays_empty(two: TwoBrokers) -> None:
    control = Watched()
    running = recreated_while_nothing_comes(two, control)
    (stopped,) = running.result().stopped
    assert stopped.cause is IncidentKind.DESTINATION_LOSS
    assert values(two) == []
    assert kinds(control) == ["destination-loss"]


def test_recreated_destination_topic_is_filled_again_if_allowed(two: TwoBrokers) -> None:
    control = Watched()
    running = recreated_while_nothing_comes(two.going_on(IncidentKind.DESTINATION_LOSS), control)
    wait_until(lambda: len(values(two)) >= 10)
    control.request_stop()
    assert running.result().stopped == ()
    assert values(two) == numbered(b"old", 10)
    assert kinds(control) == ["destination-loss"]


def test_request_in_flight_is_not_appended_to_a_recreated_destination_topic() -> None:
    with TwoBrokers.started() as brokers:
        brokers.topic()[0].named("old", 5)
        held = Held(brokers.destination, ApiKey.PRODUCE)
        running = brokers.going_on(IncidentKind.DESTINATION_LOSS).start()
        held.wait_for_one()
        recreate(brokers.destination)
        held.release()
        assert running.result().stopped == ()
        assert values(brokers) == numbered(b"old", 5)


@pytest.fixture
def by_name(brokers: TwoBrokers) -> TwoBrokers:
    """Brokers of which the destination lists topics by name, so that it takes requests for a former topic."""
    list_by_name(brokers.destination)
    return brokers


def landing_in_a_recreated_destination_topic(
    brokers: TwoBrokers, history: History, control: Watched
) -> RunningTask:
    """Copy five records; exchange the destination topic while a request has the sixth."""
    history.named("old", 5)
    brokers.run()
    held = Held(brokers.destination, ApiKey.PRODUCE)
    history.named("old", 1, first=5)
    running = brokers.start(brokers.open_ranges(), control)
    held.wait_for_one()
    recreate(brokers.destination)
    held.release()
    wait_until(lambda: bool(kinds(control)))
    assert values(brokers) == [b"old 5"]
    return running


def test_request_that_lands_in_a_recreated_destination_topic_stops_the_partition(
    by_name: TwoBrokers, history: History
) -> None:
    running = landing_in_a_recreated_destination_topic(by_name, history, Watched())
    (stopped,) = running.result().stopped
    assert (stopped.cause, stopped.unmirrored_from) == (IncidentKind.DESTINATION_LOSS, 0)


def test_records_before_a_request_that_lands_in_a_recreated_destination_topic_are_counted_as_lost(
    by_name: TwoBrokers, history: History
) -> None:
    control = Watched()
    going = by_name.going_on(IncidentKind.DESTINATION_LOSS)
    running = landing_in_a_recreated_destination_topic(going, history, control)
    history.named("old", 4, first=6)
    wait_until(lambda: not running.is_running or len(values(going)) == 5)
    control.request_stop()
    assert running.result().stopped == ()
    assert values(going) == numbered(b"old", 10)[5:]
    assert losses(control) == [("destination-loss", 5)]


# Errors about topic ids
