"""
Requests in which a client may pretend to be a broker.

A leader treats a Fetch with a broker's id as replication: the fetch offset confirms every record before it,
and the high watermark and ``acks=all`` follow. With a forged id a client could make the cluster acknowledge
records that have a single copy. The id is at the beginning of the request, so the rest stays undecoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..errors import ProtocolError
from ..protocol import codec
from ..protocol.apis import ApiKey
from ..protocol.codec import RequestHeader
from ..protocol.primitives import INT32, read_nullable_string, skip_tagged_fields, unpack

__all__ = ["Impostor", "check_replica_id"]

#: The oldest version of each API whose first field is the replica id. Fetch has it there up to v14 and v15
#: moves it to a tagged field; :mod:`.versions` ends before that.
_FROM: Mapping[int, int] = {ApiKey.FETCH: 0, ApiKey.LIST_OFFSETS: 0, ApiKey.OFFSET_FOR_LEADER_EPOCH: 3}

#: Kafka's ids of consumers, and of debugging ones. The other negative ids are brokers' too: -3 is a log
#: directory's copy of a partition, which reads beyond the high watermark.
_CONSUMERS = frozenset({-1, -2})

#: API key, version and correlation id.
_BEFORE_CLIENT_ID = 8


class Impostor(ProtocolError):
    """A client sent a request as only a broker does."""


def check_replica_id(header: RequestHeader, read_head: Callable[[], memoryview]) -> None:
    """
    Refuse a request that is not a consumer's.

    Args:
        header: The request's header.
        read_head: Reads the beginning of the request, as far as a replica id can reach.

    Raises:
        Impostor: The replica id is a broker's.
        ProtocolError: The request ends before it.

    """
    if header.api_version < _FROM.get(header.api_key, header.api_version + 1):
        return
    head = read_head()
    _, position = read_nullable_string(head, _BEFORE_CLIENT_ID, compact=False)
    api_key = ApiKey(header.api_key)
    if codec.request_class(api_key).flexible_version_q(header.api_version):
        position = skip_tagged_fields(head, position)
    (replica_id,) = unpack(INT32, head, position)
    if replica_id not in _CONSUMERS:
        # Without the id: a client that changes it must not fill the log with warnings.
        raise Impostor(f"{api_key.name} with the replica id of a broker: only brokers send that")
