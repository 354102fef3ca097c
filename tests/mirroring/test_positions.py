"""How long the source keeps the positions of a mirror that does not run."""

from __future__ import annotations

import pytest

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets, fetch_offsets
from shoal.client.coordinator import MemberId
from shoal.error_codes import ErrorCode
from shoal.errors import Disconnected
from shoal.mirroring.model.first_start import FirstStart
from shoal.mirroring.model.offset_map import OffsetMap
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from shoal.mirroring.positions import GroupPositions
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from shoal_broker.clock import now_ms
from shoal_broker.coordination import groups
from tests.world.faults import offer

MIRRORED, MARKED = TopicPartition("topic", 0), TopicPartition("topic", 1)
#: With a milestone that a shortened map lacks.
OFFSETS = OffsetMap.begun_at(0, 0).reached(3, 2).reached(4, 4)
POSITION = MirrorPosition(5, 5, ProducerIdentity(1, 0), (0, 0), None, None, "rules", OFFSETS)
DAY_MS = 24 * 3_600_000


@pytest.fixture
def broker(broker: Broker) -> Broker:
    broker.create_topic("topic", partitions=2)
    return broker


def commit_all(cluster: Cluster) -> None:
    """Commit a position and a start mark of a mirror, and the offset of a consumer."""
    positions = GroupPositions(cluster, "mirror", MemberId)
    positions.mark_starts({MARKED: 0}, FirstStart(now_ms(), ()))
    assert positions.commit({MIRRORED: POSITION}) == {}
    assert commit_offsets(cluster, "reader", {MIRRORED: Committed(5, "")}, MemberId()) == {}


def pass_days(broker: Broker, days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    later = now_ms() + days * DAY_MS
    monkeypatch.setattr(groups, "now_ms", lambda: later)
    broker.forget_old_offsets()


@pytest.mark.parametrize(("oldest", "newest"), [(2, 9), (2, 2), (2, 3), (4, 9)])
def test_positions_stay_beyond_the_retention_of_the_broker(
    broker: Broker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, oldest: int, newest: int
) -> None:
    offer(broker, ApiKey.OFFSET_COMMIT, oldest=oldest, newest=newest)
    commit_all(cluster)
    pass_days(broker, 8, monkeypatch)
    assert fetch_offsets(cluster, "mirror", None).keys() == {MIRRORED, MARKED}
    assert fetch_offsets(cluster, "reader", None) == {}
    pass_days(broker, 9 * 365, monkeypatch)
    assert fetch_offsets(cluster, "mirror", None).keys() == {MIRRORED, MARKED}


def test_shortened_position_stays_beyond_the_retention_of_the_broker(
    broker: Broker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.OFFSET_METADATA_TOO_LARGE, partition=0, times=1)
    assert GroupPositions(cluster, "mirror", MemberId).commit({MIRRORED: POSITION}) == {}
    pass_days(broker, 8, monkeypatch)
    assert fetch_offsets(cluster, "mirror", None).keys() == {MIRRORED}


def test_commit_whose_second_request_is_refused_has_an_unknown_outcome(
    broker: Broker, cluster: Cluster
) -> None:
    """The first request has committed the other positions."""
    broker.faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.OFFSET_METADATA_TOO_LARGE, partition=0, times=1)
    broker.faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.ILLEGAL_GENERATION, times=1)
    with pytest.raises(Disconnected):
        GroupPositions(cluster, "mirror", MemberId).commit({MIRRORED: POSITION, MARKED: POSITION})
    assert fetch_offsets(cluster, "mirror", None).keys() == {MARKED}
