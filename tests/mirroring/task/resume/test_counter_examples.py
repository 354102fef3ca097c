"""
Play failures of the resume protocol's model without one of its rules to the real code.

The traces are in ``tests/model/test_copy_path.py``. A late request has the very bytes
that a task sent. It did not arrive then, and arrives when the test delivers it.
Every trace is played to both senders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shoal.error_codes import ErrorCode
from shoal.mirroring.model.incidents import IncidentKind
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from tests.native_path import SENDERS, send_by
from tests.world.batches import Content
from tests.world.clusters import TwoBrokers, die_after
from tests.world.contents import batches_of
from tests.world.faults import answers, before_each_request, let_pass
from tests.world.history import NOW_MS, History
from tests.world.late_requests import Requests, arrive
from tests.world.logs import lagging, lose_tail
from tests.world.waiting import wait_until

DAY_MS = 86_400_000
OLD_MS = NOW_MS - 30 * DAY_MS

#: More checks of the lease than any task here needs.
LATER_THAN_ALL = 30

ages = pytest.mark.parametrize("timestamp", [NOW_MS, OLD_MS], ids=["young", "old"])


@pytest.fixture(params=SENDERS, autouse=True)
def requests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Requests:
    send_by(request.param, monkeypatch)
    return Requests(monkeypatch)


def crash(brokers: TwoBrokers, requests: Requests, after: int = 0) -> list[bytes]:
    """Run a task that dies after so many acknowledgements; return the requests that did not arrive."""
    requests.sent.clear()
    die_after(brokers, after, times=None)
    left_behind = requests.sent[after:]
    assert left_behind
    return left_behind


def forget_producers(brokers: TwoBrokers) -> None:
    brokers.destination.log("topic").forget_expired_producers(NOW_MS, DAY_MS)


def forget_before_each_request(broker: Broker) -> None:
    """Let a broker forget its expired producers at the worst moments."""

    def forget(request: object) -> None:
        for log in broker.topics.topic("topic").logs:
            log.forget_expired_producers(NOW_MS, DAY_MS)

    before_each_request(broker, ApiKey.PRODUCE, forget)


def run_and_let_arrive(
    brokers: TwoBrokers, requests: Requests, left_behind: Sequence[bytes], at_check: int
) -> bool:
    """Run a task, and deliver requests at a certain check of its lease; return whether it came to that."""
    arrived = []
    control = requests.acting(at_check, lambda: arrived.append(arrive(brokers.destination, *left_behind)))
    result = brokers.start(control=control).result()
    assert result.stopped == ()
    assert result.complete
    return bool(arrived)


# remembers, a new identity; remembers, no first position


@ages
@pytest.mark.parametrize("acknowledged", [0, 2])
@pytest.mark.parametrize("at_check", [0, 1, 2, 3, 5, LATER_THAN_ALL])
def test_late_request_of_a_dead_task_at_any_moment_of_the_next_one_doubles_nothing(
    brokers: TwoBrokers,
    history: History,
    requests: Requests,
    timestamp: int,
    acknowledged: int,
    at_check: int,
) -> None:
    history.base_timestamp = timestamp
    history.plain(1, 2, 1, 3)
    left_behind = crash(brokers, requests, acknowledged)
    if not run_and_let_arrive(brokers, requests, left_behind, at_check):
        arrive(brokers.destination, *left_behind)
    brokers.assert_exact(history)
    history.plain(1)
    assert brokers.run().complete
    brokers.assert_exact(history)


def test_lease_is_checked_at_each_moment_of_a_late_request(
    brokers: TwoBrokers, history: History, requests: Requests
) -> None:
    history.plain(1, 2, 1, 3)
    assert run_and_let_arrive(brokers, requests, crash(brokers, requests), at_check=5)


# remembers, the first not alone


@ages
@pytest.mark.parametrize("acknowledged", [0, 1])
def test_first_request_after_an_alignment_is_in_flight_alone(
    brokers: TwoBrokers, history: History, requests: Requests, timestamp: int, acknowledged: int
) -> None:
    history.base_timestamp = timestamp
    history.plain(1, 1, 1, 1)
    if acknowledged:
        crash(brokers, requests, acknowledged)
        forget_producers(brokers)
    requests.sent.clear()
    seen: list[int] = []
    brokers.destination.faults.add(ApiKey.PRODUCE, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def see(response: Any) -> Any:
        seen.append(len(requests.sent))
        return response

    answers(brokers.destination, ApiKey.PRODUCE, see, math.inf)
    assert brokers.run().complete
    brokers.assert_exact(history)
    assert seen[0] == 1


@pytest.mark.parametrize("forgets", [False, True])
def test_first_request_after_a_later_alignment_is_in_flight_alone(
    brokers: TwoBrokers, history: History, requests: Requests, forgets: bool
) -> None:
    """The same task has sent several at a time, and its partition lost track."""
    history.plain(*[1] * 12)
    seen: list[int] = []
    log = brokers.destination.log("topic")

    def refuse_the_first(request: object) -> None:
        if log.log_end_offset == 5 and not seen:
            requests.sent.clear()
            seen.append(0)
            if forgets:
                log.forget_expired_producers(NOW_MS + 10 * DAY_MS, DAY_MS)
            brokers.destination.faults.add(ApiKey.PRODUCE, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def see(response: Any) -> Any:
        if seen == [0]:
            seen[0] = len(requests.sent)
        return response

    let_pass(brokers.destination, ApiKey.PRODUCE, 5)
    brokers.destination.faults.add(ApiKey.PRODUCE, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    before_each_request(brokers.destination, ApiKey.LIST_OFFSETS, refuse_the_first)
    answers(brokers.destination, ApiKey.PRODUCE, see, math.inf)
    assert brokers.run().complete
    brokers.assert_exact(history)
    assert seen == [1]


# remembers, forgets and compares: ahead of the watermark


@ages
def test_task_is_not_done_at_a_log_end_that_an_election_takes_back(
    brokers: TwoBrokers, history: History, requests: Requests, timestamp: int
) -> None:
    history.base_timestamp = timestamp
    history.plain(1, 2)
    let_pass(brokers.destination, ApiKey.PRODUCE, 1)
    # Written, but the follower has it not, and the answer is lost.
    brokers.destination.faults.add(ApiKey.PRODUCE, drop="after")
    control = requests.acting(3, lambda: lagging(brokers.destination, "topic", high_watermark=1))
    running = brokers.start(control=control)
    wait_until(lambda: len(control.waits) > 3)
    assert running.is_running
    assert brokers.destination.log("topic").log_end_offset == 3
    lose_tail(brokers.destination, "topic", 1)
    assert running.result().complete
    brokers.assert_exact(history)


# forgets: two in flight, sent again


def test_request_is_in_flight_alone_if_the_broker_may_forget_its_producer(
    brokers: TwoBrokers, history: History
) -> None:
    history.base_timestamp = OLD_MS
    history.plain(1, 1, 1)
    forget_before_each_request(brokers.destination)
    let_pass(brokers.destination, ApiKey.PRODUCE, 1)
    brokers.destination.faults.add(ApiKey.PRODUCE, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert brokers.run().complete
    brokers.assert_exact(history)
    assert [each.header.base_sequence for each in batches_of(brokers.destination.log("topic"))] == [0, 1, 2]


# forgets, a zombie: a late request that cannot be prevented is found


def doubled(history: History, *indexes: int) -> list[Content]:
    return [history.committed[index] for index in indexes]


def zombie_after(brokers: TwoBrokers, left_behind: bytes) -> Callable[[], None]:
    def act() -> None:
        forget_producers(brokers)
        assert arrive(brokers.destination, left_behind) == [ErrorCode.NONE]

    return act


def test_request_of_a_forgotten_producer_shows_as_a_foreign_record(
    brokers: TwoBrokers, history: History, requests: Requests
) -> None:
    history.base_timestamp = OLD_MS
    history.plain(1, 1, 1)
    left_behind, *_ = crash(brokers, requests)
    # At the check before the second request: the first is acknowledged.
    control = requests.acting(3, zombie_after(brokers, left_behind))
    (stopped,) = brokers.start(control=control).result().stopped
    assert stopped.cause is IncidentKind.FOREIGN_RECORDS
    assert brokers.copied() == doubled(history, 0, 0, 1)
    # No task continues behind it unnoticed, even if the broker would take the next request.
    forget_before_each_request(brokers.destination)
    (stopped,) = brokers.start().result().stopped
    assert stopped.cause is IncidentKind.FOREIGN_RECORDS
    assert brokers.copied() == doubled(history, 0, 0, 1)


# KEEP, with LEADER and behind an incident


def run_of_the_first(
    brokers: TwoBrokers, requests: Requests, left_behind: Sequence[bytes], at_check: int
) -> None:
    """Copy the first record alone, so that what arrives late has another end."""
    (whole,) = brokers.ranges()
    control = requests.acting(at_check, lambda: arrive(brokers.destination, *left_behind))
    brokers.start([whole._replace(end_offset=1)], control=control).result()


@pytest.mark.parametrize("at_check", [0, 1, 2, 3])
def test_late_batch_with_a_gap_is_known_behind_an_election_of_an_old_source(
    brokers: TwoBrokers, history: History, requests: Requests, at_check: int
) -> None:
    """They have the epoch of the leader that sent them: the map leads to the same records."""
    made = [Content(NOW_MS, b"k", b"a"), Content(NOW_MS, b"k", b"c")]
    history.messages(made, 1, offsets=[0, 2])
    left_behind = crash(brokers, requests)
    log = brokers.source.log("topic")
    log.begin_leader_epoch(log.leader_epoch + 1)
    run_of_the_first(brokers, requests, left_behind, at_check)
    assert brokers.run().complete
    assert [each.value for each in brokers.copied()] == [b"a", b"c"]


@pytest.mark.parametrize("at_check", [0, 1, 2, 3])
def test_late_batch_with_a_gap_is_known_behind_foreign_records(
    brokers: TwoBrokers, history: History, requests: Requests, at_check: int
) -> None:
    history.holed(3, [1])
    left_behind = crash(brokers, requests)
    History(brokers.destination.log("topic")).named("foreign", 1)
    going_on = brokers.going_on(IncidentKind.FOREIGN_RECORDS)
    run_of_the_first(going_on, requests, left_behind, at_check)
    going_on.run()
    own = [each.value for each in brokers.copied() if b"foreign" not in (each.value or b"")]
    assert own == [each.value for each in history.committed]
