"""
The bounds of a response's size: before the login, of a Fetch, and of everything else.

A false broker could announce any size, and each byte of a response without batches can become 24 in Python's
objects. So its bytes and its values are bounded: long names make a response large, and each value takes some
70 bytes of memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ProtocolError
from ..protocol.apis import ApiKey
from ..protocol.codec import ValueLimit
from .properties import integer, java

__all__ = ["ANSWER_BYTES_PROPERTY", "BATCH_BYTES_PROPERTY", "LARGEST_FRAME", "AnswerSizes"]

ANSWER_BYTES_PROPERTY = "shoal.max.answer.bytes"
BATCH_BYTES_PROPERTY = "shoal.max.batch.bytes"

#: If a response is larger, the peer is not a Kafka broker: read as a size, "HTTP" is 1.2 GB and a TLS alert
#: 352 MB.
LARGEST_FRAME = 256 * 1024 * 1024

#: The metadata of 200,000 topics with one partition, five replicas and a name of 249 bytes, the longest.
#: Kafka's own advice ends at 200,000 partitions for a cluster.
_DEFAULT_ANSWER_BYTES = 64 * 1024 * 1024

#: So there may be 8,388,608 values: 200,000 topics of one partition with five replicas have 5.2 million, and
#: 20,000 topics with all 33 settings of Kafka 4.1 have 7.3 million. The costliest metadata take 600 MB.
_BYTES_A_VALUE = 8

#: The broker's default of socket.request.max.bytes: no batch is larger than a request.
_DEFAULT_BATCH_BYTES = 100 * 1024 * 1024

#: The versions and mechanisms of Kafka 4.1 take less than a kilobyte; a token may have 32 KiB.
_BEFORE_LOGIN_BYTES = 128 * 1024
_BEFORE_LOGIN = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})

#: The bytes of a Fetch response besides record sets. An aborted transaction takes 16 bytes, and has a batch
#: of 68 bytes or more. Each of up to 160,000 partitions takes some 100 bytes.
_FETCH_OVERHEAD = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class AnswerSizes:
    """
    The bounds of one cluster's responses.

    Attributes:
        answer_bytes: The bound of every response without batches after a login.
        batch_bytes: The size of the largest batch in any topic.

    """

    answer_bytes: int = java(ANSWER_BYTES_PROPERTY, str(_DEFAULT_ANSWER_BYTES), integer(1))
    batch_bytes: int = java(BATCH_BYTES_PROPERTY, str(_DEFAULT_BATCH_BYTES), integer(1))

    def largest(self, api_key: ApiKey, max_bytes: int | None = None) -> int:
        """
        Return the bound of a response in bytes.

        Args:
            max_bytes: That of a Fetch request, if it is known.

        """
        if api_key is ApiKey.FETCH:
            wanted = LARGEST_FRAME if max_bytes is None else max_bytes
            # A single batch may be larger than max_bytes, and comes alone then (KIP-74).
            return max(wanted, self.batch_bytes) + wanted // 4 + _FETCH_OVERHEAD
        return _BEFORE_LOGIN_BYTES if api_key in _BEFORE_LOGIN else self.answer_bytes

    def too_large(self, address: object, api: str, size: int, largest: int) -> ProtocolError:
        """Return the error of a response that is larger than it may be."""
        bound = BATCH_BYTES_PROPERTY if api == ApiKey.FETCH.name else ANSWER_BYTES_PROPERTY
        return ProtocolError(
            f"{address} sent a {api} response of {size:,} bytes, and at most {largest:,} are allowed. "
            f"If the cluster really needs more, raise {bound} in the client's properties"
        )

    @property
    def values(self) -> ValueLimit:
        """The bound of the values in a response without batches; it grows with a larger ``answer_bytes``."""
        most = max(self.answer_bytes, _DEFAULT_ANSWER_BYTES) // _BYTES_A_VALUE
        return ValueLimit(
            most,
            f"If the cluster really needs more, raise {ANSWER_BYTES_PROPERTY} in the client's properties",
        )
