"""A mirror and its groups, as two embedded brokers show them to a cut-over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from shoal.client.acls import AclBinding, AclOperation, PatternType, Resource
from shoal.client.cluster import Cluster
from shoal.mirroring.cutover import observing
from shoal.mirroring.cutover.observing import Observer
from shoal.mirroring.cutover.options import CutoverOptions
from shoal.mirroring.model.follow_options import GroupSelection
from shoal.mirroring.sync.acls import MissingAcls
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from shoal_broker.faults import Fault
from tests.world.clusters import TwoBrokers
from tests.world.history import History
from tests.world.logs import lagging


@contextmanager
def observed(brokers: TwoBrokers) -> Iterator[Observer]:
    mirror = brokers.options("topic", group=brokers.settings.group)
    options = CutoverOptions(mirror, GroupSelection(".*"), rehearse=True)
    with Cluster(brokers.settings.source) as source, Cluster(brokers.settings.destination) as destination:
        yield Observer(source, destination, options)


def counted(broker: Broker, *apis: ApiKey) -> dict[ApiKey, Fault]:
    """Count requests; nothing fails."""
    return {api: broker.faults.add(api, times=None) for api in apis}


def test_look_at_many_partitions_sends_one_request_of_a_kind_to_each_leader(brokers: TwoBrokers) -> None:
    brokers.topic("topic", 50)
    with observed(brokers) as observer:
        observer.partitions()
        requests = counted(
            brokers.source,
            ApiKey.METADATA,
            ApiKey.OFFSET_FETCH,
            ApiKey.LIST_OFFSETS,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
        )
        assert len(observer.partitions()) == 50
    # The high watermarks, the last stable offsets and the starts.
    assert [each.hits for each in requests.values()] == [1, 1, 3, 1]


def test_records_that_followers_lack_lie_behind_the_end(brokers: TwoBrokers) -> None:
    brokers.topic()
    log = lagging(brokers.source, "topic", 3)
    History(log).plain(5)
    with observed(brokers) as observer:
        (seen,) = observer.partitions()
        assert (seen.end, seen.log_end, seen.unreplicated) == (3, 5, 2)
        log.lag_ends()
        (seen,) = observer.partitions()
        assert (seen.end, seen.unreplicated) == (5, 0)


def test_acl_that_the_destination_lacks_is_drift(
    brokers: TwoBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.topic("topic", 1)
    read = AclBinding(Resource.GROUP, PatternType.LITERAL, "app", "User:other", "*", AclOperation.READ, True)
    own = replace(read, principal="User:mirror")
    holds = replace(own, name=brokers.settings.group)
    found = MissingAcls([read, own], frozenset({read, own, holds}))
    # Embedded brokers have no ACLs.
    monkeypatch.setattr(observing, "missing_at_destination", lambda *_: found)
    with observed(brokers) as observer:
        observer.partitions()
        (drift,) = observer.drift()
    assert all(each in drift for each in ("destination lacks", "User:other", "READ", "group app"))
