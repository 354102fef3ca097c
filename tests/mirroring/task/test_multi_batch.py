"""Several batches of a partition in a request: the task sends them so, and loses or doubles none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.mirroring.model.incidents import IncidentKind
from shoal.records import split
from shoal.topic_partition import TopicPartition
from tests.sent_requests import SentRequests
from tests.world import batches
from tests.world.clusters import TwoBrokers


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
