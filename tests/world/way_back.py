"""A mirror that goes back from a cut, between two embedded brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.client.coordinator import MemberId
from shoal.mirroring.cutover.certificate import Certificate, CutCluster, CutLog, CutPartition
from shoal.mirroring.driver.going_back import go_back
from shoal.mirroring.model.copy_options import copy_rules
from shoal.mirroring.model.options import MirrorOptions
from shoal_broker import Broker
from tests.world.clusters import TOPIC, TwoBrokers
from tests.world.history import ABORT, COMMIT

__all__ = ["WayBack", "certificate_of", "reversed_brokers", "started_way_back"]


@dataclass
class WayBack:
    """
    The reverse mirror of a cut.

    Attributes:
        there: The mirror that led to the cut.
        two: The mirror that goes back.
        certificate: The certificate of the cut.

    """

    there: TwoBrokers
    two: TwoBrokers
    certificate: Certificate

    def options(self, topics: str = TOPIC, **more: Any) -> MirrorOptions:
        return self.two.options(topics, **{"group": self.two.settings.group, **more})

    def begin(self, topics: str = TOPIC) -> list[int]:
        """Commit the positions of the cut; return the partitions that got one."""
        group = self.two.settings.group
        begun = go_back(self.options(topics), self.certificate, group, MemberId(), patience_s=10.0)
        return [each.partition for each in begun]

    def write(self, file: Path) -> str:
        """Write the certificate, and return its file."""
        file.write_text(json.dumps(self.certificate.as_json()))
        return str(file)


def reversed_brokers(two: TwoBrokers, group: str = "back") -> TwoBrokers:
    """Return the brokers with a mirror in the other direction."""
    settings = replace(
        two.settings,
        source=replace(two.settings.destination, name="source"),
        destination=replace(two.settings.source, name="destination"),
        group=group,
    )
    settings = replace(settings, rules=copy_rules(settings.source))
    return TwoBrokers(two.destinations, two.sources, settings)


def certificate_of(two: TwoBrokers) -> Certificate:
    """Return the certificate of a cut now, of the mirror between two brokers that has copied everything."""
    partitions = tuple(
        CutPartition(number, ours, theirs, None, 0, 0)
        for number, (ours, theirs) in enumerate(
            zip(
                _logs(two.settings.source, two.source),
                _logs(two.settings.destination, two.destination),
                strict=True,
            )
        )
    )
    return Certificate(
        "now",
        CutCluster(two.source.cluster_id, two.source.bootstrap),
        CutCluster(two.destination.cluster_id, two.destination.bootstrap),
        two.settings.group,
        two.settings.rules,
        {TOPIC: TOPIC},
        partitions,
        groups=(),
        gates_s={},
    )


def _logs(config: ClientConfig, broker: Broker) -> Iterator[CutLog]:
    with Cluster(config) as cluster:
        topic = cluster.refresh([TOPIC]).topics[TOPIC]
        for number, partition in sorted(topic.partitions.items()):
            log = broker.log(TOPIC, number)
            yield CutLog(
                TOPIC, str(topic.topic_id), log.log_start_offset, log.log_end_offset, partition.leader_epoch
            )


@contextmanager
def started_way_back(group: str | None = None) -> Iterator[WayBack]:
    """Yield the reverse mirror of a cut behind transactions; it has no position yet."""
    with TwoBrokers.started() as two:
        if group is not None:
            two = two.with_settings(group=group)
        (history,) = two.topic(TOPIC)
        history.plain(3).transaction(2, ends=COMMIT).transaction(1, ends=ABORT).plain(3)
        two.run()
        yield WayBack(two, reversed_brokers(two), certificate_of(two))
