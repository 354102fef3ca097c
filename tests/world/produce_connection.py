"""Produce requests as a test writes them: the question about several batches, and any record set as it is."""

from __future__ import annotations

from shoal.client.connection import Connection, version_or_close
from shoal.client.lot import ACKS_ALL
from shoal.client.multi_batch import query_multi_batch
from shoal.client.topic_listing import TopicListing
from shoal.protocol.apis import ApiKey
from shoal.protocol.produce import ProduceOutcome, decode_produce_response, encode_produce_request
from shoal.topic_partition import TopicPartition

__all__ = ["produced", "takes_multi_batch"]


def takes_multi_batch(connection: Connection, *partitions: TopicPartition) -> dict[TopicPartition, bool]:
    """Ask whether a request may have several batches of a partition; topics are listed by name."""
    return query_multi_batch(connection, partitions, _by_name(connection))


def produced(connection: Connection, partition: TopicPartition, record_set: bytes) -> ProduceOutcome:
    """Send a record set to a partition's leader, and return its outcome."""
    listing = _by_name(connection)
    correlation_id = connection.next_correlation_id()
    parts = encode_produce_request(
        listing.by_topic({partition: [memoryview(record_set)]}),
        version=listing.version,
        correlation_id=correlation_id,
        client_id=connection.client_id,
        acks=ACKS_ALL,
        timeout_ms=10_000,
    )
    connection.send_parts(parts, ApiKey.PRODUCE, correlation_id)
    (outcome,) = decode_produce_response(connection.receive(), listing.version, listing.names, 1)
    return outcome


def _by_name(connection: Connection) -> TopicListing:
    return TopicListing.of(version_or_close(connection, ApiKey.PRODUCE), None)
