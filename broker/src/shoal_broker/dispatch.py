"""A request's way from its frame to its answer: find the API, decode, handle, encode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shoal.errors import ProtocolError
from shoal.printable import logger
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import RequestHeader, decode_request, encode_response, read_request_header
from shoal.protocol.fetch import FetchResponse, encode_fetch_response
from shoal.protocol.produce import ProduceRequest, decode_produce_request

from .apis.cluster import unsupported_version
from .call import Call
from .coordination.purgatory import NobodyWaits
from .faults import Fault
from .state import Api, BrokerState

__all__ = ["CloseConnection", "answer"]

_log = logger("shoal_broker")


class CloseConnection(Exception):
    """
    The connection closes without an answer, or with the beginning of one.

    Attributes:
        last_bytes: The bytes to send before.

    """

    def __init__(self, reason: str, last_bytes: bytes = b"") -> None:
        super().__init__(reason)
        self.last_bytes = last_bytes


def answer(
    state: BrokerState, frame: memoryview, client_host: str, has_hung_up: Callable[[], bool] = lambda: False
) -> Sequence[bytes | memoryview]:
    """
    Serve one request.

    Args:
        state: The state that it reads and changes.
        frame: The request without its size. The buffer may be reused afterwards.
        has_hung_up: Returns whether the client hung up.

    Returns:
        The answer, size included, as parts for ``sendmsg``; none for acks=0.

    Raises:
        CloseConnection: The request is malformed, its API or version is not served, or a fault drops the
            connection.

    """
    try:
        header = read_request_header(frame)
        api = state.apis.get(header.api_key)  # type: ignore[call-overload]
        if api is None or not api.oldest <= header.api_version <= api.newest:
            return _without_api(state, header)
        return _serve(state, api, header, client_host, has_hung_up, _decode(state, header, frame))
    except ProtocolError as error:
        raise CloseConnection(str(error)) from error


def _without_api(state: BrokerState, header: RequestHeader) -> Sequence[bytes | memoryview]:
    if header.api_key != ApiKey.API_VERSIONS:
        # Kafka does not answer, either: it does not know the encoding.
        raise CloseConnection(f"API {header.api_key} is not served in version {header.api_version}")
    return [encode_response(unsupported_version(state), header.correlation_id)]


def _decode(state: BrokerState, header: RequestHeader, frame: memoryview) -> Any:
    if header.api_key == ApiKey.PRODUCE:
        return decode_produce_request(frame, header.api_version, names=state.topics.names)
    return decode_request(header, frame)


def _serve(
    state: BrokerState,
    api: Api,
    header: RequestHeader,
    client_host: str,
    has_hung_up: Callable[[], bool],
    request: Any,
) -> Sequence[bytes | memoryview]:
    client_id = header.client_id or ""
    fault = state.faults.take(api.key, _partitions_of(state, request), client_id) if state.faults else None
    call = Call(api.key, header.api_version, client_id, client_host, fault, has_hung_up)
    try:
        if fault is not None:
            _before(state, call, fault)
        response = api.handle(state, call, request)
    except CloseConnection:
        raise
    except NobodyWaits:
        raise CloseConnection("the broker stopped, or the client hung up") from None
    except Exception as error:
        _log.exception("%s v%d failed", api.key.name, header.api_version)
        raise CloseConnection("the request failed") from error
    if fault is not None and fault.drop == "after":
        raise CloseConnection("a fault that a test ordered")
    parts = _encode(header, request, response)
    if fault is not None and fault.drop == "within":
        answer = b"".join(map(bytes, parts))
        raise CloseConnection("a fault that a test ordered", answer[: len(answer) // 2])
    return parts


def _before(state: BrokerState, call: Call, fault: Fault) -> None:
    # Even if the client hung up: a paused broker serves the requests that it received.
    state.purgatory.wait_for(lambda: False, (), fault.delay_s)
    if fault.drop == "before":
        raise CloseConnection("a fault that a test ordered")


def _encode(header: RequestHeader, request: Any, response: Any) -> Sequence[bytes | memoryview]:
    if isinstance(request, ProduceRequest) and request.acks == 0:
        if any(part.error_code for topic in response.responses for part in topic.partition_responses):
            # The client expects no answer, so Kafka reports the error by closing the connection.
            raise CloseConnection("an error with acks=0")
        return []
    if isinstance(response, FetchResponse):
        return encode_fetch_response(response, header.api_version, header.correlation_id)
    return [encode_response(response, header.correlation_id, header.api_version)]


def _partitions_of(state: BrokerState, request: Any) -> set[tuple[str, int]]:
    """Return the partitions of a request or its session, for faults; a topic without any has -1."""
    if isinstance(request, ProduceRequest):
        return {(entry.topic, entry.partition) for entry in request.partitions}
    found = state.fetch_sessions.partitions(getattr(request, "session_id", 0) or 0)
    for topic in _field(request, "topics") or ():
        name = topic if isinstance(topic, str) else _name_of(state, topic)
        for partition in _field(topic, "partitions", "partition_indexes") or (-1,):
            number = (
                partition if isinstance(partition, int) else _field(partition, "partition_index", "partition")
            )
            found.add((name, number))
    return found


def _name_of(state: BrokerState, topic: Any) -> str:
    return _field(topic, "name", "topic") or state.topics.names.get(_field(topic, "topic_id"), "")


def _field(message: Any, *names: str) -> Any:
    return next((getattr(message, name) for name in names if hasattr(message, name)), None)
