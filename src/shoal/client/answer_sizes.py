"""
How large an answer may be, by its request.

A false broker could send any size, and each byte of an answer without batches can become 24 as Python's
objects. So the bound comes from the request: an answer about ten partitions is small, whatever it claims.
An answer that grows with the cluster is bounded in bytes and in values: long names make it large, and many
values make it dear, at some 70 bytes for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..protocol.apis import ApiKey
from ..protocol.codec import ValueLimit

__all__ = ["ANSWER_BYTES_PROPERTY", "BATCH_BYTES_PROPERTY", "LARGEST_FRAME", "AnswerSizes"]

ANSWER_BYTES_PROPERTY = "shoal.max.answer.bytes"
BATCH_BYTES_PROPERTY = "shoal.max.batch.bytes"

#: A response larger than this is a peer that does not speak Kafka: read as a size, "HTTP" is 1.2 GB and a TLS
#: alert 352 MB.
LARGEST_FRAME = 256 * 1024 * 1024

#: For answers that grow with the cluster: the metadata of 200,000 topics with one partition, five replicas
#: and a name of 249 bytes, the longest. Kafka's own advice ends at 200,000 partitions for a cluster.
_DEFAULT_ANSWER_BYTES = 64 * 1024 * 1024

#: So there may be 8,388,608 values: 200,000 topics of one partition with five replicas have 5.2 million, and
#: 20,000 topics with all 33 settings of Kafka 4.1 have 7.3 million. The costliest metadata take 600 MB.
_BYTES_A_VALUE = 8

#: The most that a broker takes in a request (its socket.request.max.bytes), so no batch is larger.
_DEFAULT_BATCH_BYTES = 100 * 1024 * 1024

#: For answers that grow with neither the cluster nor the request, such as those before a login. Those of
#: Kafka 4.1 take less than a kilobyte; a member id, a token or an error message may have 32 KiB.
_FIXED_BYTES = 128 * 1024

#: How much an answer may grow with each byte of its request, above the fixed part. 8 is generous for answers
#: of a few numbers by partition. Of OffsetFetch four bytes ask for a partition's metadata, of 4,096 bytes by
#: the default of offset.metadata.max.bytes.
_GROWTH: Mapping[ApiKey, int] = {
    ApiKey.API_VERSIONS: 0,
    ApiKey.SASL_HANDSHAKE: 0,
    ApiKey.SASL_AUTHENTICATE: 0,
    ApiKey.FIND_COORDINATOR: 0,
    ApiKey.HEARTBEAT: 0,
    ApiKey.INIT_PRODUCER_ID: 0,
    ApiKey.LIST_OFFSETS: 8,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 8,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 2048,
}

#: Never more than the fixed part, not even if the property allows it: who answers has not shown who it is.
_BEFORE_LOGIN = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})

#: What a Fetch answer has besides record sets: 16 bytes for each aborted transaction, of which each has a
#: batch of 68 bytes or more, and some 100 bytes for each of up to 160,000 partitions.
_FETCH_OVERHEAD = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class AnswerSizes:
    """
    The bounds of answers of one cluster.

    Attributes:
        answer_bytes: For every answer without batches after a login; None for what its request asks for.
        batch_bytes: The largest batch that a topic can have.

    """

    answer_bytes: int | None = None
    batch_bytes: int = _DEFAULT_BATCH_BYTES

    def largest(self, api_key: ApiKey, request_bytes: int, fields: Mapping[str, Any] | None = None) -> int:
        """
        Return the most bytes that an answer may have.

        Args:
            api_key: The API.
            request_bytes: The size of the request.
            fields: The request's, if they are known: those of Fetch say what it asks for.

        """
        fields = fields or {}
        if api_key is ApiKey.FETCH:
            return self._largest_fetch(fields.get("max_bytes", LARGEST_FRAME))
        if api_key in _BEFORE_LOGIN:
            return _FIXED_BYTES
        asks_for_all = api_key is ApiKey.OFFSET_FETCH and fields.get("topics") is None
        if self.answer_bytes is not None or asks_for_all or api_key not in _GROWTH:
            return self.of_cluster
        return min(_FIXED_BYTES + _GROWTH[api_key] * request_bytes, self.of_cluster)

    @property
    def of_cluster(self) -> int:
        """The bound of answers that grow with the cluster, in bytes."""
        return _DEFAULT_ANSWER_BYTES if self.answer_bytes is None else self.answer_bytes

    @property
    def values(self) -> ValueLimit:
        """The bound of the values in any answer without batches; it grows with a larger ``answer_bytes``."""
        most = max(self.of_cluster, _DEFAULT_ANSWER_BYTES) // _BYTES_A_VALUE
        return ValueLimit(
            most,
            f"if the cluster really needs more, raise {ANSWER_BYTES_PROPERTY} in the client's properties",
        )

    def _largest_fetch(self, max_bytes: int) -> int:
        # A single batch may be larger than max_bytes, and comes alone then (KIP-74).
        return max(max_bytes, self.batch_bytes) + max_bytes // 4 + _FETCH_OVERHEAD
