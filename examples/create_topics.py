"""A rebalance listener that creates destination topics before anything is mirrored to them.

    PYTHONPATH=examples shoal mirror-maker \
        --consumer.config consumer.properties --producer.config producer.properties --include 'orders.*' \
        --consumer.rebalance.listener create_topics:CreateTopics \
        --rebalance.listener.args 'bootstrap.servers=destination:9092 retention.ms=86400000'

The topics have as many partitions as the group shares, and the given settings. If the listener does not
create a topic, shoal creates it like the source's.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from shoal.handlers import MirrorMakerRebalanceListener


class CreateTopics(MirrorMakerRebalanceListener):
    """Create destination topics before shoal mirrors to them.

    Args:
        args: ``name=value`` pairs: ``bootstrap.servers``, and settings of the topics.
    """

    def __init__(self, args: str) -> None:
        settings = dict(pair.split("=", 1) for pair in args.split())
        self._admin = AdminClient({"bootstrap.servers": settings.pop("bootstrap.servers")})
        # Otherwise the broker would compress every batch again.
        self._settings = {"compression.type": "producer", **settings}

    def before_starting_fetchers(
        self, consumer_id: str, partition_assignment: Mapping[str, Mapping[int, str]]
    ) -> None:
        there = self._admin.list_topics(timeout=30).topics
        missing = [
            NewTopic(topic, max(owners) + 1, config=self._settings)
            for topic, owners in partition_assignment.items()
            if topic not in there
        ]
        for future in self._admin.create_topics(missing).values() if missing else ():
            try:
                future.result()
            except KafkaException as error:
                # Another member of the group may have created it first.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
