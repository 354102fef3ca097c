"""A mirror that goes back from a cut copies the records behind it once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.client.cluster import Cluster
from shoal.errors import ConfigError
from shoal.topic_partition import TopicPartition
from tests.group_member import GroupMember
from tests.world.clusters import TwoBrokers
from tests.world.history import History
from tests.world.logs import lagging
from tests.world.way_back import WayBack, started_way_back

TOPIC = TopicPartition("topic", 0)


@pytest.fixture
def way_back() -> Iterator[WayBack]:
    with started_way_back() as found:
        yield found


@pytest.fixture
def back(way_back: WayBack) -> TwoBrokers:
    """Return the reverse mirror with its first position."""
    assert way_back.begin() == [0]
    return way_back.two


def test_go_back_sees_writes_to_the_old_source_that_its_followers_lack(way_back: WayBack) -> None:
    end = way_back.two.destination.log("topic").log_end_offset
    History(lagging(way_back.two.destination, "topic", end)).plain(1)
    with pytest.raises(ConfigError, match="written"):
        way_back.begin()


def test_go_back_is_refused_while_the_mirror_of_the_cutover_runs(way_back: WayBack) -> None:
    """Both mirrors would copy each record in an endless loop."""
    group = way_back.certificate.mirror_group
    with Cluster(way_back.two.settings.destination) as cluster:
        member = GroupMember(cluster, group, protocol="shoal-1", instance_id="shoal-1")
        member.join([TOPIC])
        with pytest.raises(ConfigError, match=r"copies.*topic-0"):
            way_back.begin()
        member.join([TopicPartition("other", 0)])
        assert way_back.begin() == [0]


def test_go_back_leaves_out_topics_that_are_not_selected(way_back: WayBack) -> None:
    assert way_back.begin("(other)") == []
