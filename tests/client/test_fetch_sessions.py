"""What a fetcher asks for in a session (KIP-227), and what it does without one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from shoal.broker import Broker
from shoal.broker.call import Call
from shoal.broker.state import BrokerState
from shoal.client import fetch
from shoal.client.cluster import Cluster
from shoal.client.config import IsolationLevel
from shoal.client.fetch import Fetcher, FetchFrom
from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchedPartition, FetchResponse
from shoal.topic_partition import TopicPartition
from tests.two_brokers import History, answers, begin_at

pytestmark = pytest.mark.timeout(30)

FIRST, SECOND, THIRD = (TopicPartition("topic", number) for number in range(3))
OTHER = TopicPartition("other", 0)
MIB = 1024 * 1024


@dataclass
class Asked:
    """What a Fetch request listed."""

    session_id: int
    epoch: int
    listed: list[tuple[TopicPartition, int]]
    forgotten: list[TopicPartition]
    max_bytes: dict[TopicPartition, int] = field(repr=False)

    @property
    def partitions(self) -> list[TopicPartition]:
        return [partition for partition, _ in self.listed]


def read(request: Any) -> Asked:
    entries = [
        (TopicPartition(topic.topic, each.partition), each)
        for topic in request.topics
        for each in topic.partitions
    ]
    return Asked(
        request.session_id,
        request.session_epoch,
        [(partition, each.fetch_offset) for partition, each in entries],
        [
            TopicPartition(topic.topic, number)
            for topic in request.forgotten_topics_data
            for number in topic.partitions
        ],
        {partition: each.partition_max_bytes for partition, each in entries},
    )


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("topic", 3)
        running.create_topic("other")
        yield running


@pytest.fixture
def asked(broker: Broker) -> list[Asked]:
    """The requests that reach the broker."""
    seen: list[Asked] = []
    before = broker.apis[ApiKey.FETCH]

    def handle(broker: BrokerState, call: Call, request: Any) -> Any:
        seen.append(read(request))
        return before.handle(broker, call, request)

    broker.apis = {**broker.apis, ApiKey.FETCH: replace(before, handle=handle)}
    return seen


NewFetcher = Callable[..., Fetcher]


@pytest.fixture
def new_fetcher(broker: Broker, cluster: Cluster) -> Iterator[NewFetcher]:
    opened: list[Fetcher] = []

    def new(buffer_bytes: int = 4 * MIB, **options: Any) -> Fetcher:
        fetcher = Fetcher(
            cluster.connect(broker.node_id),
            buffer_bytes=buffer_bytes,
            isolation_level=IsolationLevel.READ_COMMITTED,
            max_wait_ms=10,
            **options,
        )
        opened.append(fetcher)
        return fetcher

    yield new
    for each in opened:
        each.close()


@pytest.fixture
def fetcher(new_fetcher: NewFetcher) -> Fetcher:
    return new_fetcher()


def turn(fetcher: Fetcher, *wanted: FetchFrom) -> dict[TopicPartition, FetchedPartition]:
    """Ask for partitions, and return the parts of the answer."""
    for each in wanted:
        fetcher.ask(each)
    assert fetcher.send()
    response = fetcher.receive()
    assert response.error_code == ErrorCode.NONE
    return {TopicPartition(each.topic, each.partition): each for each in response.partitions}


def history(broker: Broker, partition: TopicPartition, *counts: int) -> History:
    return History(broker.log(*partition)).plain(*counts)


def is_full(request: Asked) -> bool:
    return request.epoch <= 0


# What is listed


def test_a_request_lists_what_changed(fetcher: Fetcher, broker: Broker, asked: list[Asked]) -> None:
    everything = [FetchFrom(each, 0) for each in (FIRST, SECOND, OTHER)]
    assert turn(fetcher, *everything).keys() == {FIRST, SECOND, OTHER}
    assert turn(fetcher) == {}
    history(broker, SECOND, 2)
    assert turn(fetcher).keys() == {SECOND}
    assert turn(fetcher, FetchFrom(SECOND, 2)) == {}
    fetcher.forget(FIRST)
    history(broker, FIRST, 2)
    assert turn(fetcher, FetchFrom(THIRD, 0)).keys() == {THIRD}
    (session_id,) = {each.session_id for each in asked[1:]}
    assert session_id > 0
    assert [(each.epoch, each.listed, each.forgotten) for each in asked] == [
        (0, [(FIRST, 0), (SECOND, 0), (OTHER, 0)], []),
        (1, [], []),
        (2, [], []),
        (3, [(SECOND, 2)], []),
        (4, [(THIRD, 0)], [FIRST]),
    ]


def test_what_is_asked_for_as_before_is_not_listed(fetcher: Fetcher, asked: list[Asked]) -> None:
    turn(fetcher, FetchFrom(FIRST, 0), FetchFrom(SECOND, 0))
    turn(fetcher, FetchFrom(FIRST, 0, known_end=0))
    fetcher.forget(OTHER)
    turn(fetcher)
    fetcher.forget(SECOND)
    turn(fetcher, FetchFrom(SECOND, 0))
    assert [(each.listed, each.forgotten) for each in asked[1:]] == [([], [])] * 3


def test_another_leader_epoch_is_a_change(fetcher: Fetcher, asked: list[Asked]) -> None:
    turn(fetcher, FetchFrom(FIRST, 0))
    found = turn(fetcher, FetchFrom(FIRST, 0, leader_epoch=3))
    assert found[FIRST].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_where_nothing_is_wanted_nothing_is_sent(fetcher: Fetcher, asked: list[Asked]) -> None:
    assert not fetcher.send()
    turn(fetcher, FetchFrom(FIRST, 0))
    fetcher.forget(FIRST)
    assert not fetcher.send()
    assert not fetcher.is_waiting
    turn(fetcher, FetchFrom(SECOND, 0))
    assert [is_full(each) for each in asked] == [True, True]


def test_what_is_wanted_is_what_the_last_request_asked_for(fetcher: Fetcher) -> None:
    fetcher.ask(FetchFrom(FIRST, 0))
    assert dict(fetcher.wanted) == {}
    turn(fetcher)
    fetcher.ask(FetchFrom(SECOND, 1))
    fetcher.forget(FIRST)
    assert dict(fetcher.wanted) == {FIRST: FetchFrom(FIRST, 0)}
    turn(fetcher)
    assert dict(fetcher.wanted) == {SECOND: FetchFrom(SECOND, 1)}


# Full requests


def test_a_full_request_begins_with_who_was_left_out_the_longest(
    new_fetcher: NewFetcher, broker: Broker, asked: list[Asked]
) -> None:
    for partition in (SECOND, THIRD):
        history(broker, partition, 50, 50)
    fetcher = new_fetcher(buffer_bytes=65_536 + 100)
    found = turn(fetcher, *[FetchFrom(each, 0) for each in (FIRST, SECOND, THIRD)])
    assert [each for each in found if len(found[each].record_set)] == [SECOND]
    assert fetcher.first_of_full == FIRST
    fetcher.start_over()
    turn(fetcher, FetchFrom(SECOND, 50))
    assert asked[-1].partitions == [THIRD, SECOND, FIRST]
    assert fetcher.first_of_full == THIRD
    turn(fetcher)
    assert fetcher.first_of_full is None


def test_a_full_request_can_be_made_to_begin_with_a_partition(fetcher: Fetcher, asked: list[Asked]) -> None:
    turn(fetcher, *[FetchFrom(each, 0) for each in (FIRST, SECOND, THIRD)])
    fetcher.start_over(THIRD)
    turn(fetcher)
    fetcher.start_over(OTHER)  # which nobody asked for
    turn(fetcher)
    assert [each.partitions for each in asked[1:]] == [[THIRD, FIRST, SECOND], [FIRST, SECOND, THIRD]]


def test_starting_over_closes_the_session(fetcher: Fetcher, broker: Broker, asked: list[Asked]) -> None:
    turn(fetcher, FetchFrom(FIRST, 0))
    turn(fetcher)
    fetcher.start_over()
    turn(fetcher)
    turn(fetcher)
    assert asked[2].session_id == asked[1].session_id != asked[3].session_id
    assert len(broker.fetch_sessions) == 1


def test_closing_closes_the_session(fetcher: Fetcher, broker: Broker) -> None:
    turn(fetcher, FetchFrom(FIRST, 0))
    assert len(broker.fetch_sessions) == 1
    fetcher.close()
    broker.stop()  # all that was sent is served then
    assert len(broker.fetch_sessions) == 0


# Without a session


@pytest.fixture(params=["no room", "an old broker", "not wanted"])
def without_session(
    request: pytest.FixtureRequest, new_fetcher: NewFetcher, broker: Broker, asked: list[Asked]
) -> Fetcher:
    if request.param == "no room":
        broker.fetch_sessions.slots = 0
    elif request.param == "an old broker":
        api = broker.apis[ApiKey.FETCH]
        broker.apis = {**broker.apis, ApiKey.FETCH: replace(api, newest=6)}
    return new_fetcher(in_session=request.param != "not wanted")


def test_without_a_session_every_request_is_full(
    without_session: Fetcher, broker: Broker, asked: list[Asked]
) -> None:
    history(broker, FIRST, 2)
    for offset in (0, 2, 2):
        found = turn(without_session, *[FetchFrom(FIRST, offset), FetchFrom(SECOND, 0)][: 2 - (offset > 0)])
        assert found.keys() == {FIRST, SECOND}
    assert [each.listed for each in asked[1:]] == [[(SECOND, 0), (FIRST, 2)]] * 2
    assert without_session.first_of_full == SECOND


def test_a_session_begins_when_there_is_room(fetcher: Fetcher, broker: Broker, asked: list[Asked]) -> None:
    broker.fetch_sessions.slots = 0
    turn(fetcher, FetchFrom(FIRST, 0))
    turn(fetcher)
    broker.fetch_sessions.slots = 1
    turn(fetcher)
    turn(fetcher)
    assert [is_full(each) for each in asked] == [True, True, True, False]


# Sessions that end


def test_a_session_that_the_broker_forgot_is_begun_again(
    fetcher: Fetcher, broker: Broker, asked: list[Asked]
) -> None:
    history(broker, FIRST, 2)
    turn(fetcher, FetchFrom(FIRST, 0), FetchFrom(SECOND, 0))
    broker.fetch_sessions.forget_all()
    assert turn(fetcher, FetchFrom(FIRST, 2)) == {}
    assert fetcher.first_of_full is None
    assert turn(fetcher).keys() == {FIRST, SECOND}
    assert (asked[-1].session_id, asked[-1].epoch) == (0, 0)
    assert asked[-1].listed == [(SECOND, 0), (FIRST, 2)]


def test_an_epoch_that_the_broker_does_not_expect_begins_a_session_again(
    fetcher: Fetcher, broker: Broker, asked: list[Asked]
) -> None:
    turn(fetcher, FetchFrom(FIRST, 0))
    error = FetchResponse(0, ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, ())
    answers(broker, ApiKey.FETCH, lambda _: error)
    assert turn(fetcher) == {}
    assert turn(fetcher).keys() == {FIRST}
    assert len(broker.fetch_sessions) == 1


@pytest.mark.parametrize(
    "code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
)
def test_a_session_error_where_there_was_none_is_an_error(
    fetcher: Fetcher, broker: Broker, code: ErrorCode
) -> None:
    answers(broker, ApiKey.FETCH, lambda _: FetchResponse(0, code, 0, ()))
    fetcher.ask(FetchFrom(FIRST, 0))
    fetcher.send()
    assert fetcher.receive().error_code == code


def without_partitions(response: FetchResponse) -> FetchResponse:
    return replace(response, partitions=())


def for_others_too(response: FetchResponse) -> FetchResponse:
    more = [replace(each, topic="unknown", partition=9) for each in response.partitions]
    return replace(response, partitions=[*response.partitions, *more])


@pytest.mark.parametrize("change", [without_partitions, for_others_too])
def test_who_answers_for_other_partitions_than_were_asked_for_is_asked_in_full_again(
    fetcher: Fetcher, broker: Broker, asked: list[Asked], change: Callable[[FetchResponse], FetchResponse]
) -> None:
    answers(broker, ApiKey.FETCH, change)
    turn(fetcher, FetchFrom(FIRST, 0), FetchFrom(SECOND, 0))
    assert turn(fetcher).keys() == {FIRST, SECOND}
    turn(fetcher)
    assert [is_full(each) for each in asked] == [True, True, False]
    assert len(broker.fetch_sessions) == 1


@pytest.mark.parametrize("session_id", [0, -5, 4711])
def test_an_answer_of_another_session_ends_this_one(
    fetcher: Fetcher, broker: Broker, asked: list[Asked], session_id: int
) -> None:
    turn(fetcher, FetchFrom(FIRST, 0))
    answers(broker, ApiKey.FETCH, lambda response: replace(response, session_id=session_id))
    turn(fetcher)
    turn(fetcher)
    assert [is_full(each) for each in asked] == [True, False, True]


def test_a_negative_session_id_is_none(fetcher: Fetcher, broker: Broker, asked: list[Asked]) -> None:
    answers(broker, ApiKey.FETCH, lambda response: replace(response, session_id=-5), times=2)
    for _ in range(2):
        turn(fetcher, FetchFrom(FIRST, 0))
    assert [(each.session_id, each.epoch) for each in asked] == [(0, 0), (0, 0)]


# An answer that has nothing of a partition proves nothing


def silent(response: FetchResponse) -> FetchResponse:
    """Leave out all that has records."""
    return replace(response, partitions=[each for each in response.partitions if not each.record_set])


def test_an_answer_with_nothing_where_there_should_be_something_leads_to_a_full_request(
    fetcher: Fetcher, broker: Broker, asked: list[Asked]
) -> None:
    partly = history(broker, SECOND, 2)
    turn(fetcher, *[FetchFrom(each, 0) for each in (FIRST, SECOND)])
    partly.plain(2)
    answers(broker, ApiKey.FETCH, silent)
    assert turn(fetcher, FetchFrom(SECOND, 2)) == {}
    assert [is_full(each) for each in asked] == [True, False], "its end was 2"
    partly.plain(2)
    turn(fetcher)  # its end is 6, and it is not asked for anew
    answers(broker, ApiKey.FETCH, silent)
    turn(fetcher)
    turn(fetcher)
    assert [is_full(each) for each in asked[2:]] == [False, False, True]
    assert asked[-1].partitions == [SECOND, FIRST]
    assert fetcher.first_of_full == SECOND


def test_a_known_end_counts_like_one_that_the_broker_told(fetcher: Fetcher, asked: list[Asked]) -> None:
    turn(fetcher, FetchFrom(FIRST, 0), FetchFrom(SECOND, 0, known_end=3))
    turn(fetcher)
    turn(fetcher)
    assert [is_full(each) for each in asked] == [True, False, True]
    assert asked[-1].partitions == [SECOND, FIRST]


def test_nothing_under_a_quota_says_nothing(fetcher: Fetcher, broker: Broker, asked: list[Asked]) -> None:
    turn(fetcher, FetchFrom(FIRST, 0, known_end=3))
    answers(broker, ApiKey.FETCH, lambda response: replace(response, throttle_time_ms=1), times=3)
    for _ in range(4):
        turn(fetcher)
    assert [is_full(each) for each in asked] == [True, False, False, False, False]


def test_an_end_that_is_reached_is_no_reason_to_ask_in_full(
    fetcher: Fetcher, broker: Broker, asked: list[Asked]
) -> None:
    history(broker, FIRST, 2)
    begin_at(broker.log(*SECOND), 5)
    turn(fetcher, FetchFrom(FIRST, 0), FetchFrom(SECOND, 5), FetchFrom(THIRD, 0))
    turn(fetcher, FetchFrom(FIRST, 2))
    for _ in range(3):
        turn(fetcher)
    assert [is_full(each) for each in asked] == [True] + [False] * 4


def test_who_is_left_out_for_long_while_others_get_something_is_asked_for_first(
    fetcher: Fetcher, broker: Broker, asked: list[Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "_LONGEST_LEFT_OUT_S", 0.0)
    busy = history(broker, FIRST, 1)
    turn(fetcher, FetchFrom(FIRST, 0), FetchFrom(SECOND, 0, known_end=9))
    for offset in (1, 2):
        busy.plain(1)
        assert len(turn(fetcher, FetchFrom(FIRST, offset))[FIRST].record_set)
    assert [is_full(each) for each in asked] == [True, False, True]
    assert asked[-1].partitions == [SECOND, FIRST]


# Who gets how much


def test_who_has_something_shares_a_response_with_nobody_who_has_not(
    new_fetcher: NewFetcher, broker: Broker, asked: list[Asked]
) -> None:
    fetcher = new_fetcher(buffer_bytes=8 * MIB)
    all_of_it = 8 * MIB - 65_536
    busy = history(broker, FIRST, 1)
    turn(fetcher, *[FetchFrom(each, 0) for each in (FIRST, SECOND, THIRD, OTHER)])
    assert set(asked[-1].max_bytes.values()) == {all_of_it // 4}
    busy.plain(1)
    turn(fetcher, FetchFrom(FIRST, 1))
    assert asked[-1].max_bytes == {FIRST: all_of_it}


@pytest.mark.parametrize(("busy_for_s", "share"), [(60.0, 2), (0.0, 1)])
def test_who_had_something_lately_is_supposed_to_have_more_soon(
    new_fetcher: NewFetcher,
    broker: Broker,
    asked: list[Asked],
    monkeypatch: pytest.MonkeyPatch,
    busy_for_s: float,
    share: int,
) -> None:
    monkeypatch.setattr(fetch, "_BUSY_FOR_S", busy_for_s)
    fetcher = new_fetcher(buffer_bytes=8 * MIB)
    for partition in (FIRST, SECOND):
        history(broker, partition, 1)
    turn(fetcher, *[FetchFrom(each, 0) for each in (FIRST, SECOND, THIRD, OTHER)])
    turn(fetcher, FetchFrom(FIRST, 1), FetchFrom(SECOND, 1))
    assert set(asked[-1].max_bytes.values()) == {(8 * MIB - 65_536) // share}


def test_nobody_gets_less_than_a_batch_of_the_usual_size(new_fetcher: NewFetcher, asked: list[Asked]) -> None:
    turn(new_fetcher(buffer_bytes=2 * MIB), *[FetchFrom(each, 0) for each in (FIRST, SECOND, THIRD)])
    assert min(asked[-1].max_bytes.values()) > MIB


def test_a_request_can_wait_for_less_time_than_usual(new_fetcher: NewFetcher, broker: Broker) -> None:
    waits: list[int] = []
    before = broker.apis[ApiKey.FETCH]

    def handle(broker: BrokerState, call: Call, request: Any) -> Any:
        waits.append(request.max_wait_ms)
        return before.handle(broker, call, request)

    broker.apis = {**broker.apis, ApiKey.FETCH: replace(before, handle=handle)}
    fetcher = new_fetcher()
    fetcher.ask(FetchFrom(FIRST, 0))
    for at_most_ms in (3.9, 0, 20, math.inf):
        fetcher.send(at_most_ms)
        fetcher.receive()
    assert waits == [3, 0, 10, 10]
