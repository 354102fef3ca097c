"""Answers with brokers' addresses, which the gateway replaces by its own."""

from __future__ import annotations

from typing import Any

from ..error_codes import ErrorCode
from ..net.address import Address
from ..protocol import codec
from ..protocol.apis import ApiKey
from ..protocol.codec import RequestHeader, ValueLimit
from .nodes import Nodes

__all__ = ["rewrite"]


def rewrite(header: RequestHeader, frame: memoryview, values: ValueLimit, nodes: Nodes) -> bytes:
    """
    Return the same answer with the gateway's addresses, its size included.

    Args:
        values: The limit for the decoded answer.
        nodes: Remembers the brokers in the answer.

    Raises:
        ProtocolError: The answer is malformed.

    """
    api_key = ApiKey(header.api_key)
    answer = codec.decode_response(api_key, header.api_version, frame, values)
    if api_key == ApiKey.FIND_COORDINATOR:
        _rewrite_coordinators(answer, header.api_version, nodes)
    else:
        rewrite_brokers(answer, "node_id" if api_key == ApiKey.METADATA else "broker_id", nodes)
    return codec.encode_response(answer, header.correlation_id)


def rewrite_brokers(answer: Any, id_field: str, nodes: Nodes) -> None:
    advertised = nodes.advertise(
        {getattr(each, id_field): Address(each.host, each.port) for each in answer.brokers}
    )
    # Without a listener a broker counts as down: clients can handle a leader without an address.
    answer.brokers = [each for each in answer.brokers if getattr(each, id_field) in advertised]
    for broker in answer.brokers:
        broker.host, broker.port = advertised[getattr(broker, id_field)]


def _rewrite_coordinators(answer: Any, version: int, nodes: Nodes) -> None:
    for each in answer.coordinators if version >= 4 else [answer]:
        if each.error_code != ErrorCode.NONE:
            continue
        advertised = nodes.advertise({each.node_id: Address(each.host, each.port)})
        if each.node_id in advertised:
            each.host, each.port = advertised[each.node_id]
        else:
            each.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            each.node_id, each.host, each.port = -1, "", -1
