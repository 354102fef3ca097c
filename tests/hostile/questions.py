"""The calls of a client to a cluster, for brokers that answer wrongly."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

from shoal.client.admin import (
    NewTopic,
    create_topic,
    describe_broker_config,
    describe_topic_configs,
    init_producer_id,
)
from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets, fetch_offsets
from shoal.client.config import ClientConfig, IsolationLevel
from shoal.client.coordinator import MemberId
from shoal.client.fetch import Fetcher, FetchFrom
from shoal.client.groups import describe_holder
from shoal.client.lot import Limits, open_gate
from shoal.client.offsets import EARLIEST, epoch_end_offsets, list_offsets, local_log_start_offset
from shoal.client.scan import read_batches
from shoal.client.send import send
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.prepare.create import prepare
from shoal.protocol.apis import ApiKey
from shoal.records import verify_crc
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.group_member import GroupMember
from tests.native.sending import lot_of
from tests.produce_connection import takes_multi_batch
from tests.two_brokers import config_of

__all__ = ["QUESTIONS", "REQUEST_TIMEOUT_MS", "create_topic_again", "impatient_config", "read_all"]

PARTITION = TopicPartition("topic", 0)
REQUEST_TIMEOUT_MS = 250


def impatient_config(broker: Broker) -> ClientConfig:
    return replace(config_of("source", broker), request_timeout_ms=REQUEST_TIMEOUT_MS)


def _join(cluster: Cluster) -> None:
    member = GroupMember(
        cluster, "group", protocol="shoal-me", instance_id="shoal-me", session_timeout_ms=6000
    )
    try:
        member.join([PARTITION])
        member.heartbeat()
    finally:
        cluster.forget_coordinator("group")
        member.leave()


def _fetch(cluster: Cluster, topic_id: uuid.UUID | None = None) -> None:
    connection = cluster.connect(cluster.partition(PARTITION).leader)
    fetcher = Fetcher(
        connection,
        buffer_bytes=1 << 20,
        isolation_level=IsolationLevel.READ_COMMITTED,
        max_wait_ms=10,
    )
    try:
        for offset in (0, 3, 0, 9):  # in a session, if there is one
            fetcher.ask(FetchFrom(PARTITION, offset, topic_id=topic_id))
            fetcher.ask(FetchFrom(TopicPartition("topic", 1), 0, topic_id=topic_id))
            fetcher.send()
            fetcher.receive()
    finally:
        fetcher.close()


def _produce(cluster: Cluster, topic_id: uuid.UUID | None = None) -> None:
    lot = lot_of(0, 2)._replace(partition=PARTITION, topic_id=topic_id)
    with cluster.connect(cluster.partition(PARTITION).leader) as connection:
        for _ in range(2):
            sent = send(connection, [lot], Limits(0), open_gate())
            if sent.failure is not None:
                raise sent.failure


def _ask_about_several_batches(cluster: Cluster) -> None:
    with cluster.connect(cluster.partition(PARTITION).leader) as connection:
        takes_multi_batch(connection, PARTITION)


def read_all(cluster: Cluster) -> None:
    for each in read_batches(cluster, PARTITION, 0):
        verify_crc(each)


def create_topic_again(cluster: Cluster) -> None:
    create_topic(cluster, NewTopic("topic", 1, 1, {}))


def _prepare(cluster: Cluster) -> None:
    options = MirrorOptions(
        cluster.config, cluster.config, TopicSelection("topic", rename="topic=copy"), once=True
    )
    prepare(options, cluster, cluster, patience_s=0.2)


#: Each call of a client.
QUESTIONS: tuple[Callable[[Cluster], object], ...] = (
    lambda cluster: cluster.refresh(),
    lambda cluster: cluster.connection(cluster.partition(PARTITION).leader),
    lambda cluster: cluster.controller().request(ApiKey.METADATA),
    lambda cluster: fetch_offsets(cluster, "group", [PARTITION]),
    lambda cluster: commit_offsets(cluster, "group", {PARTITION: Committed(3, "x")}, MemberId()),
    lambda cluster: describe_holder(cluster, "group"),
    _join,
    lambda cluster: list_offsets(cluster, {PARTITION: EARLIEST}),
    lambda cluster: local_log_start_offset(cluster, PARTITION),
    lambda cluster: epoch_end_offsets(cluster, {PARTITION: 0}),
    lambda cluster: describe_topic_configs(cluster, ["topic"]),
    lambda cluster: describe_broker_config(cluster, 1),
    create_topic_again,
    init_producer_id,
    _prepare,
    _fetch,
    lambda cluster: _fetch(cluster, cluster.topic_id("topic")),
    _produce,
    lambda cluster: _produce(cluster, cluster.topic_id("topic")),
    _ask_about_several_batches,
    read_all,
)
