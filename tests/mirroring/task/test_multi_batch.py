"""Several batches of a partition in a request: the task sends them so, and loses or doubles none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.error_codes import ErrorCode
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.task import progress
from shoal.protocol.apis import ApiKey
from shoal.records import split
from shoal.topic_partition import TopicPartition
from tests.sent_requests import SentRequests
from tests.world import batches
from tests.world.clusters import TwoBrokers
from tests.world.contents import batches_of
from tests.world.control import Watched
from tests.world.faults import before_request, let_pass
from tests.world.history import History

#: Probes before the first request with several batches; a request with one batch or more precedes it too.
QUESTIONS = 2


@pytest.fixture
def brokers() -> Iterator[TwoBrokers]:
    with TwoBrokers.started(multi_batch=True) as started:
        yield started


class Sent:
    """The requests that tasks sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._recorded = SentRequests(monkeypatch)

    def forget(self) -> None:
        """Forget the requests so far."""
        self._recorded.requests.clear()

    @property
    def requests(self) -> list[tuple[dict[TopicPartition, int], bool]]:
        """For each request the number of batches by partition, and if its client id was marked."""
        return [
            ({each: len(list(split(data))) for each, data in found.items()}, request.is_marked)
            for found, request in zip(self.bytes, self._recorded.requests, strict=True)
        ]

    @property
    def bytes(self) -> list[dict[TopicPartition, memoryview]]:
        """For each request the bytes by partition."""
        return [
            {each: memoryview(b"".join(views)) for each, views in request.batches.items()}
            for request in self._recorded.requests
        ]

    def counts(self, topic: str = "topic", partition: int = 0) -> list[int]:
        """Return the number of batches of a partition in each request that had any."""
        wanted = TopicPartition(topic, partition)
        return [counts[wanted] for counts, _ in self.requests if wanted in counts]

    def is_marked(self, topic: str) -> set[bool]:
        return {marked for counts, marked in self.requests for each in counts if each.topic == topic}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    return Sent(monkeypatch)


# Requests with several batches


def test_partitions_share_a_request_and_do_not_wait_for_a_large_one(
    brokers: TwoBrokers, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "TOGETHER_BYTES", 1_000)
    histories = brokers.topic("topic", 3)
    histories[0].plain(*[1] * 60)
    histories[1].plain(*[1] * 5)
    histories[2].plain(*[1] * 5)
    brokers.run()
    brokers.assert_exact(*histories)
    assert len(sent.requests[0][0]) == 3  # the first request has some of each
    assert max(map(sum, (sent.counts(partition=number) for number in (1, 2)))) == 5
    assert 5 <= max(sent.counts(partition=0)) <= 15


def test_partitions_behind_foreign_records_send_one_batch_in_each_request(
    brokers: TwoBrokers, sent: Sent
) -> None:
    brokers = brokers.going_on(IncidentKind.FOREIGN_RECORDS)
    histories = {name: brokers.topic(name)[0] for name in ("plain", "foreign")}
    for history in histories.values():
        history.plain(1)
    brokers.run(brokers.ranges(*histories))
    log = brokers.destination.log("foreign")
    log.store(memoryview(batches.batch(2, base_offset=log.log_end_offset)))
    for _ in range(2):  # the second task finds the foreign records in the position
        for history in histories.values():
            history.plain(*[1] * 6)
        sent.forget()
        assert brokers.run(brokers.ranges(*histories)).complete
        assert sum(sent.counts("plain")) == sum(sent.counts("foreign")) == 6
        assert max(sent.counts("foreign")) == 1
    assert sent.is_marked("foreign") == {False}
    brokers.assert_exact(histories["plain"], topic="plain")
    foreign = brokers.copied("foreign")
    assert foreign[:1] + foreign[3:] == histories["foreign"].committed


# Refusals


def test_broker_that_no_longer_accepts_several_batches_receives_one_at_a_time(
    brokers: TwoBrokers, history: History, sent: Sent
) -> None:
    """Only an embedded broker can lose its agent without a restart."""
    history.plain(*[1] * 30)

    def lose_the_agent() -> None:
        brokers.destination.config["shoal.multi.batch.produce"] = "false"

    before_request(brokers.destination, ApiKey.PRODUCE, lose_the_agent, QUESTIONS + 1)
    control = Watched()
    assert brokers.run(control=control).complete
    assert sent.counts()[0] > 1
    assert set(sent.counts()[1:]) == {1}
    brokers.assert_exact(history)
    assert any("at once" in each for each in control.waited_for)


def test_batches_that_are_together_larger_than_a_segment_go_by_halves(
    brokers: TwoBrokers, history: History, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.plain(*[1] * 40)
    total = sum(each.header.size for each in batches_of(history.log))
    monkeypatch.setattr(progress, "TOGETHER_BYTES", total)  # all of it at first
    let_pass(brokers.destination, ApiKey.PRODUCE, QUESTIONS)
    brokers.destination.faults.add(ApiKey.PRODUCE, error=ErrorCode.RECORD_LIST_TOO_LARGE)
    assert brokers.run().complete
    assert sent.counts()[0] == 40
    assert max(sent.counts()[1:]) <= 20
    assert len(sent.counts()) <= 4
    brokers.assert_exact(history)
