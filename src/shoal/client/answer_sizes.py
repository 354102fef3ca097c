"""
The bound of a response's size, by its request.

A false broker could announce any size, and each byte of a response without batches can become 24 in Python's
objects. So the bound comes from the request: a response about ten partitions is small.
If a response grows with the cluster, its bytes and its values are bounded: long names make it large, and
each value takes some 70 bytes of memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ProtocolError
from ..protocol.apis import ApiKey
from ..protocol.codec import ValueLimit

__all__ = ["ANSWER_BYTES_PROPERTY", "BATCH_BYTES_PROPERTY", "LARGEST_FRAME", "AnswerSizes"]

ANSWER_BYTES_PROPERTY = "shoal.max.answer.bytes"
BATCH_BYTES_PROPERTY = "shoal.max.batch.bytes"

#: If a response is larger, the peer is not a Kafka broker: read as a size, "HTTP" is 1.2 GB and a TLS alert
#: 352 MB.
LARGEST_FRAME = 256 * 1024 * 1024

#: The default for responses that grow with the cluster: the metadata of 200,000 topics with one partition,
#: five replicas and a name of 249 bytes, the longest. Kafka's own advice ends at 200,000 partitions for a
#: cluster.
_DEFAULT_ANSWER_BYTES = 64 * 1024 * 1024

#: So there may be 8,388,608 values: 200,000 topics of one partition with five replicas have 5.2 million, and
#: 20,000 topics with all 33 settings of Kafka 4.1 have 7.3 million. The costliest metadata take 600 MB.
_BYTES_A_VALUE = 8

#: The broker's default of socket.request.max.bytes: no batch is larger than a request.
_DEFAULT_BATCH_BYTES = 100 * 1024 * 1024

#: The part of every bound that depends on neither the cluster nor the request. Responses of Kafka 4.1 without
#: partitions take less than a kilobyte; a member id, a token or an error message may have 32 KiB.
_FIXED_BYTES = 128 * 1024

#: All brokers of a cluster: 2,900 whose hosts and racks have 100 bytes each, or 36,000 in the response about
#: a quorum.
_BROKERS_BYTES = 1024 * 1024

#: The metadata of one topic: 72,000 partitions with five replicas.
_TOPIC_BYTES = 4 * 1024 * 1024

#: The outcome for one topic, and its settings: a message and lists of throttled replicas have 32 KiB each.
_RESULT_BYTES = 128 * 1024

#: The subscriptions and assignments of a group's members, or the partitions of a transaction. The coordinator
#: keeps them in one record, which may have a megabyte by default. 380,000 producers of a partition fit in.
_STATE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Bound:
    """
    The bound of a response in bytes: the sum of three parts.

    Attributes:
        fixed: The bytes for any request.
        growth: The bytes for each byte of the request.
        asked: The request's field with the list of requested elements; null requests all of them.
        each: The bytes for each element of that list.

    """

    fixed: int = _FIXED_BYTES
    growth: int = 0
    asked: str | None = None
    each: int = 0


#: None for responses that grow with the cluster, whatever the request. A growth of 8 is generous for a few
#: numbers by partition. Four bytes of OffsetFetch request the metadata of a partition, which has at most
#: 4,096 bytes by the default of offset.metadata.max.bytes. A Produce response has an error of some 100 bytes
#: for each refused record, and several records may be compressed to a byte.
_BOUNDS: Mapping[ApiKey, _Bound | None] = {
    ApiKey.PRODUCE: _Bound(growth=512),
    ApiKey.LIST_OFFSETS: _Bound(growth=8),
    ApiKey.METADATA: _Bound(_BROKERS_BYTES, asked="topics", each=_TOPIC_BYTES),
    ApiKey.OFFSET_COMMIT: _Bound(growth=8),
    ApiKey.OFFSET_FETCH: _Bound(growth=2048, asked="topics"),
    ApiKey.FIND_COORDINATOR: _Bound(),
    ApiKey.JOIN_GROUP: _Bound(_STATE_BYTES),
    ApiKey.HEARTBEAT: _Bound(),
    ApiKey.LEAVE_GROUP: _Bound(growth=8),
    ApiKey.SYNC_GROUP: _Bound(_STATE_BYTES),
    ApiKey.DESCRIBE_GROUPS: _Bound(asked="groups", each=_STATE_BYTES),
    ApiKey.LIST_GROUPS: None,
    ApiKey.SASL_HANDSHAKE: _Bound(),
    ApiKey.API_VERSIONS: _Bound(),
    ApiKey.CREATE_TOPICS: _Bound(asked="topics", each=_RESULT_BYTES),
    ApiKey.INIT_PRODUCER_ID: _Bound(),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _Bound(growth=8),
    ApiKey.DESCRIBE_ACLS: None,
    ApiKey.CREATE_ACLS: _Bound(growth=64),
    ApiKey.DESCRIBE_CONFIGS: _Bound(asked="resources", each=_RESULT_BYTES),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _Bound(asked="resources", each=_RESULT_BYTES),
    ApiKey.SASL_AUTHENTICATE: _Bound(),
    ApiKey.CREATE_PARTITIONS: _Bound(asked="topics", each=_RESULT_BYTES),
    ApiKey.DESCRIBE_QUORUM: _Bound(_BROKERS_BYTES),
    ApiKey.DESCRIBE_PRODUCERS: _Bound(asked="topics", each=_STATE_BYTES),
    # Only the gateway's clients send these: the gateway passes most responses on piece by piece.
    ApiKey.DELETE_TOPICS: _Bound(growth=8),
    ApiKey.DELETE_RECORDS: _Bound(growth=8),
    ApiKey.ADD_PARTITIONS_TO_TXN: _Bound(growth=8),
    ApiKey.ADD_OFFSETS_TO_TXN: _Bound(),
    ApiKey.END_TXN: _Bound(),
    ApiKey.WRITE_TXN_MARKERS: _Bound(growth=8),
    ApiKey.TXN_OFFSET_COMMIT: _Bound(growth=8),
    ApiKey.ALTER_CONFIGS: _Bound(asked="resources", each=_RESULT_BYTES),
    ApiKey.DELETE_GROUPS: _Bound(growth=8),
    ApiKey.DESCRIBE_CLUSTER: _Bound(_BROKERS_BYTES),
    ApiKey.DESCRIBE_TRANSACTIONS: _Bound(asked="transactional_ids", each=_STATE_BYTES),
    ApiKey.LIST_TRANSACTIONS: None,
}

#: Before the login the fixed part is the bound, also if the property allows more.
_BEFORE_LOGIN = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})

#: The bytes of a Fetch response besides record sets. An aborted transaction takes 16 bytes, and has a batch
#: of 68 bytes or more. Each of up to 160,000 partitions takes some 100 bytes.
_FETCH_OVERHEAD = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class AnswerSizes:
    """
    The bounds of one cluster's responses.

    Attributes:
        answer_bytes: The bound of every response without batches after a login; if None, the request decides.
        batch_bytes: The size of the largest batch in any topic.

    """

    answer_bytes: int | None = None
    batch_bytes: int = _DEFAULT_BATCH_BYTES

    def largest(self, api_key: ApiKey, request_bytes: int, fields: Mapping[str, Any] | None = None) -> int:
        """
        Return the bound of a response in bytes.

        Args:
            request_bytes: The size of the request.
            fields: The fields of the request, if they are known.

        """
        fields = fields or {}
        if api_key is ApiKey.FETCH:
            return self._largest_fetch(fields.get("max_bytes", LARGEST_FRAME))
        if api_key in _BEFORE_LOGIN:
            return _FIXED_BYTES
        bound = _BOUNDS[api_key]
        if self.answer_bytes is not None or bound is None:
            return self.of_cluster
        asked = () if bound.asked is None else fields.get(bound.asked)
        if asked is None:
            return self.of_cluster
        return min(bound.fixed + bound.growth * request_bytes + bound.each * len(asked), self.of_cluster)

    def too_large(self, address: object, api: str, size: int, largest: int) -> ProtocolError:
        """Return the error of a response that is larger than its request allows."""
        bound = BATCH_BYTES_PROPERTY if api == ApiKey.FETCH.name else ANSWER_BYTES_PROPERTY
        return ProtocolError(
            f"{address} sent a {api} response of {size:,} bytes, and its request allows at most {largest:,}. "
            f"If the cluster really needs more, raise {bound} in the client's properties"
        )

    @property
    def of_cluster(self) -> int:
        """The bound in bytes of responses that grow with the cluster."""
        return _DEFAULT_ANSWER_BYTES if self.answer_bytes is None else self.answer_bytes

    @property
    def values(self) -> ValueLimit:
        """The bound of the values in a response without batches; it grows with a larger ``answer_bytes``."""
        most = max(self.of_cluster, _DEFAULT_ANSWER_BYTES) // _BYTES_A_VALUE
        return ValueLimit(
            most,
            f"If the cluster really needs more, raise {ANSWER_BYTES_PROPERTY} in the client's properties",
        )

    def _largest_fetch(self, max_bytes: int) -> int:
        # A single batch may be larger than max_bytes, and comes alone then (KIP-74).
        return max(max_bytes, self.batch_bytes) + max_bytes // 4 + _FETCH_OVERHEAD
