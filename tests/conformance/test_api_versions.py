"""The API versions that the broker announces, and its answers to others."""

from __future__ import annotations

import struct

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import CLIENT_VERSIONS, ApiKey
from shoal.protocol.codec import decode_response
from tests.broker.wire import Wire
from tests.oldest_versions import OLDEST_IN_KAFKA_4


def ask(wire: Wire, version: int) -> list[tuple[int, int, int]]:
    answer = wire.call(
        ApiKey.API_VERSIONS, version, client_software_name="test", client_software_version="1.0"
    )
    assert answer.error_code == ErrorCode.NONE
    return [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys]


@pytest.mark.parametrize("version", range(5))
def test_every_request_version_has_the_same_response(wire: Wire, version: int) -> None:
    assert {key for key, _, _ in ask(wire, version)} >= {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA}


def test_version_too_new_is_answered_in_version_0(wire: Wire) -> None:
    # The body of a newer version cannot be known; the header can, with no tagged fields.
    request = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 7, 4) + b"test\0" + b"\xff\xff\xff"
    wire.send_bytes(len(request).to_bytes(4) + request)
    frame = wire.receive_frame()
    assert frame is not None
    answer = decode_response(ApiKey.API_VERSIONS, 0, memoryview(frame))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert ApiKey.API_VERSIONS in [each.api_key for each in answer.api_keys]
    assert ask(wire, 3), "the connection stays open"


def test_versions_that_kafka_4_removed_are_not_announced(wire: Wire) -> None:
    announced = {key: low for key, low, _ in ask(wire, 3)}
    assert {key: announced.get(key) for key in OLDEST_IN_KAFKA_4} == {**OLDEST_IN_KAFKA_4, ApiKey.PRODUCE: 0}


def test_produce_is_announced_from_version_0_for_librdkafka(wire: Wire) -> None:
    assert next(low for key, low, _ in ask(wire, 3) if key == ApiKey.PRODUCE) == 0


def test_invalid_client_software_name_is_refused(wire: Wire) -> None:
    answer = wire.call(ApiKey.API_VERSIONS, 3, client_software_name="no good", client_software_version="1")
    assert answer.error_code == ErrorCode.INVALID_REQUEST


#: The embedded broker has no logins, no quorum of controllers and no authorizer.
NOT_SERVED = {
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
}


@pytest.mark.parametrize("api", set(CLIENT_VERSIONS) - NOT_SERVED)
def test_versions_of_shoal_s_client_are_served(wire: Wire, api: ApiKey) -> None:
    served = {key: (low, high) for key, low, high in ask(wire, 3)}
    assert served.get(api, (0, -1))[1] >= CLIENT_VERSIONS[api][0]


@pytest.mark.parametrize(
    ("api", "version"),
    [
        *((api, oldest - 1) for api, oldest in OLDEST_IN_KAFKA_4.items()),
        *((ApiKey.METADATA, 99), (ApiKey.METADATA, -1), (999, 0), (-1, 0)),
    ],
)
def test_unserved_api_or_version_closes_the_connection(wire: Wire, api: int, version: int) -> None:
    low, high = {key: (low, high) for key, low, high in ask(wire, 3)}.get(api, (0, -1))
    assert api == ApiKey.PRODUCE or not low <= version <= high
    # A request to produce nothing, with acks -1: one with acks 0 has no answer in any version.
    body = struct.pack(">hii", -1, 1000, 0) if api == ApiKey.PRODUCE else bytes(20)
    request = struct.pack(">hhih", api, version, 7, 4) + b"test" + body
    wire.send_bytes(len(request).to_bytes(4) + request)
    assert wire.receive_frame() is None
